import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Sends and consumes with credentials, and prints one JSON line a step.
 *
 * Arguments: name server, access key, secret key, topic, group, number of messages, and a security token if one is
 * used. A send that is refused prints its error; then nothing is consumed.
 */
public final class SignedClient {
    private SignedClient() {
    }

    public static void main(String[] words) throws Exception {
        SessionCredentials credentials = words.length > 6
            ? new SessionCredentials(words[1], words[2], words[6]) : new SessionCredentials(words[1], words[2]);
        RPCHook hook = new AclClientRPCHook(credentials);
        String topic = words[3];
        int count = Integer.parseInt(words[5]);
        DefaultMQProducer producer = new DefaultMQProducer("signed-producers", hook);
        producer.setNamesrvAddr(words[0]);
        producer.setVipChannelEnabled(false);
        // The first send connects and, with TLS, shakes hands: on a loaded machine more than Java's 3 seconds.
        producer.setRetryTimesWhenSendFailed(Integer.getInteger("signed.retries", 0));
        producer.setSendMsgTimeout(Integer.getInteger("signed.timeoutMillis", 20000));
        producer.start();
        try {
            for (int i = 0; i < count; i++) {
                producer.send(new Message(topic, "tag", "key" + i, ("body " + i).getBytes(StandardCharsets.UTF_8)));
            }
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                batch.add(new Message(topic, "tag", ("batch " + i).getBytes(StandardCharsets.UTF_8)));
            }
            producer.send(batch);
            new JsonLine().with("answer", "sent").with("count", count + 3).print();
            consume(words, hook, topic, count + 3);
        } catch (Exception refused) {
            new JsonLine().with("answer", "refused").with("error", String.valueOf(refused.getMessage())).print();
        } finally {
            producer.shutdown();
        }
        new JsonLine().with("answer", "done").print();
    }

    private static void consume(String[] words, RPCHook hook, String topic, int count) throws Exception {
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(words[4], hook, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(words[0]);
        consumer.setVipChannelEnabled(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        CountDownLatch taken = new CountDownLatch(count);
        List<String> bodies = Collections.synchronizedList(new ArrayList<>());
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> bodies.add(new String(message.getBody(), StandardCharsets.UTF_8)));
            messages.forEach(message -> taken.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean isComplete = taken.await(30, TimeUnit.SECONDS);
        consumer.shutdown();
        new JsonLine().with("answer", "consumed").with("count", bodies.size()).with("complete", isComplete).print();
    }
}
