import java.io.PrintStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageExt;

/** One JSON object on one line of standard output, pure ASCII; under the names that `orbitlog dump --json` uses. */
final class JsonLine {
    private static final PrintStream OUT = System.out;
    private final Map<String, Object> fields = new LinkedHashMap<>();

    JsonLine with(String name, Object value) {
        fields.put(name, value);
        return this;
    }

    void print() {
        StringBuilder line = new StringBuilder();
        append(line, fields);
        synchronized (OUT) {
            OUT.println(line);
            OUT.flush();
        }
    }

    Map<String, Object> asMap() {
        return fields;
    }

    JsonLine with(MessageExt message, String offsetMessageId) throws Exception {
        // A record without any, read from a store, has no table of them.
        Map<String, String> properties = message.getProperties() == null ? new TreeMap<>() : new TreeMap<>(message.getProperties());
        // Added by the pulling client, not stored.
        properties.keySet().removeAll(java.util.Arrays.asList("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"));
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        return with("topic", message.getTopic())
            .with("queueId", message.getQueueId())
            .with("queueOffset", message.getQueueOffset())
            .with("commitLogOffset", message.getCommitLogOffset())
            .with("storeSize", message.getStoreSize())
            .with("msgId", message.getMsgId())
            .with("offsetMsgId", offsetMessageId)
            .with("keys", message.getKeys())
            .with("tags", message.getTags())
            .with("properties", properties)
            .with("bodyCRC", message.getBodyCRC())
            .with("bodySha256", sha256(body))
            .with("bodyLength", body.length)
            .with("sysFlag", message.getSysFlag())
            .with("flag", message.getFlag())
            .with("bornTimestamp", message.getBornTimestamp())
            .with("storeTimestamp", message.getStoreTimestamp())
            .with("bornHost", host(message.getBornHost()))
            .with("storeHost", host(message.getStoreHost()))
            .with("reconsumeTimes", message.getReconsumeTimes())
            .with("preparedTransactionOffset", message.getPreparedTransactionOffset());
    }

    static String sha256(byte[] content) throws Exception {
        StringBuilder digits = new StringBuilder();
        for (byte one : MessageDigest.getInstance("SHA-256").digest(content)) {
            digits.append(String.format("%02x", one));
        }
        return digits.toString();
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** Address bytes in hexadecimal and the port: no two spellings of one IPv6 address. */
    private static String host(SocketAddress given) {
        InetSocketAddress socket = (InetSocketAddress) given;
        InetAddress address = socket.getAddress();
        StringBuilder digits = new StringBuilder();
        for (byte one : address.getAddress()) {
            digits.append(String.format("%02x", one));
        }
        return digits + ":" + socket.getPort();
    }

    private static void append(StringBuilder line, Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            line.append(value);
        } else if (value instanceof Map) {
            char before = '{';
            line.append(((Map<?, ?>) value).isEmpty() ? "{" : "");
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                line.append(before);
                quote(line, String.valueOf(entry.getKey()));
                line.append(':');
                append(line, entry.getValue());
                before = ',';
            }
            line.append('}');
        } else if (value instanceof Collection) {
            char before = '[';
            line.append(((Collection<?>) value).isEmpty() ? "[" : "");
            for (Object item : (Collection<?>) value) {
                line.append(before);
                append(line, item);
                before = ',';
            }
            line.append(']');
        } else {
            quote(line, String.valueOf(value));
        }
    }

    private static void quote(StringBuilder line, String text) {
        line.append('"');
        for (char unit : text.toCharArray()) {
            if (unit == '"' || unit == '\\') {
                line.append('\\').append(unit);
            } else if (unit < 0x20 || unit > 0x7e) {
                line.append(String.format("\\u%04x", (int) unit));
            } else {
                line.append(unit);
            }
        }
        line.append('"');
    }
}
