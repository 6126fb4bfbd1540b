import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;

/**
 * The official client behind a line protocol: commands in (see Words), JSON lines out.
 *
 * Each command is answered by one line with its number under "re", in any order: commands run side by side. Messages
 * that consumers get are lines of their own, with "event".
 */
public final class ClientShell {
    /** What runs one command; what it adds to the answer is printed. */
    interface Action {
        void run(Words words, JsonLine answer) throws Exception;
    }

    private final Map<String, Action> actions = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        ClientShell shell = new ClientShell();
        Producers.addTo(shell);
        PushConsumers.addTo(shell);
        PullConsumers.addTo(shell);
        Lookups.addTo(shell);
        Brokers.addTo(shell);
        try {
            Class.forName("Since5").getDeclaredMethod("addTo", ClientShell.class).invoke(null, shell);
        } catch (ClassNotFoundException older) {
            // Compiled without it: this is a client of 4.x.
        }
        new JsonLine().with("event", "ready").print();
        shell.serve();
        Runtime.getRuntime().halt(0);
    }

    void add(String verb, Action action) {
        actions.put(verb, action);
    }

    private void serve() throws Exception {
        ExecutorService workers = Executors.newCachedThreadPool();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Words words = new Words(line);
            workers.execute(() -> answer(words));
        }
    }

    private void answer(Words words) {
        JsonLine answer = new JsonLine().with("re", words.number);
        try {
            Action action = actions.get(words.verb);
            if (action == null) {
                throw new IllegalArgumentException("no such verb: " + words.verb);
            }
            action.run(words, answer);
        } catch (Throwable failure) {
            answer.with("error", failure.getClass().getSimpleName()).with("code", code(failure)).with("message", text(failure));
        }
        answer.print();
    }

    /** The code that a server or the client's own checks gave, of the exception or of its cause. */
    static int code(Throwable failure) {
        for (Throwable one = failure; one != null; one = one.getCause()) {
            if (one instanceof MQBrokerException) {
                return ((MQBrokerException) one).getResponseCode();
            }
            if (one instanceof MQClientException && ((MQClientException) one).getResponseCode() > 0) {
                return ((MQClientException) one).getResponseCode();
            }
        }
        return -1;
    }

    static String text(Throwable failure) {
        StringBuilder text = new StringBuilder();
        for (Throwable one = failure; one != null; one = one.getCause()) {
            text.append(text.length() == 0 ? "" : " <- ");
            text.append(one instanceof MQBrokerException ? ((MQBrokerException) one).getErrorMessage() : String.valueOf(one.getMessage()));
        }
        return text.toString();
    }
}
