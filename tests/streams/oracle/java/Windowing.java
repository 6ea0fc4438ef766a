import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/** Aggregates of a grouped stream: without windows, and in tumbling, hopping, sliding and session windows. */
final class Windowing {
    private Windowing() {}

    static Object aggregate(KGroupedStream<Object, Value> grouped, JsonNode node) {
        JsonNode window = node.get("window");
        JsonNode agg = node.get("agg");
        if (window == null || window.isNull()) {
            return Program.kept(node, plain(grouped, agg));
        }
        return switch (window.get("kind").asText()) {
            case "session" -> sessions(grouped.windowedBy(sessionWindows(window)), agg);
            case "sliding" -> windows(grouped.windowedBy(slidingWindows(window)), agg);
            default -> windows(grouped.windowedBy(timeWindows(window)), agg);
        };
    }

    static TimeWindows timeWindows(JsonNode window) {
        TimeWindows windows = TimeWindows.ofSizeAndGrace(ms(window, "size"), ms(window, "grace"));
        return window.has("advance") ? windows.advanceBy(ms(window, "advance")) : windows;
    }

    static SlidingWindows slidingWindows(JsonNode window) {
        return SlidingWindows.ofTimeDifferenceAndGrace(ms(window, "difference"), ms(window, "grace"));
    }

    static SessionWindows sessionWindows(JsonNode window) {
        return SessionWindows.ofInactivityGapAndGrace(ms(window, "gap"), ms(window, "grace"));
    }

    static Duration ms(JsonNode node, String field) {
        return Duration.ofMillis(node.get(field).asLong());
    }

    private static KTable<Object, Value> plain(KGroupedStream<Object, Value> grouped, JsonNode agg) {
        Materialized<Object, Value, KeyValueStore<Bytes, byte[]>> stored = Materialized.with(Program.KEY, Value.SERDE);
        return switch (agg.get("kind").asText()) {
            case "count" -> counted(grouped.count(Materialized.with(Program.KEY, Serdes.Long())));
            case "reduce" -> grouped.reduce((total, value) -> Expressions.added(agg, total, value, 1), stored);
            default -> grouped.aggregate(
                () -> Value.ZERO, (key, value, total) -> Expressions.added(agg, total, value, 1), stored);
        };
    }

    private static KTable<?, Value> windows(TimeWindowedKStream<Object, Value> windowed, JsonNode agg) {
        Materialized<Object, Value, WindowStore<Bytes, byte[]>> stored = Materialized.with(Program.KEY, Value.SERDE);
        return switch (agg.get("kind").asText()) {
            case "count" -> counted(windowed.count(Materialized.with(Program.KEY, Serdes.Long())));
            case "reduce" -> windowed.reduce((total, value) -> Expressions.added(agg, total, value, 1), stored);
            default -> windowed.aggregate(
                () -> Value.ZERO, (key, value, total) -> Expressions.added(agg, total, value, 1), stored);
        };
    }

    private static KTable<?, Value> sessions(SessionWindowedKStream<Object, Value> windowed, JsonNode agg) {
        Materialized<Object, Value, SessionStore<Bytes, byte[]>> stored = Materialized.with(Program.KEY, Value.SERDE);
        return switch (agg.get("kind").asText()) {
            case "count" -> counted(windowed.count(Materialized.with(Program.KEY, Serdes.Long())));
            case "reduce" -> windowed.reduce((total, value) -> Expressions.added(agg, total, value, 1), stored);
            default -> windowed.aggregate(
                () -> Value.ZERO,
                (key, value, total) -> Expressions.added(agg, total, value, 1),
                (key, first, second) -> Expressions.merged(agg, first, second),
                stored);
        };
    }

    static <K> KTable<K, Value> counted(KTable<K, Long> counts) {
        return counts.mapValues(count -> new Value("#", count));
    }
}
