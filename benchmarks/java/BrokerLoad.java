import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Load for a broker, by the official client. Arguments: name server and broker address. Each line of standard input is
 * one job, words apart by blanks; its answer is one line: `ok`, then what was measured as name=value.
 *
 *   topics PREFIX COUNT QUEUES
 *   sync|oneway TOPIC THREADS BODY_BYTES MESSAGES      (a topic that ends with * is one of PREFIX0..PREFIX999)
 *   batch TOPIC THREADS BODY_BYTES MESSAGES PER_BATCH
 *   async TOPIC IN_FLIGHT BODY_BYTES MESSAGES
 *   transactions TOPIC THREADS BODY_BYTES MESSAGES
 *   consume TOPIC MESSAGES
 *   latency TOPIC PER_SECOND BODY_BYTES SECONDS
 *   query TOPIC KEY TIMES
 *   hold TOPIC COUNT           (start that many consumers, each with a group and a connection of its own)
 *   idle SECONDS
 *   release                    (end the consumers that are held)
 */
public final class BrokerLoad {
    private static final int NANOS = 1_000_000_000;
    // Null without credentials: then requests are not signed.
    private static final RPCHook HOOK = System.getProperty("load.accessKey") == null ? null : new AclClientRPCHook(
        new SessionCredentials(System.getProperty("load.accessKey"), System.getProperty("load.secretKey")));
    private final String nameServer;
    private final String broker;
    private final DefaultMQProducer producer;
    private final List<DefaultMQPushConsumer> held = new ArrayList<>();
    private int consumers;

    private BrokerLoad(String nameServer, String broker) throws Exception {
        this.nameServer = nameServer;
        this.broker = broker;
        producer = new DefaultMQProducer("load_producers", HOOK);
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName("load" + System.nanoTime());
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(10_000);
        producer.start();
    }

    public static void main(String[] arguments) throws Exception {
        BrokerLoad load = new BrokerLoad(arguments[0], arguments[1]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.out.println("ready");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = "ok " + load.run(line.split(" "));
            } catch (Throwable error) {
                answer = "failed " + String.valueOf(error).replace('\n', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
        System.exit(0);
    }

    private String run(String[] words) throws Exception {
        switch (words[0]) {
            case "topics":
                return makeTopics(words[1], number(words[2]), number(words[3]));
            case "sync":
            case "oneway":
            case "batch":
                int perBatch = words[0].equals("batch") ? number(words[5]) : 1;
                return send(words[0], words[1], number(words[2]), number(words[3]), number(words[4]), perBatch);
            case "async":
                return sendAsync(words[1], number(words[2]), number(words[3]), number(words[4]));
            case "transactions":
                return TransactionLoad.run(nameServer, words[1], number(words[2]), number(words[3]), number(words[4]));
            case "consume":
                return consume(words[1], number(words[2]));
            case "latency":
                return latency(words[1], number(words[2]), number(words[3]), number(words[4]));
            case "query":
                return query(words[1], words[2], number(words[3]));
            case "hold":
                return hold(words[1], number(words[2]));
            case "idle":
                Thread.sleep(number(words[1]) * 1000L);
                return "seconds=" + words[1] + " messages=0 failed=0";
            case "release":
                for (DefaultMQPushConsumer each : held) {
                    each.shutdown();
                }
                held.clear();
                return "failed=0";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static int number(String word) {
        return Integer.parseInt(word);
    }

    private String makeTopics(String prefix, int count, int queues) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(HOOK);
        admin.setNamesrvAddr(nameServer);
        admin.setInstanceName("admin" + System.nanoTime());
        admin.start();
        for (int i = 0; i < count; i++) {
            String topic = count == 1 ? prefix : prefix + i;
            admin.createAndUpdateTopicConfig(broker, new TopicConfig(topic, queues, queues, 6));
            for (int tries = 0; tries < 600 && producer.getDefaultMQProducerImpl() != null; tries++) {
                try {
                    if (!producer.fetchPublishMessageQueues(topic).isEmpty()) {
                        break;
                    }
                } catch (Exception notYet) {
                    Thread.sleep(50);
                }
            }
        }
        admin.shutdown();
        return "count=" + count;
    }

    private static Message message(String topic, byte[] body, int number) {
        String real = topic.endsWith("*") ? topic.substring(0, topic.length() - 1) + number % 1000 : topic;
        return new Message(real, "tag", "key" + number, body);
    }

    private String send(String kind, String topic, int threads, int bodyBytes, int messages, int perBatch)
        throws Exception {
        byte[] body = new byte[bodyBytes];
        Arrays.fill(body, (byte) 'x');
        AtomicInteger next = new AtomicInteger();
        AtomicInteger failed = new AtomicInteger();
        long[] nanos = new long[messages / perBatch];
        CountDownLatch done = new CountDownLatch(threads);
        long started = System.nanoTime();
        for (int i = 0; i < threads; i++) {
            Thread thread = new Thread(() -> {
                for (int job = next.getAndIncrement(); job < nanos.length; job = next.getAndIncrement()) {
                    long before = System.nanoTime();
                    try {
                        sendOne(kind, topic, body, job, perBatch);
                    } catch (Exception error) {
                        if (failed.incrementAndGet() == 1) {
                            System.err.println(error);
                        }
                    }
                    nanos[job] = System.nanoTime() - before;
                }
                done.countDown();
            });
            thread.start();
        }
        done.await();
        if (kind.equals("oneway")) {
            // Answered when all before it on the connection were taken: what a client hands to its socket says little.
            sendLast(message(topic, body, 0));
        }
        return told(System.nanoTime() - started, nanos.length * perBatch, failed.get(), nanos);
    }

    /** Apache's broker refuses what waited behind so many for more than 200 ms; then it has those before it all the same. */
    private void sendLast(Message last) throws Exception {
        for (int left = 100; ; left--) {
            try {
                check(producer.send(last, 60_000));
                return;
            } catch (MQClientException | MQBrokerException error) {
                if (left == 0) {
                    throw error;
                }
                Thread.sleep(1);
            }
        }
    }

    private void sendOne(String kind, String topic, byte[] body, int job, int perBatch) throws Exception {
        if (kind.equals("batch")) {
            List<Message> batch = new ArrayList<>(perBatch);
            for (int i = 0; i < perBatch; i++) {
                batch.add(message(topic, body, job * perBatch + i));
            }
            check(producer.send(batch));
        } else if (kind.equals("oneway")) {
            producer.sendOneway(message(topic, body, job));
        } else {
            check(producer.send(message(topic, body, job)));
        }
    }

    private static void check(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(result.toString());
        }
    }

    private String sendAsync(String topic, int inFlight, int bodyBytes, int messages) throws Exception {
        byte[] body = new byte[bodyBytes];
        Semaphore room = new Semaphore(inFlight);
        AtomicInteger failed = new AtomicInteger();
        long[] nanos = new long[messages];
        long started = System.nanoTime();
        for (int i = 0; i < messages; i++) {
            final int job = i;
            room.acquire();
            final long before = System.nanoTime();
            producer.send(message(topic, body, job), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    nanos[job] = System.nanoTime() - before;
                    room.release();
                }

                @Override
                public void onException(Throwable error) {
                    if (failed.incrementAndGet() == 1) {
                        System.err.println(error);
                    }
                    room.release();
                }
            });
        }
        room.acquire(inFlight);
        return told(System.nanoTime() - started, messages, failed.get(), nanos);
    }

    private String consume(String topic, int messages) throws Exception {
        AtomicInteger seen = new AtomicInteger();
        AtomicLong first = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = consumer(topic, (batch, context) -> {
            first.compareAndSet(0, System.nanoTime());
            if (seen.addAndGet(batch.size()) >= messages) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.setPullBatchSize(32);
        consumer.start();
        done.await();
        long nanos = System.nanoTime() - first.get();
        consumer.shutdown();
        return told(nanos, seen.get(), 0, new long[] {nanos});
    }

    private DefaultMQPushConsumer consumer(String topic, MessageListenerConcurrently listener) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("load_consumers_" + System.nanoTime() + consumers++, HOOK);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName("load" + System.nanoTime());
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(listener);
        return consumer;
    }

    private String hold(String topic, int count) throws Exception {
        CountDownLatch joined = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            AtomicInteger seen = new AtomicInteger();
            DefaultMQPushConsumer each = consumer(topic, (batch, context) -> {
                if (seen.getAndAdd(batch.size()) == 0) {
                    joined.countDown();
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            each.setConsumeThreadMin(1);
            each.setConsumeThreadMax(1);
            each.start();
            held.add(each);
        }
        sendUntil(joined, topic, 0);
        // Every queue of every one is asked for by then.
        Thread.sleep(5000);
        return "failed=0";
    }

    /** A client that has just joined may wait half a minute for its first message, at either broker: not what is measured. */
    private void sendUntil(CountDownLatch joined, String topic, long run) throws Exception {
        for (int i = 0; joined.getCount() > 0; i++) {
            ByteBuffer body = ByteBuffer.allocate(20);
            body.putLong(run).putInt(-1);
            producer.send(message(topic, body.array(), i));
            joined.await(100, TimeUnit.MILLISECONDS);
        }
    }

    private String latency(String topic, int perSecond, int bodyBytes, int seconds) throws Exception {
        int messages = perSecond * seconds;
        long[] nanos = new long[messages];
        CountDownLatch done = new CountDownLatch(messages);
        long run = System.nanoTime();
        Set<Integer> queuesSeen = ConcurrentHashMap.newKeySet();
        CountDownLatch joined = new CountDownLatch(producer.fetchPublishMessageQueues(topic).size());
        DefaultMQPushConsumer consumer = consumer(topic, (batch, context) -> {
            long now = System.nanoTime();
            for (MessageExt message : batch) {
                ByteBuffer body = ByteBuffer.wrap(message.getBody());
                if (body.getLong() == run) {
                    int job = body.getInt();
                    if (job < 0) {
                        if (queuesSeen.add(message.getQueueId())) {
                            joined.countDown();
                        }
                        continue;
                    }
                    nanos[job] = now - body.getLong();
                    done.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.start();
        sendUntil(joined, topic, run);
        Thread.sleep(3000);
        long started = System.nanoTime();
        for (int i = 0; i < messages; i++) {
            long due = started + (long) i * NANOS / perSecond;
            while (System.nanoTime() < due) {
                LockSupport.parkNanos(Math.max(1000, due - System.nanoTime()));
            }
            ByteBuffer body = ByteBuffer.allocate(Math.max(20, bodyBytes));
            body.putLong(run).putInt(i).putLong(System.nanoTime());
            producer.send(message(topic, body.array(), i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                }

                @Override
                public void onException(Throwable error) {
                    System.err.println(error);
                }
            });
        }
        done.await();
        long elapsed = System.nanoTime() - started;
        consumer.shutdown();
        return told(elapsed, messages, 0, nanos);
    }

    private String query(String topic, String key, int times) throws Exception {
        long[] nanos = new long[times];
        long started = System.nanoTime();
        int found = 0;
        DefaultMQAdminExt admin = new DefaultMQAdminExt(HOOK);
        admin.setNamesrvAddr(nameServer);
        admin.setInstanceName("query" + started);
        admin.start();
        for (int i = 0; i < times; i++) {
            long before = System.nanoTime();
            found += admin.queryMessage(topic, key + i, 32, 0, Long.MAX_VALUE).getMessageList().size();
            nanos[i] = System.nanoTime() - before;
        }
        admin.shutdown();
        return told(System.nanoTime() - started, found, times - found > 0 ? 1 : 0, nanos);
    }

    private static String told(long elapsed, int messages, int failed, long[] nanos) {
        long[] sorted = nanos.clone();
        Arrays.sort(sorted);
        return "seconds=" + elapsed / 1e9 + " messages=" + messages + " failed=" + failed + " p50=" + at(sorted, 0.5)
            + " p99=" + at(sorted, 0.99) + " p999=" + at(sorted, 0.999);
    }

    private static double at(long[] sorted, double share) {
        return sorted[(int) Math.min(sorted.length - 1, sorted.length * share)] / 1e6;
    }
}
