import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/**
 * Verbs that only clients of 5.x have: recall, pop, ackPopped. The last two call what Apache's proxy calls: its push
 * consumer never pops in order, the proxy's consumers do.
 */
final class Since5 {
    private static final long SECONDS_MAX = 30;

    private Since5() {
    }

    static void addTo(ClientShell shell) {
        shell.add("recall", (words, answer) -> answer.with("msgId",
            Producers.started(words.text("producer")).recallMessage(words.text("topic"), words.text("handle"))));
        shell.add("pop", Since5::pop);
        shell.add("ackPopped", Since5::ack);
    }

    private static MQClientAPIImpl api(Words words) {
        return Producers.started(words.text("producer")).getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
    }

    private static void pop(Words words, JsonLine answer) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(words.text("group"));
        header.setTopic(words.text("topic"));
        header.setQueueId(words.number("queue", -1));
        header.setMaxMsgNums(words.number("max", 32));
        header.setInvisibleTime(words.longNumber("invisibleMs", 10_000));
        header.setPollTime(words.longNumber("pollMs", 1_000));
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(0);
        header.setExpType(ExpressionType.TAG);
        header.setExp("*");
        header.setOrder(words.is("order"));
        CompletableFuture<PopResult> future = new CompletableFuture<>();
        api(words).popMessageAsync(words.text("broker"), words.text("brokerAddress"), header, 20_000, new PopCallback() {
            @Override
            public void onSuccess(PopResult result) {
                future.complete(result);
            }

            @Override
            public void onException(Throwable failure) {
                future.completeExceptionally(failure);
            }
        });
        PopResult result = future.get(SECONDS_MAX, TimeUnit.SECONDS);
        List<Object> found = new ArrayList<>();
        if (result.getMsgFoundList() != null) {
            for (MessageExt message : result.getMsgFoundList()) {
                found.add(new JsonLine().with("body", new String(message.getBody(), java.nio.charset.StandardCharsets.UTF_8))
                    .with("queueId", message.getQueueId()).with("queueOffset", message.getQueueOffset())
                    .with("reconsumeTimes", message.getReconsumeTimes())
                    .with("receipt", message.getProperty(MessageConst.PROPERTY_POP_CK)).asMap());
            }
        }
        answer.with("status", result.getPopStatus().name()).with("messages", found);
    }

    private static void ack(Words words, JsonLine answer) throws Exception {
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setConsumerGroup(words.text("group"));
        header.setTopic(words.text("topic"));
        header.setQueueId(words.number("queue", 0));
        header.setOffset(words.longNumber("offset", 0));
        header.setExtraInfo(words.text("receipt"));
        CompletableFuture<AckResult> future = new CompletableFuture<>();
        api(words).ackMessageAsync(words.text("brokerAddress"), 20_000, new AckCallback() {
            @Override
            public void onSuccess(AckResult result) {
                future.complete(result);
            }

            @Override
            public void onException(Throwable failure) {
                future.completeExceptionally(failure);
            }
        }, header);
        answer.with("status", future.get(SECONDS_MAX, TimeUnit.SECONDS).getStatus().name());
    }
}
