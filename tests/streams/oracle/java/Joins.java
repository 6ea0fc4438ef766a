import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.state.KeyValueStore;

/** Joins of streams and tables. `how` is inner, left or outer. */
final class Joins {
    private Joins() {}

    static KStream<Object, Value> streams(JsonNode node, KStream<Object, Value> left, KStream<Object, Value> right) {
        JoinWindows within = JoinWindows
            .ofTimeDifferenceAndGrace(Windowing.ms(node, "before"), Windowing.ms(node, "grace"))
            .before(Windowing.ms(node, "before"))
            .after(Windowing.ms(node, "after"));
        StreamJoined<Object, Value, Value> stored = StreamJoined.with(Program.KEY, Value.SERDE, Value.SERDE);
        return switch (how(node)) {
            case "left" -> left.leftJoin(right, Value::joined, within, stored);
            case "outer" -> left.outerJoin(right, Value::joined, within, stored);
            default -> left.join(right, Value::joined, within, stored);
        };
    }

    static KStream<Object, Value> streamTable(JsonNode node, KStream<Object, Value> left, KTable<Object, Value> right) {
        Joined<Object, Value, Value> stored = Joined.with(Program.KEY, Value.SERDE, Value.SERDE);
        if (node.has("grace")) {
            stored = stored.withGracePeriod(Windowing.ms(node, "grace"));
        }
        return how(node).equals("left")
            ? left.leftJoin(right, Value::joined, stored)
            : left.join(right, Value::joined, stored);
    }

    static KStream<Object, Value> streamGlobal(
            JsonNode node, KStream<Object, Value> left, GlobalKTable<Object, Value> right) {
        JsonNode by = node.get("by");
        return how(node).equals("left")
            ? left.leftJoin(right, (key, value) -> Expressions.keyed(by, key, value), Value::joined)
            : left.join(right, (key, value) -> Expressions.keyed(by, key, value), Value::joined);
    }

    static KTable<Object, Value> tables(JsonNode node, KTable<Object, Value> left, KTable<Object, Value> right) {
        return switch (how(node)) {
            case "left" -> left.leftJoin(right, Value::joined);
            case "outer" -> left.outerJoin(right, Value::joined);
            default -> left.join(right, Value::joined);
        };
    }

    static KTable<Object, Value> foreignKey(JsonNode node, KTable<Object, Value> left, KTable<Object, Value> right) {
        JsonNode by = node.get("by");
        Materialized<Object, Value, KeyValueStore<Bytes, byte[]>> stored = Materialized.with(Program.KEY, Value.SERDE);
        return how(node).equals("left")
            ? left.leftJoin(right, value -> Expressions.keyed(by, null, value), Value::joined, stored)
            : left.join(right, value -> Expressions.keyed(by, null, value), Value::joined, stored);
    }

    private static String how(JsonNode node) {
        return node.get("how").asText();
    }
}
