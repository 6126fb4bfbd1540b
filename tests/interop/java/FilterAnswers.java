import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * What the broker's SQL92 filter says. Standard input: a line `P hex` for each set of properties (as they are stored),
 * then a line `E hex` for each expression. Standard output: one line an expression, a letter a set: t(rue), f(alse),
 * n(ull), x (an exception); or `refused`.
 */
final class FilterAnswers {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        List<Map<String, String>> sets = new ArrayList<>();
        String line;
        while ((line = in.readLine()) != null) {
            String text = text(line.substring(1).trim());
            if (line.charAt(0) == 'P') {
                sets.add(MessageDecoder.string2messageProperties(text));
            } else {
                System.out.println(answers(text, sets));
            }
        }
        System.out.flush();
    }

    private static String answers(String text, List<Map<String, String>> sets) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        } catch (Throwable refused) {
            return "refused";
        }
        StringBuilder letters = new StringBuilder();
        for (Map<String, String> properties : sets) {
            letters.append(letter(expression, properties));
        }
        return letters.toString();
    }

    private static char letter(Expression expression, Map<String, String> properties) {
        try {
            Object value = expression.evaluate(new Properties(properties));
            return value == null ? 'n' : Boolean.TRUE.equals(value) ? 't' : Boolean.FALSE.equals(value) ? 'f' : '?';
        } catch (Throwable error) {
            return 'x';
        }
    }

    private static String text(String hex) {
        byte[] bytes = new byte[hex.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static final class Properties implements EvaluationContext {
        private final Map<String, String> values;

        Properties(Map<String, String> values) {
            this.values = values;
        }

        @Override
        public Object get(String name) {
            return values.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return new LinkedHashMap<>(values);
        }
    }
}
