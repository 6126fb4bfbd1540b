import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Verbs that send: producer, transactionalProducer, send, batch, sendInTransaction, request, closeProducer. */
final class Producers {
    private static final Map<String, DefaultMQProducer> STARTED = new ConcurrentHashMap<>();

    private Producers() {
    }

    static void addTo(ClientShell shell) {
        shell.add("producer", (words, answer) -> {
            String group = words.text("group");
            start(words.is("trace") ? new DefaultMQProducer(group, null, true, null) : new DefaultMQProducer(group), words);
        });
        shell.add("transactionalProducer", (words, answer) -> {
            TransactionMQProducer producer = new TransactionMQProducer(words.text("group"));
            producer.setTransactionListener(new Decisions(words.text("name")));
            start(producer, words);
        });
        shell.add("send", Producers::send);
        shell.add("batch", Producers::batch);
        shell.add("sendInTransaction", (words, answer) -> {
            TransactionMQProducer producer = (TransactionMQProducer) STARTED.get(words.text("producer"));
            List<Object> sent = new ArrayList<>();
            for (int i = 0; i < words.number("count", 1); i++) {
                Message message = message(words, i);
                message.putUserProperty("first", words.text("first"));
                message.putUserProperty("checked", words.text("checked", "UNKNOW"));
                sent.add(describe(message, producer.sendMessageInTransaction(message, null)));
            }
            answer.with("sent", sent);
        });
        shell.add("request", (words, answer) -> {
            Message reply = STARTED.get(words.text("producer")).request(message(words, 0), words.longNumber("timeoutMs", 10_000));
            answer.with("reply", new String(reply.getBody(), java.nio.charset.StandardCharsets.UTF_8));
        });
        shell.add("closeProducer", (words, answer) -> STARTED.remove(words.text("name")).shutdown());
    }

    static DefaultMQProducer started(String name) {
        return STARTED.get(name);
    }

    private static void start(DefaultMQProducer producer, Words words) throws Exception {
        producer.setNamesrvAddr(words.text("nameServer"));
        producer.setVipChannelEnabled(false);
        producer.setPollNameServerInterval(words.number("pollNameServerMs", producer.getPollNameServerInterval()));
        producer.setInstanceName(words.text("name"));
        producer.setSendMsgTimeout(words.number("timeoutMs", 10_000));
        producer.setMaxMessageSize(words.number("bytesMax", producer.getMaxMessageSize()));
        producer.setRetryTimesWhenSendFailed(words.number("retries", producer.getRetryTimesWhenSendFailed()));
        if (words.has("namespace")) {
            producer.setNamespace(words.text("namespace"));
        }
        if (words.has("compressType")) {
            setCompressType(producer, words.text("compressType"));
        }
        if (words.is("autoBatch")) {
            DefaultMQProducer.class.getMethod("setAutoBatch", boolean.class).invoke(producer, true);
        }
        producer.start();
        STARTED.put(words.text("name"), producer);
    }

    /** Only clients of 5.x have the setting and its enumeration. */
    private static void setCompressType(DefaultMQProducer producer, String type) throws Exception {
        for (java.lang.reflect.Method method : DefaultMQProducer.class.getMethods()) {
            if (method.getName().equals("setCompressType")) {
                for (Object known : method.getParameterTypes()[0].getEnumConstants()) {
                    if (known.toString().equals(type)) {
                        method.invoke(producer, known);
                        return;
                    }
                }
            }
        }
        throw new IllegalArgumentException("the client has no compression type " + type);
    }

    private static Message message(Words words, int index) {
        Message message = new Message(words.text("topic"), words.body(index));
        if (words.has("tags")) {
            String[] tags = words.text("tags").split(",");
            message.setTags(tags[index % tags.length]);
        }
        if (words.has("keys")) {
            message.setKeys(words.text("keys").replace("{}", String.valueOf(index)));
        }
        words.below("property.").forEach((name, value) -> message.putUserProperty(name, value.replace("{}", String.valueOf(index))));
        words.below("system.").forEach((name, value) -> MessageAccessor.putProperty(message, name, value));
        if (words.has("delayLevel")) {
            message.setDelayTimeLevel(words.number("delayLevel", 0));
        }
        return message;
    }

    private static void send(Words words, JsonLine answer) throws Exception {
        DefaultMQProducer producer = STARTED.get(words.text("producer"));
        List<Object> sent = Collections.synchronizedList(new ArrayList<>());
        answer.with("sent", sent);
        int count = words.number("count", 1);
        Pending pending = new Pending(count, sent);
        for (int i = 0; i < count; i++) {
            Message message = message(words, i);
            switch (words.text("mode", "sync")) {
                case "async":
                    producer.send(message, pending.of(message));
                    break;
                case "oneway":
                    producer.sendOneway(message);
                    break;
                default:
                    sent.add(describe(message, sendSync(producer, message, words, i)));
            }
            if (words.has("pauseMs")) {
                Thread.sleep(words.number("pauseMs", 0));
            }
            if (words.is("events")) {
                new JsonLine().with("event", "sent").with("producer", words.text("producer")).with("message", sent.get(i)).print();
            }
        }
        if (words.text("mode", "sync").equals("async")) {
            pending.await();
        }
    }

    private static SendResult sendSync(DefaultMQProducer producer, Message message, Words words, int index) throws Exception {
        if (words.has("queue")) {
            return producer.send(message, new MessageQueue(words.text("topic"), words.text("broker"), words.number("queue", 0)));
        }
        if (words.has("shards")) {
            int shard = index % words.number("shards", 1);
            return producer.send(message, (queues, one, argument) -> queues.get((Integer) argument % queues.size()), shard);
        }
        return producer.send(message);
    }

    private static void batch(Words words, JsonLine answer) throws Exception {
        List<Message> members = new ArrayList<>();
        for (int i = 0; i < words.number("count", 1); i++) {
            members.add(message(words, i));
        }
        SendResult result = STARTED.get(words.text("producer")).send(members);
        String[] ids = result.getMsgId().split(",");
        String[] offsetIds = result.getOffsetMsgId().split(",");
        List<Object> sent = new ArrayList<>();
        for (int i = 0; i < members.size(); i++) {
            Map<String, Object> one = describe(members.get(i), result);
            one.put("msgId", ids[i]);
            one.put("offsetMsgId", i < offsetIds.length ? offsetIds[i] : null);
            one.put("queueOffset", result.getQueueOffset() + i);
            sent.add(one);
        }
        answer.with("sent", sent);
    }

    private static Map<String, Object> describe(Message message, SendResult result) throws Exception {
        Map<String, Object> sent = new LinkedHashMap<>();
        sent.put("status", result.getSendStatus().name());
        sent.put("msgId", result.getMsgId());
        sent.put("offsetMsgId", result.getOffsetMsgId());
        sent.put("brokerName", result.getMessageQueue().getBrokerName());
        sent.put("queueId", result.getMessageQueue().getQueueId());
        sent.put("queueOffset", result.getQueueOffset());
        sent.put("transactionId", result.getTransactionId());
        try {
            sent.put("recallHandle", SendResult.class.getMethod("getRecallHandle").invoke(result));
        } catch (NoSuchMethodException older) {
            sent.put("recallHandle", null);
        }
        sent.put("keys", message.getKeys());
        sent.put("bodyLength", message.getBody().length);
        sent.put("bodySha256", JsonLine.sha256(message.getBody()));
        return sent;
    }

    /** Waits for the callbacks of asynchronous sends; the first failure is thrown. */
    private static final class Pending {
        private final CountDownLatch left;
        private final List<Object> sent;
        private final AtomicReference<Throwable> failed = new AtomicReference<>();

        Pending(int count, List<Object> sent) {
            this.left = new CountDownLatch(count);
            this.sent = sent;
        }

        SendCallback of(Message message) {
            return new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    try {
                        sent.add(describe(message, result));
                    } catch (Exception failure) {
                        failed.compareAndSet(null, failure);
                    }
                    left.countDown();
                }

                @Override
                public void onException(Throwable failure) {
                    failed.compareAndSet(null, failure);
                    left.countDown();
                }
            };
        }

        void await() throws Exception {
            left.await();
            if (failed.get() != null) {
                throw new Exception("an asynchronous send failed", failed.get());
            }
        }
    }

    /** Takes the outcome of a transaction, at once and when asked again, from the message's own properties. */
    private static final class Decisions implements TransactionListener {
        private final String producer;

        Decisions(String producer) {
            this.producer = producer;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.valueOf(message.getUserProperty("first"));
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            new JsonLine().with("event", "checked").with("producer", producer).with("topic", message.getTopic())
                .with("msgId", message.getMsgId()).with("keys", message.getKeys())
                .with("transactionId", message.getTransactionId()).print();
            return LocalTransactionState.valueOf(message.getUserProperty("checked"));
        }
    }
}
