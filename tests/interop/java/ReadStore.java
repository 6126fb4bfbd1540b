import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Asks a broker what its store holds, through the official client.
 *
 * Arguments: name server, broker name. Requests are lines of standard input, fields separated by TAB:
 * queue TOPIC ID | bounds TOPIC ID | time TOPIC ID MS | key TOPIC KEY | view TOPIC MSGID
 * Every answer is a JSON line whose "answer" names the request; "queue" gives one line for each message, then bounds.
 */
public final class ReadStore {
    private static final int PULL_MESSAGES_MAX = 32;
    private static final int QUERY_MESSAGES_MAX = 64;

    private final DefaultMQPullConsumer consumer;
    private final String brokerName;

    private ReadStore(DefaultMQPullConsumer consumer, String brokerName) {
        this.consumer = consumer;
        this.brokerName = brokerName;
    }

    public static void main(String[] arguments) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("interop_read_store");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setVipChannelEnabled(false);
        consumer.start();
        ReadStore reader = new ReadStore(consumer, arguments[1]);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            reader.answer(line.split("\t", -1));
        }
        consumer.shutdown();
        new JsonLine().with("answer", "done").print();
        System.exit(0);
    }

    private void answer(String[] request) throws Exception {
        switch (request[0]) {
            case "queue":
                pullAll(queue(request));
                break;
            case "bounds":
                bounds(queue(request));
                break;
            case "time":
                long time = Long.parseLong(request[3]);
                print("time", queue(request)).with("time", time)
                    .with("queueOffset", consumer.searchOffset(queue(request), time)).print();
                break;
            case "key":
                key(request[1], request[2]);
                break;
            case "view":
                MessageExt seen = consumer.viewMessage(request[1], request[2]);
                new JsonLine().with("answer", "view").with("asked", request[2]).with(seen, offsetId(seen)).print();
                break;
            default:
                throw new IllegalArgumentException(request[0]);
        }
    }

    private MessageQueue queue(String[] request) {
        return new MessageQueue(request[1], brokerName, Integer.parseInt(request[2]));
    }

    private void bounds(MessageQueue queue) throws MQClientException {
        // The client learns the broker's address with the first topic it looks up.
        consumer.fetchSubscribeMessageQueues(queue.getTopic());
        print("bounds", queue).with("minOffset", consumer.minOffset(queue)).with("maxOffset", consumer.maxOffset(queue)).print();
    }

    private void pullAll(MessageQueue queue) throws Exception {
        bounds(queue);
        long end = consumer.maxOffset(queue);
        long next = consumer.minOffset(queue);
        while (next < end) {
            PullResult pulled = consumer.pull(queue, "*", next, PULL_MESSAGES_MAX);
            if (pulled.getPullStatus() != PullStatus.FOUND) {
                print("gap", queue).with("queueOffset", next).with("status", pulled.getPullStatus().name()).print();
                if (pulled.getNextBeginOffset() <= next) {
                    return;
                }
            } else {
                for (MessageExt message : pulled.getMsgFoundList()) {
                    new JsonLine().with("answer", "message").with(message, offsetId(message)).print();
                }
            }
            next = pulled.getNextBeginOffset();
        }
    }

    private void key(String topic, String key) throws Exception {
        List<Long> offsets = new ArrayList<>();
        String problem = null;
        try {
            QueryResult result = consumer.queryMessage(topic, key, QUERY_MESSAGES_MAX, 0, Long.MAX_VALUE);
            for (MessageExt message : result.getMessageList()) {
                offsets.add(message.getCommitLogOffset());
            }
        } catch (MQClientException nothing) {
            problem = nothing.getErrorMessage() == null ? nothing.getMessage() : nothing.getErrorMessage();
        }
        new JsonLine().with("answer", "key").with("topic", topic).with("key", key).with("commitLogOffsets", offsets)
            .with("problem", problem).print();
    }

    static String offsetId(MessageExt message) {
        return message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId();
    }

    private static JsonLine print(String answer, MessageQueue queue) {
        return new JsonLine().with("answer", answer).with("topic", queue.getTopic()).with("queueId", queue.getQueueId());
    }
}
