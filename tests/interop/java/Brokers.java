import java.io.FileReader;
import java.io.Reader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Verbs of whole brokers inside this process, one after the other over different stores: a process for each store would
 * spend six seconds on itself. Their class is the one that Apache's start script runs; the name server is one for all.
 *
 * nameServerInside port | openBroker name conf | brokerQueue name topic queueId | storedQueue name topic queueId |
 * storedKeys name keys | closeBroker name
 */
final class Brokers {
    private static final int PULL_MESSAGES_MAX = 32;
    private static final int ROUTE_SECONDS_MAX = 20;
    private static final int KEY_MESSAGES_MAX = 64;
    private static final Map<String, Broker> OPEN = new ConcurrentHashMap<>();

    /** A broker, and the client that asks it. */
    private static final class Broker {
        final BrokerController controller;
        final DefaultMQPullConsumer consumer;

        Broker(BrokerController controller, DefaultMQPullConsumer consumer) {
            this.controller = controller;
            this.consumer = consumer;
        }

        MessageStore store() {
            return controller.getMessageStore();
        }
    }

    private Brokers() {
    }

    static void addTo(ClientShell shell) {
        shell.add("nameServerInside", (words, answer) -> startNameServer(words.number("port", 0)));
        shell.add("openBroker", Brokers::open);
        shell.add("brokerQueue", (words, answer) -> pullAll(broker(words), words, answer));
        shell.add("storedQueue", (words, answer) -> readAll(broker(words).store(), words, answer));
        shell.add("storedKeys", (words, answer) -> lookUp(broker(words).store(), words, answer));
        shell.add("closeBroker", (words, answer) -> {
            Broker broker = OPEN.remove(words.text("name"));
            broker.consumer.shutdown();
            broker.controller.shutdown();
        });
    }

    private static Broker broker(Words words) {
        return OPEN.get(words.text("name"));
    }

    private static void startNameServer(int port) throws Exception {
        // As the start scripts' classes do; without it a broker's registration is taken for one of version 3.0.
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(port);
        NamesrvController controller = new NamesrvController(new NamesrvConfig(), server);
        if (!controller.initialize()) {
            throw new IllegalStateException("the name server cannot be initialised");
        }
        controller.start();
    }

    private static void open(Words words, JsonLine answer) throws Exception {
        Properties given = new Properties();
        try (Reader reader = new FileReader(words.text("conf"))) {
            given.load(reader);
        }
        BrokerConfig broker = new BrokerConfig();
        NettyServerConfig server = new NettyServerConfig();
        NettyClientConfig client = new NettyClientConfig();
        MessageStoreConfig store = new MessageStoreConfig();
        for (Object config : new Object[] {broker, server, client, store}) {
            MixAll.properties2Object(given, config);
        }
        store.setHaListenPort(server.getListenPort() + 1);
        long started = System.nanoTime();
        BrokerController controller = new BrokerController(broker, server, client, store);
        if (!controller.initialize()) {
            controller.shutdown();
            throw new IllegalStateException("the broker cannot be initialised: its store did not load");
        }
        controller.start();
        answer.with("openMs", (System.nanoTime() - started) / 1_000_000);
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("interop_judge");
        consumer.setNamesrvAddr(broker.getNamesrvAddr());
        consumer.setVipChannelEnabled(false);
        consumer.setInstanceName(words.text("name"));
        consumer.start();
        OPEN.put(words.text("name"), new Broker(controller, consumer));
        answer.with("logMin", controller.getMessageStore().getMinPhyOffset())
            .with("logMax", controller.getMessageStore().getMaxPhyOffset());
    }

    /** Every message of a queue, through the official client and the broker's sockets. */
    private static void pullAll(Broker broker, Words words, JsonLine answer) throws Exception {
        String name = broker.controller.getBrokerConfig().getBrokerName();
        MessageQueue queue = new MessageQueue(words.text("topic"), name, words.number("queueId", 0));
        DefaultMQPullConsumer consumer = broker.consumer;
        waitForRoute(broker, queue.getTopic());
        long end = consumer.maxOffset(queue);
        long next = consumer.minOffset(queue);
        answer.with("min", next).with("max", end);
        List<Object> messages = new ArrayList<>();
        List<Object> gaps = new ArrayList<>();
        while (next < end) {
            PullResult pulled = consumer.pull(queue, "*", next, PULL_MESSAGES_MAX);
            if (pulled.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : pulled.getMsgFoundList()) {
                    messages.add(new JsonLine().with(message, ReadStore.offsetId(message)).asMap());
                }
            } else {
                gaps.add(next + " " + pulled.getPullStatus());
                if (pulled.getNextBeginOffset() <= next) {
                    break;
                }
            }
            next = pulled.getNextBeginOffset();
        }
        answer.with("messages", messages).with("gaps", gaps);
    }

    /**
     * The client learns the broker's address with a topic's route. Of a second broker in the process the name server
     * often knows nothing at first (why is not known), until the broker tells it again after ten seconds: here at once.
     */
    private static void waitForRoute(Broker broker, String topic) throws Exception {
        long deadline = System.nanoTime() + ROUTE_SECONDS_MAX * 1_000_000_000L;
        while (true) {
            try {
                for (MessageQueue queue : broker.consumer.fetchSubscribeMessageQueues(topic)) {
                    if (queue.getBrokerName().equals(broker.controller.getBrokerConfig().getBrokerName())) {
                        return;
                    }
                }
            } catch (MQClientException notYet) {
                if (System.nanoTime() > deadline) {
                    throw notYet;
                }
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("the name server knows the topic " + topic + " of other brokers only");
            }
            Thread.sleep(50);
            broker.controller.registerBrokerAll(true, false, true);
        }
    }

    /** Every message of a queue that nobody may pull, from the store itself. */
    private static void readAll(MessageStore store, Words words, JsonLine answer) throws Exception {
        String topic = words.text("topic");
        int queueId = words.number("queueId", 0);
        long end = store.getMaxOffsetInQueue(topic, queueId);
        long next = store.getMinOffsetInQueue(topic, queueId);
        answer.with("min", next).with("max", end);
        List<Object> messages = new ArrayList<>();
        List<Object> gaps = new ArrayList<>();
        while (next < end) {
            GetMessageResult found = store.getMessage("interop_judge", topic, queueId, next, PULL_MESSAGES_MAX, null);
            try {
                if (found.getMessageBufferList().isEmpty()) {
                    gaps.add(next + " " + found.getStatus());
                }
                for (ByteBuffer record : found.getMessageBufferList()) {
                    messages.add(describe(record));
                }
            } finally {
                found.release();
            }
            if (found.getNextBeginOffset() <= next) {
                break;
            }
            next = found.getNextBeginOffset();
        }
        answer.with("messages", messages).with("gaps", gaps);
    }

    /** For each line "topic TAB key" the places of the records that the index leads to. */
    private static void lookUp(MessageStore store, Words words, JsonLine answer) throws Exception {
        List<Object> all = new ArrayList<>();
        for (String line : words.text("keys").split("\n")) {
            String[] asked = line.split("\t");
            QueryMessageResult found = store.queryMessage(asked[0], asked[1], KEY_MESSAGES_MAX, 0, Long.MAX_VALUE);
            List<Object> places = new ArrayList<>();
            try {
                for (ByteBuffer record : found.getMessageBufferList()) {
                    places.add(MessageDecoder.decode(record.duplicate(), false).getCommitLogOffset());
                }
            } finally {
                found.release();
            }
            all.add(places);
        }
        answer.with("commitLogOffsets", all);
    }

    private static Map<String, Object> describe(ByteBuffer record) throws Exception {
        MessageExt message = MessageDecoder.decode(record.duplicate(), true, true);
        return message == null ? new HashMap<>() : new JsonLine().with(message, message.getMsgId()).asMap();
    }
}
