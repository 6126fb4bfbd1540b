import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Sends messages of many kinds and prints each acknowledgement as a JSON line, then consumes some of them.
 *
 * Arguments: name server, broker address, topic prefix, then words: kinds to send, "consume", "burst" (plain sends
 * without end, until the broker dies), and "rounds=N". With no kinds: all that every version knows.
 */
public final class SendSome {
    private static final List<String> KINDS =
        Arrays.asList("plain", "keys", "unicode", "batch", "ordered", "large", "delayed", "transactions");
    private static final String[] TEXTS = {"plain", "Gr\u00f6\u00dfe", "\u043a\u043b\u044e\u0447", "\u6ce8\u6587", "\ud83d\udef0 orbit"};

    private final String nameServer;
    private final String prefix;
    private final Random random = new Random(20240229);
    private final Map<String, DefaultMQProducer> compressing = new HashMap<>();
    private DefaultMQProducer producer;

    private SendSome(String nameServer, String prefix) {
        this.nameServer = nameServer;
        this.prefix = prefix;
    }

    public static void main(String[] arguments) throws Exception {
        SendSome sender = new SendSome(arguments[0], arguments[2]);
        List<String> words = Arrays.asList(arguments).subList(3, arguments.length);
        int rounds = words.stream().filter(word -> word.startsWith("rounds="))
            .mapToInt(word -> Integer.parseInt(word.substring(7))).findFirst().orElse(20);
        sender.createTopics(arguments[1]);
        sender.producer = sender.start(new DefaultMQProducer(sender.prefix + "_producers"));
        if (words.contains("burst")) {
            sender.burst();
        }
        List<String> kinds = new ArrayList<>(words);
        kinds.removeIf(word -> word.startsWith("rounds=") || word.equals("consume"));
        for (String kind : kinds.isEmpty() ? KINDS : kinds) {
            sender.send(kind, rounds);
        }
        if (words.contains("consume")) {
            sender.consume();
        }
        new JsonLine().with("answer", "done").print();
        System.exit(0);
    }

    private void createTopics(String brokerAddress) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt("interop_admin");
        admin.setNamesrvAddr(nameServer);
        admin.setVipChannelEnabled(false);
        admin.start();
        String[] names = {"Plain", "Ordered", "Batch", "Tx", "Single"};
        int[] queues = {4, 3, 2, 2, 1};
        for (int i = 0; i < names.length; i++) {
            admin.createAndUpdateTopicConfig(brokerAddress, new TopicConfig(prefix + names[i], queues[i], queues[i], 6));
        }
        admin.createAndUpdateTopicConfig(brokerAddress, new TopicConfig(prefix + "Wide", 2, 5, 6));
        admin.shutdown();
    }

    private <P extends DefaultMQProducer> P start(P given) throws Exception {
        given.setNamesrvAddr(nameServer);
        given.setVipChannelEnabled(false);
        given.setSendMsgTimeout(10_000);
        given.setRetryTimesWhenSendFailed(0);
        given.setInstanceName(given.getProducerGroup() + "_" + System.nanoTime());
        given.start();
        return given;
    }

    private void send(String kind, int rounds) throws Exception {
        for (int round = 0; round < rounds; round++) {
            switch (kind) {
                case "plain":
                    plain(round);
                    break;
                case "keys":
                    keys(round);
                    break;
                case "unicode":
                    unicode(round);
                    break;
                case "batch":
                    batch(round);
                    break;
                case "ordered":
                    Message ordered = message("Ordered", "order " + round % 7 + " step " + round / 7);
                    ordered.setKeys("order-" + round % 7);
                    print(kind, ordered, producer.send(ordered, (queues, sent, id) -> queues.get((Integer) id % queues.size()), round % 7));
                    break;
                case "large":
                    large(round);
                    break;
                case "delayed":
                    Message delayed = message(round % 2 == 0 ? "Plain" : "Single", "delayed " + round);
                    delayed.setDelayTimeLevel(new int[] {1, 2, 3, 16, 18, 25}[round % 6]);
                    delayed.setTags("Later");
                    delayed.setKeys("delayed-" + round);
                    print(kind, delayed, producer.send(delayed));
                    break;
                case "timer":
                    Message timed = message("Plain", "timed " + round);
                    MessageAccessor.putProperty(timed, round % 2 == 0 ? "TIMER_DELAY_MS" : "TIMER_DELAY_SEC", round % 4 == 3 ? "3600" : "2");
                    timed.setKeys("timed-" + round);
                    print(kind, timed, producer.send(timed));
                    break;
                case "light":
                    Message light = message("Plain", "light " + round);
                    light.setTags("Light");
                    MessageAccessor.putProperty(light, "INNER_MULTI_DISPATCH", "%LMQ%a" + round % 3 + (round % 2 == 0 ? ",%LMQ%all" : ""));
                    print(kind, light, producer.send(light));
                    break;
                case "longtopic":
                    StringBuilder name = new StringBuilder(prefix + "Long");
                    while (name.length() < 127) {
                        name.append((char) ('a' + name.length() % 26));
                    }
                    Message named = new Message(name.toString(), JsonLine.utf8("in a long topic " + round));
                    named.setKeys("long-" + round);
                    print(kind, named, producer.send(named));
                    break;
                case "transactions":
                    break;
                default:
                    throw new IllegalArgumentException(kind);
            }
        }
        if (kind.equals("transactions")) {
            transactions(rounds);
        }
    }

    private Message message(String topic, String body) {
        return new Message(prefix + topic, JsonLine.utf8(body));
    }

    private void plain(int round) throws Exception {
        byte[] body = new byte[1 + random.nextInt(900)];
        random.nextBytes(body);
        Message plain = new Message(prefix + (round % 3 == 0 ? "Wide" : "Plain"), body);
        plain.setFlag(round * 31);
        plain.setWaitStoreMsgOK(round % 4 != 0);
        plain.putUserProperty("a", String.valueOf(round % 10));
        print("plain", plain, producer.send(plain));
    }

    private void keys(int round) throws Exception {
        Message one = message("Plain", "with keys " + round);
        // "Aa" and "BB" have one hash, and so have all strings made of them.
        one.setKeys(Arrays.asList("key-" + round, "customer-" + round % 5, round % 2 == 0 ? "AaAa" : "BBBB"));
        one.setTags(round % 4 == 3 ? "polygenelubricants" : "Tag" + round % 4);
        print("keys", one, producer.send(one));
        Message blanks = new Message(prefix + "Single", "T || U", " lead  double " + round + " ", JsonLine.utf8("odd keys"));
        print("keys", blanks, producer.send(blanks));
    }

    private void unicode(int round) throws Exception {
        String text = TEXTS[round % TEXTS.length];
        Message written = message("Single", text + " " + round);
        written.setTags(text.substring(0, Math.min(2, text.length())));
        written.setKeys(text.replace(' ', '_') + " " + round);
        written.putUserProperty(text, "value of " + text);
        print("unicode", written, producer.send(written));
    }

    private void batch(int round) throws Exception {
        List<Message> members = new ArrayList<>();
        for (int member = 0; member <= round % 9; member++) {
            Message one = message("Batch", "batch " + round + " member " + member);
            if (member % 2 == 0) {
                one.setKeys("batch-" + round + " member-" + member);
                one.setTags("B" + member);
            }
            members.add(one);
        }
        SendResult result = producer.send(members);
        String[] ids = result.getMsgId().split(",");
        String[] offsetIds = result.getOffsetMsgId().split(",");
        for (int member = 0; member < members.size(); member++) {
            acknowledged("batch", members.get(member), result)
                .with("msgId", ids[member])
                .with("offsetMsgId", offsetIds[member])
                .with("queueOffset", result.getQueueOffset() + member)
                .print();
        }
    }

    /** Bodies that the client compresses; the 5.x client takes the kind from a system property. */
    private void large(int round) throws Exception {
        String kind = new String[] {"ZLIB", "LZ4", "ZSTD"}[round % 3];
        if (!compressing.containsKey(kind)) {
            System.setProperty("rocketmq.message.compressType", kind);
            compressing.put(kind, start(new DefaultMQProducer(prefix + "_compressing_" + kind)));
        }
        StringBuilder text = new StringBuilder();
        while (text.length() < 5000 + 1777 * round) {
            String note = TEXTS[text.length() % TEXTS.length];
            text.append("line ").append(text.length()).append(" of report ").append(round).append(note).append('\n');
        }
        Message large = message("Wide", text.toString());
        large.setTags("Report");
        print("large", large, compressing.get(kind).send(large));
    }

    private void transactions(int rounds) throws Exception {
        TransactionMQProducer transactional = new TransactionMQProducer(prefix + "_transactional");
        LocalTransactionState[] states = {
            LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE, LocalTransactionState.UNKNOW,
        };
        transactional.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object number) {
                return states[(Integer) number % states.length];
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        start(transactional);
        for (int round = 0; round < rounds; round++) {
            Message part = message("Tx", "transaction " + round);
            part.setKeys("tx-" + round);
            part.setTags("Tx");
            SendResult result = transactional.sendMessageInTransaction(part, round);
            acknowledged("transaction", part, result).with("state", states[round % states.length].name()).print();
        }
        Thread.sleep(1000); // ends are sent one way
        transactional.shutdown();
    }

    private void burst() throws Exception {
        try {
            for (int round = 0; ; round++) {
                if (round % 10 == 9) {
                    batch(round);
                } else if (round % 3 == 0) {
                    keys(round);
                } else {
                    plain(round);
                }
            }
        } catch (Exception died) {
            new JsonLine().with("answer", "died").with("problem", String.valueOf(died)).print();
            Runtime.getRuntime().halt(0);
        }
    }

    /** Consume until nothing came for a while; some messages are refused once, so that they are sent back. */
    private void consume() throws Exception {
        AtomicInteger consumed = new AtomicInteger();
        DefaultMQPushConsumer tagged = consumer("_tagged", consumed);
        tagged.subscribe(prefix + "Plain", "Tag0 || Tag1 || Later");
        tagged.subscribe(prefix + "Batch", "*");
        tagged.start();
        DefaultMQPushConsumer sql = consumer("_sql", consumed);
        sql.subscribe(prefix + "Wide", MessageSelector.bySql("a between 2 and 7 and TAGS is null"));
        try {
            sql.start();
        } catch (MQClientException refused) {
            new JsonLine().with("answer", "sql").with("problem", refused.getErrorMessage()).print();
        }
        for (int before = -1, quiet = 0; quiet < 6 && consumed.get() < 2000; ) {
            Thread.sleep(500);
            quiet = consumed.get() == before ? quiet + 1 : 0;
            before = consumed.get();
        }
        tagged.shutdown();
        sql.shutdown();
        new JsonLine().with("answer", "consumed").with("count", consumed.get()).print();
    }

    private DefaultMQPushConsumer consumer(String group, AtomicInteger consumed) throws Exception {
        DefaultMQPushConsumer made = new DefaultMQPushConsumer(prefix + group);
        made.setNamesrvAddr(nameServer);
        made.setVipChannelEnabled(false);
        made.setInstanceName(group + System.nanoTime());
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        made.setConsumeThreadMin(1);
        made.setConsumeThreadMax(1);
        made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            int number = consumed.addAndGet(messages.size());
            context.setDelayLevelWhenNextConsume(1);
            boolean refuses = number % 23 == 0 && messages.get(0).getReconsumeTimes() == 0;
            return refuses ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return made;
    }

    private void print(String kind, Message message, SendResult result) throws Exception {
        acknowledged(kind, message, result).print();
    }

    private JsonLine acknowledged(String kind, Message message, SendResult result) throws Exception {
        // A compressing producer puts the body back after the send.
        return new JsonLine()
            .with("answer", "sent")
            .with("kind", kind)
            .with("status", result.getSendStatus().name())
            .with("topic", message.getTopic())
            .with("queueId", result.getMessageQueue().getQueueId())
            .with("queueOffset", result.getQueueOffset())
            .with("msgId", result.getMsgId())
            .with("offsetMsgId", result.getOffsetMsgId())
            .with("keys", message.getKeys())
            .with("tags", message.getTags())
            .with("bodySha256", JsonLine.sha256(message.getBody()));
    }
}
