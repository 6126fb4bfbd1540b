import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Verbs of the admin client: createTopic, viewById, queryByKey, and mqadmin, whose commands run in this process. */
final class Lookups {
    private static final Map<String, DefaultMQAdminExt> STARTED = new ConcurrentHashMap<>();

    private Lookups() {
    }

    static void addTo(ClientShell shell) {
        shell.add("createTopic", (words, answer) -> {
            int queues = words.number("queues", 4);
            TopicConfig config = new TopicConfig(words.text("topic"), queues, queues, words.number("perm", 6));
            config.setOrder(words.is("order"));
            admin(words).createAndUpdateTopicConfig(words.text("brokerAddress"), config);
        });
        shell.add("viewById", (words, answer) -> {
            MessageExt found = admin(words).viewMessage(words.text("topic"), words.text("id"));
            answer.with("found", new JsonLine().with(found, found.getMsgId()).asMap());
        });
        shell.add("queryByKey", (words, answer) -> {
            QueryResult result = admin(words).queryMessage(words.text("topic"), words.text("key"), words.number("max", 32),
                words.longNumber("begin", 0), words.longNumber("end", Long.MAX_VALUE));
            answer.with("messages", PullConsumers.describe(result.getMessageList()));
        });
        shell.add("mqadmin", Lookups::mqadmin);
    }

    private static DefaultMQAdminExt admin(Words words) throws Exception {
        synchronized (STARTED) {
            DefaultMQAdminExt admin = STARTED.get(words.text("nameServer"));
            if (admin == null) {
                admin = new DefaultMQAdminExt("interop_admin");
                admin.setNamesrvAddr(words.text("nameServer"));
                admin.setVipChannelEnabled(false);
                admin.setInstanceName("interop_admin" + System.nanoTime());
                admin.start();
                STARTED.put(words.text("nameServer"), admin);
            }
            return admin;
        }
    }

    /** A process of mqadmin runs one command: here, a command would keep the producer of its first run, shut down. */
    private static void forgetCommands() throws ReflectiveOperationException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }

    /** What the command printed; one at a time, for standard output belongs to the process. */
    private static synchronized void mqadmin(Words words, JsonLine answer) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        try {
            System.setOut(new PrintStream(printed, true, "UTF-8"));
            System.setErr(new PrintStream(complained, true, "UTF-8"));
            forgetCommands();
            MQAdminStartup.main0(words.below("argument.").values().toArray(new String[0]), null);
        } finally {
            System.out.flush();
            System.setOut(out);
            System.setErr(err);
        }
        answer.with("printed", printed.toString("UTF-8")).with("complained", complained.toString("UTF-8"));
    }
}
