import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/** The one type of all values: a text and a number, neither of them null. Its SERDE is `n`, big endian, then `tag` as UTF-8. */
record Value(String tag, long n) {
    static final Value ZERO = new Value("", 0);
    static final Serde<Value> SERDE = Serdes.serdeFrom(
        (topic, value) -> value == null ? null : value.bytes(),
        (topic, bytes) -> bytes == null ? null : of(bytes));

    /** From `null` or `[tag, n]`. */
    static Value of(JsonNode node) {
        return node == null || node.isNull() ? null : new Value(node.get(0).asText(), node.get(1).asLong());
    }

    static Value of(byte[] bytes) {
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        long n = buffer.getLong();
        return new Value(StandardCharsets.UTF_8.decode(buffer).toString(), n);
    }

    byte[] bytes() {
        byte[] text = tag.getBytes(StandardCharsets.UTF_8);
        return ByteBuffer.allocate(Long.BYTES + text.length).putLong(n).put(text).array();
    }

    /** What every join makes: who is absent shows as "-" and as 0. */
    static Value joined(Value left, Value right) {
        String tags = (left == null ? "-" : left.tag) + "|" + (right == null ? "-" : right.tag);
        return new Value(tags, (left == null ? 0 : left.n) * 10 + (right == null ? 0 : right.n));
    }
}
