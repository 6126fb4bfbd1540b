import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Verbs of consumers that ask: the old pull consumer (pull...) and the lite pull consumer (lite...). */
final class PullConsumers {
    private static final Map<String, DefaultMQPullConsumer> PULLING = new ConcurrentHashMap<>();
    private static final Map<String, DefaultLitePullConsumer> LITE = new ConcurrentHashMap<>();

    private PullConsumers() {
    }

    static void addTo(ClientShell shell) {
        addPull(shell);
        addLite(shell);
    }

    private static void addPull(ClientShell shell) {
        shell.add("pullConsumer", (words, answer) -> {
            DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(words.text("group"));
            consumer.setNamesrvAddr(words.text("nameServer"));
            consumer.setVipChannelEnabled(false);
            consumer.setInstanceName(words.text("name"));
            consumer.start();
            PULLING.put(words.text("name"), consumer);
        });
        shell.add("closePull", (words, answer) -> PULLING.remove(words.text("name")).shutdown());
        shell.add("pullQueues", (words, answer) -> answer.with("queues",
            queues(PULLING.get(words.text("name")).fetchSubscribeMessageQueues(words.text("topic")))));
        shell.add("pull", (words, answer) -> {
            DefaultMQPullConsumer consumer = PULLING.get(words.text("name"));
            MessageQueue queue = queue(words);
            String tags = words.text("tags", "*");
            long position = words.longNumber("position", 0);
            int max = words.number("max", 32);
            PullResult result = words.is("block") ? consumer.pullBlockIfNotFound(queue, tags, position, max)
                : consumer.pull(queue, tags, position, max);
            answer.with("status", result.getPullStatus().name()).with("next", result.getNextBeginOffset())
                .with("min", result.getMinOffset()).with("max", result.getMaxOffset())
                .with("messages", describe(result.getMsgFoundList()));
        });
        shell.add("pullCommit", (words, answer) -> {
            DefaultMQPullConsumer consumer = PULLING.get(words.text("name"));
            consumer.updateConsumeOffset(queue(words), words.longNumber("position", 0));
            consumer.getOffsetStore().persist(queue(words));
        });
        shell.add("pullCommitted", (words, answer) ->
            answer.with("position", PULLING.get(words.text("name")).fetchConsumeOffset(queue(words), true)));
        shell.add("queueBounds", (words, answer) -> {
            DefaultMQPullConsumer consumer = PULLING.get(words.text("name"));
            answer.with("min", consumer.minOffset(queue(words))).with("max", consumer.maxOffset(queue(words)));
        });
        shell.add("searchOffset", (words, answer) -> answer.with("position",
            PULLING.get(words.text("name")).searchOffset(queue(words), words.longNumber("time", 0))));
    }

    private static void addLite(ClientShell shell) {
        shell.add("lite", (words, answer) -> {
            DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(words.text("group"));
            consumer.setNamesrvAddr(words.text("nameServer"));
            consumer.setVipChannelEnabled(false);
            consumer.setInstanceName(words.text("name"));
            consumer.setAutoCommit(words.is("autoCommit"));
            consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf("CONSUME_FROM_" + words.text("from", "FIRST_OFFSET")));
            if (!words.is("assign")) {
                consumer.subscribe(words.text("topic"), words.text("tags", "*"));
            }
            consumer.start();
            if (words.is("assign")) {
                consumer.assign(consumer.fetchMessageQueues(words.text("topic")));
            }
            LITE.put(words.text("name"), consumer);
        });
        shell.add("closeLite", (words, answer) -> LITE.remove(words.text("name")).shutdown());
        shell.add("litePoll", (words, answer) -> {
            DefaultLitePullConsumer consumer = LITE.get(words.text("name"));
            List<MessageExt> found = new ArrayList<>();
            long deadline = System.currentTimeMillis() + words.longNumber("timeoutMs", 10_000);
            while (found.size() < words.number("count", 1) && System.currentTimeMillis() < deadline) {
                found.addAll(consumer.poll(500));
            }
            answer.with("messages", describe(found));
        });
        shell.add("liteSeek", (words, answer) -> {
            DefaultLitePullConsumer consumer = LITE.get(words.text("name"));
            for (MessageQueue queue : consumer.fetchMessageQueues(words.text("topic"))) {
                if (words.text("to").equals("begin")) {
                    consumer.seekToBegin(queue);
                } else if (words.text("to").equals("end")) {
                    consumer.seekToEnd(queue);
                } else {
                    consumer.seek(queue, words.longNumber("to", 0));
                }
            }
        });
        shell.add("liteCommit", (words, answer) -> LITE.get(words.text("name")).commitSync());
        shell.add("liteCommitted", (words, answer) -> {
            DefaultLitePullConsumer consumer = LITE.get(words.text("name"));
            Map<String, Object> committed = new LinkedHashMap<>();
            for (MessageQueue queue : consumer.fetchMessageQueues(words.text("topic"))) {
                committed.put(String.valueOf(queue.getQueueId()), consumer.committed(queue));
            }
            answer.with("committed", committed);
        });
        shell.add("liteSearch", (words, answer) ->
            answer.with("position", LITE.get(words.text("name")).offsetForTimestamp(queue(words), words.longNumber("time", 0L))));
        shell.add("liteQueues", (words, answer) ->
            answer.with("queues", queues(LITE.get(words.text("name")).fetchMessageQueues(words.text("topic")))));
    }

    static MessageQueue queue(Words words) {
        return new MessageQueue(words.text("topic"), words.text("broker"), words.number("queue", 0));
    }

    private static List<Object> queues(Collection<MessageQueue> found) {
        List<Object> queues = new ArrayList<>();
        for (MessageQueue queue : found) {
            queues.add(queue.getBrokerName() + ":" + queue.getQueueId());
        }
        return queues;
    }

    static List<Object> describe(Collection<MessageExt> found) throws Exception {
        List<Object> messages = new ArrayList<>();
        if (found != null) {
            for (MessageExt message : found) {
                messages.add(new JsonLine().with(message, message.getMsgId()).asMap());
            }
        }
        return messages;
    }
}
