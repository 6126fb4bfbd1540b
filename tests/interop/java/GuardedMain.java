import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;

/**
 * Runs another class's main and makes sure that the process ends: when the parent's end of standard input closes,
 * however the parent died, or after -Dinterop.limitSeconds where that is given (the program may read standard input then).
 */
public final class GuardedMain {
    public static void main(String[] arguments) throws Throwable {
        Integer limitSeconds = Integer.getInteger("interop.limitSeconds");
        Thread guard = new Thread(limitSeconds == null ? GuardedMain::waitForParent : () -> sleepSeconds(limitSeconds));
        guard.setName("interop-guard");
        guard.setDaemon(true);
        guard.start();
        Class<?> program = Class.forName(arguments[0]);
        Object rest = Arrays.copyOfRange(arguments, 1, arguments.length);
        try {
            program.getMethod("main", String[].class).invoke(null, rest);
        } catch (InvocationTargetException failure) {
            throw failure.getCause();
        }
    }

    private static void waitForParent() {
        try {
            while (System.in.read() >= 0) {
                // Whatever is said here means only that the parent lives.
            }
        } catch (IOException closed) {
            System.err.println("interop guard: " + closed);
        }
        Runtime.getRuntime().halt(97);
    }

    private static void sleepSeconds(int seconds) {
        try {
            Thread.sleep(seconds * 1000L);
        } catch (InterruptedException interrupted) {
            return;
        }
        System.err.println("interop guard: not done after " + seconds + " s");
        Runtime.getRuntime().halt(98);
    }
}
