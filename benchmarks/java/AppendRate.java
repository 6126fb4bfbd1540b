import java.net.InetSocketAddress;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Appends messages to Apache's own message store with one thread, as bench_store.py does to ours, and
 * prints for each round the nanoseconds until the last append returned, and until the dispatcher had caught up.
 *
 * Arguments: store directory, bytes of body, messages a round, rounds.
 */
public final class AppendRate {
    private static final int TOPICS = 16;
    private static final int QUEUES = 8;

    public static void main(String[] arguments) throws Exception {
        int bodyBytes = Integer.parseInt(arguments[1]);
        int count = Integer.parseInt(arguments[2]);
        int rounds = Integer.parseInt(arguments[3]);
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(arguments[0]);
        config.setStorePathCommitLog(arguments[0] + "/commitlog");
        config.setFlushDiskType(FlushDiskType.ASYNC_FLUSH);
        config.setHaListenPort(0);
        config.setDiskMaxUsedSpaceRatio(95);
        BrokerConfig broker = new BrokerConfig();
        DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager("bench", true),
            (topic, queueId, logicOffset, tagsCode, time, bitMap, properties) -> { }, broker, new ConcurrentHashMap<>());
        if (!store.load()) {
            throw new IllegalStateException("the store could not be loaded");
        }
        store.start();
        byte[] body = new byte[bodyBytes];
        java.util.Arrays.fill(body, (byte) 'x');
        InetSocketAddress bornHost = new InetSocketAddress("127.0.0.1", 50000);
        InetSocketAddress storeHost = new InetSocketAddress("127.0.0.1", 10911);
        MessageExtBrokerInner[] messages = new MessageExtBrokerInner[1000];
        for (int number = 0; number < messages.length; number++) {
            messages[number] = message(number, body, bornHost, storeHost);
        }
        for (int round = 0; round < rounds; round++) {
            long started = System.nanoTime();
            for (int number = 0; number < count; number++) {
                MessageExtBrokerInner message = messages[number % messages.length];
                if (store.putMessage(message).getPutMessageStatus() != PutMessageStatus.PUT_OK) {
                    throw new IllegalStateException("message " + number + " was not stored");
                }
            }
            long appended = System.nanoTime();
            while (store.dispatchBehindBytes() > 0) {
                Thread.sleep(1);
            }
            long dispatched = System.nanoTime();
            System.out.println("round " + (appended - started) + " " + (dispatched - started));
        }
        long found = 0;
        for (int topic = 0; topic < TOPICS; topic++) {
            for (int queueId = 0; queueId < QUEUES; queueId++) {
                found += store.getMaxOffsetInQueue(String.format("TopicOrderEvents%02d", topic), queueId);
            }
        }
        if (found != (long) count * rounds) {
            throw new IllegalStateException(found + " messages are in the queues");
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static MessageExtBrokerInner message(int number, byte[] body, InetSocketAddress born, InetSocketAddress store) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(String.format("TopicOrderEvents%02d", number % TOPICS));
        message.setQueueId(number % QUEUES);
        message.setBody(body);
        message.setKeys("order-" + String.format("%010d", number % 1000));
        message.setTags("Tag" + number % 10);
        message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(message.getTags()));
        MessageAccessor.putProperty(message, "UNIQ_KEY", String.format("7F0000011A2B4E0E2F2A49F7%08X", number));
        MessageAccessor.putProperty(message, "CLUSTER", "DefaultCluster");
        message.setWaitStoreMsgOK(true);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(born);
        message.setStoreHost(store);
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }
}
