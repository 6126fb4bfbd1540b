import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Transactions by the official client: half message, local branch, commit; over when all of them can be consumed. */
final class TransactionLoad {
    private static final int SECONDS_MAX = 120;
    private final TransactionMQProducer producer = new TransactionMQProducer("load_transactions");
    private final String topic;

    private TransactionLoad(String nameServer, String topic) throws Exception {
        this.topic = topic;
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName("transactions" + System.nanoTime());
        producer.setSendMsgTimeout(10_000);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
    }

    /** Returns what was measured, as the jobs of BrokerLoad do. */
    static String run(String nameServer, String topic, int threads, int bodyBytes, int messages) throws Exception {
        TransactionLoad load = new TransactionLoad(nameServer, topic);
        try {
            return load.measure(threads, new byte[bodyBytes], messages);
        } finally {
            load.producer.shutdown();
        }
    }

    private String measure(int threads, byte[] body, int messages) throws Exception {
        long wanted = visible() + messages;
        AtomicInteger next = new AtomicInteger();
        AtomicInteger failed = new AtomicInteger();
        CountDownLatch done = new CountDownLatch(threads);
        long started = System.nanoTime();
        for (int i = 0; i < threads; i++) {
            new Thread(() -> {
                for (int job = next.getAndIncrement(); job < messages; job = next.getAndIncrement()) {
                    try {
                        producer.sendMessageInTransaction(new Message(topic, "tag", "key" + job, body), null);
                    } catch (Exception error) {
                        failed.incrementAndGet();
                    }
                }
                done.countDown();
            }).start();
        }
        done.await();
        // A commit is one-way: one that got lost is asked about after a while, and counts when it is there.
        long deadline = System.nanoTime() + SECONDS_MAX * 1_000_000_000L;
        while (visible() < wanted && System.nanoTime() < deadline) {
            Thread.sleep(2);
        }
        long missing = Math.max(0, wanted - visible());
        double seconds = (System.nanoTime() - started) / 1e9;
        return "seconds=" + seconds + " messages=" + messages + " failed=" + (failed.get() + missing);
    }

    private long visible() throws Exception {
        long count = 0;
        for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
            count += producer.maxOffset(queue);
        }
        return count;
    }
}
