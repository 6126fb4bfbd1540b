import java.lang.reflect.Method;
import java.util.Locale;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.common.MixAll;

/**
 * Prints every key that a configuration class reads from broker.conf: class, key, type and default, tab-separated.
 *
 * The keys are those of MixAll.properties2Object, the method that Apache's broker reads its file with: each public setter.
 */
public final class SettingKeys {
    private static final Set<String> READ_TYPES = Set.of("int", "long", "double", "boolean", "float", "string");

    public static void main(String[] names) throws Exception {
        for (String name : names) {
            Object config = Class.forName(name).getDeclaredConstructor().newInstance();
            Properties defaults = MixAll.object2Properties(config);
            TreeSet<String> lines = new TreeSet<>();
            for (Method method : config.getClass().getMethods()) {
                if (!method.getName().startsWith("set") || method.getParameterCount() != 1) {
                    continue;
                }
                String key = Character.toLowerCase(method.getName().charAt(3)) + method.getName().substring(4);
                String type = method.getParameterTypes()[0].getSimpleName();
                if (!isRead(type)) {
                    continue;
                }
                lines.add(key + "\t" + type + "\t" + defaults.getProperty(key, ""));
            }
            for (String line : lines) {
                System.out.println(name + "\t" + line);
            }
        }
    }

    /** Return whether properties2Object converts text to this parameter type; it skips setters of other types. */
    private static boolean isRead(String type) {
        return READ_TYPES.contains(type.toLowerCase(Locale.ROOT).replace("integer", "int"));
    }
}
