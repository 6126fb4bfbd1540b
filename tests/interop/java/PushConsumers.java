import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageExt;

/** Verbs of consumers that are called back: push, closePush, assigned. Each message is an event. */
final class PushConsumers {
    private static final Map<String, PushConsumers> STARTED = new ConcurrentHashMap<>();

    private final DefaultMQPushConsumer consumer;
    private final Words words;
    private DefaultMQProducer replying;

    private PushConsumers(DefaultMQPushConsumer consumer, Words words) {
        this.consumer = consumer;
        this.words = words;
    }

    static void addTo(ClientShell shell) {
        shell.add("push", (words, answer) -> {
            String group = words.text("group");
            DefaultMQPushConsumer consumer = words.is("trace")
                ? new DefaultMQPushConsumer(group, null, new AllocateMessageQueueAveragely(), true, null)
                : new DefaultMQPushConsumer(group);
            new PushConsumers(consumer, words).start();
        });
        shell.add("closePush", (words, answer) -> STARTED.remove(words.text("name")).close());
        shell.add("suspendPush", (words, answer) -> STARTED.get(words.text("name")).consumer.suspend());
        shell.add("resumePush", (words, answer) -> STARTED.get(words.text("name")).consumer.resume());
        shell.add("subscribedQueues", (words, answer) -> answer.with("count",
            STARTED.get(words.text("name")).consumer.fetchSubscribeMessageQueues(words.text("topic")).size()));
    }

    private void start() throws Exception {
        consumer.setNamesrvAddr(words.text("nameServer"));
        consumer.setVipChannelEnabled(false);
        consumer.setPollNameServerInterval(words.number("pollNameServerMs", consumer.getPollNameServerInterval()));
        consumer.setInstanceName(words.text("instance", words.text("name")));
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf("CONSUME_FROM_" + words.text("from", "FIRST_OFFSET")));
        if (words.has("namespace")) {
            consumer.setNamespace(words.text("namespace"));
        }
        if (words.has("timestamp")) {
            consumer.setConsumeTimestamp(words.text("timestamp"));
        }
        if (words.has("threads")) {
            consumer.setConsumeThreadMin(words.number("threads", 1));
            consumer.setConsumeThreadMax(words.number("threads", 1));
        }
        consumer.setConsumeMessageBatchMaxSize(words.number("batch", 1));
        consumer.setMaxReconsumeTimes(words.number("maxReconsumeTimes", -1));
        // Closing interrupts the listeners' threads at once by default, and what they have printed may then not be committed.
        consumer.setAwaitTerminationMillisWhenShutdown(10_000);
        if (words.is("broadcasting")) {
            setBroadcasting();
        }
        if (words.is("pop")) {
            DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        }
        if (words.is("heartbeatV2")) {
            DefaultMQPushConsumer.class.getMethod("setUseHeartbeatV2", boolean.class).invoke(consumer, true);
        }
        for (String topic : words.text("topic").split(",")) {
            if (words.has("sql")) {
                consumer.subscribe(topic, MessageSelector.bySql(words.text("sql")));
            } else {
                consumer.subscribe(topic, words.text("tags", "*"));
            }
        }
        if (words.is("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) this::consumeOrderly);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) this::consume);
        }
        if (words.has("reply")) {
            replying = new DefaultMQProducer(words.text("group") + "_replies");
            replying.setNamesrvAddr(words.text("nameServer"));
            replying.setVipChannelEnabled(false);
            replying.setInstanceName(words.text("name") + "_replies");
            replying.start();
        }
        consumer.start();
        STARTED.put(words.text("name"), this);
    }

    /** The enumeration moved between packages from 4.x to 5.x. */
    private void setBroadcasting() throws Exception {
        for (java.lang.reflect.Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                for (Object model : method.getParameterTypes()[0].getEnumConstants()) {
                    if (model.toString().equals("BROADCASTING")) {
                        method.invoke(consumer, model);
                    }
                }
            }
        }
    }

    private void close() {
        consumer.shutdown();
        if (replying != null) {
            replying.shutdown();
        }
    }

    private ConsumeConcurrentlyStatus consume(List<MessageExt> messages, ConsumeConcurrentlyContext context) {
        context.setDelayLevelWhenNextConsume(words.number("retryLevel", 0));
        return accept(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
    }

    private ConsumeOrderlyStatus consumeOrderly(List<MessageExt> messages, ConsumeOrderlyContext context) {
        context.setSuspendCurrentQueueTimeMillis(words.number("suspendMs", 1000));
        return accept(messages) ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
    }

    /** Print; refuse those that were not refused often enough, and only those that carry the tag to refuse if one is named. */
    private boolean accept(List<MessageExt> messages) {
        try {
            boolean accepted = true;
            for (MessageExt message : messages) {
                boolean refusable = !words.has("refuseTag") || words.text("refuseTag").equals(message.getTags());
                boolean refused = refusable && message.getReconsumeTimes() < words.number("refuse", 0);
                accepted &= !refused;
                String offsetMessageId = message.getMsgId();
                String uniqueId = MessageClientIDSetter.getUniqID(message);
                new JsonLine().with("event", "message").with("consumer", words.text("name")).with("refused", refused)
                    .with("thread", Thread.currentThread().getName()).with("at", System.currentTimeMillis())
                    .with("brokerName", message.getBrokerName())
                    .with("body", message.getBody().length < 200 ? new String(message.getBody(), java.nio.charset.StandardCharsets.UTF_8) : null)
                    .with(message, offsetMessageId).with("uniqueId", uniqueId).print();
                if (replying != null) {
                    Message reply = MessageUtil.createReplyMessage(message, JsonLine.utf8(words.text("reply") + new String(message.getBody(), java.nio.charset.StandardCharsets.UTF_8)));
                    replying.send(reply, 5000);
                }
            }
            if (words.has("takesMs")) {
                Thread.sleep(words.number("takesMs", 0));
            }
            return accepted;
        } catch (Exception failure) {
            new JsonLine().with("event", "failure").with("consumer", words.text("name")).with("message", ClientShell.text(failure)).print();
            return false;
        }
    }
}
