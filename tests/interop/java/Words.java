import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;

/** One command of the driver's protocol: a number, a verb, and words `name=value` with percent-encoded values, by tabs. */
final class Words {
    final String number;
    final String verb;
    private final Map<String, String> values = new LinkedHashMap<>();

    Words(String line) throws Exception {
        String[] parts = line.split("\t");
        number = parts[0];
        verb = parts[1];
        for (int i = 2; i < parts.length; i++) {
            int at = parts[i].indexOf('=');
            values.put(parts[i].substring(0, at), URLDecoder.decode(parts[i].substring(at + 1), StandardCharsets.UTF_8.name()));
        }
    }

    boolean has(String name) {
        return values.containsKey(name);
    }

    String text(String name) {
        if (!has(name)) {
            throw new IllegalArgumentException(verb + " needs " + name);
        }
        return values.get(name);
    }

    String text(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
        return has(name) ? Integer.parseInt(text(name)) : otherwise;
    }

    long longNumber(String name, long otherwise) {
        return has(name) ? Long.parseLong(text(name)) : otherwise;
    }

    boolean is(String name) {
        return "true".equals(values.get(name));
    }

    /** The words whose names begin so, without that beginning. */
    Map<String, String> below(String beginning) {
        Map<String, String> found = new LinkedHashMap<>();
        values.forEach((name, value) -> {
            if (name.startsWith(beginning)) {
                found.put(name.substring(beginning.length()), value);
            }
        });
        return found;
    }

    /** The body of message `index`: a text, or bytes by chance of `bytes` (of 1 to `bytesMax`), or lines that compress well. */
    byte[] body(int index) {
        if (has("body")) {
            return JsonLine.utf8(number("count", 1) > 1 ? text("body") + " " + index : text("body"));
        }
        Random random = new Random(longNumber("seed", 1) * 1_000_003 + index);
        byte[] body = new byte[has("bytesMax") ? 1 + random.nextInt(number("bytesMax", 1)) : number("bytes", 100)];
        if (is("compressible")) {
            for (int i = 0; i < body.length; i++) {
                body[i] = (byte) ("line of a report, again and again\n".charAt(i % 34) + (i % 5000 == 0 ? random.nextInt(5) : 0));
            }
        } else {
            random.nextBytes(body);
        }
        return body;
    }
}
