import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** Builds the topology of one document: its nodes, in the order in which they stand, become streams and tables. */
final class Program {
    @SuppressWarnings("unchecked")
    static final Serde<Object> KEY = (Serde<Object>) (Serde<?>) Serdes.String();

    /** Keys of outputs as JSON, those of windows with start and end; they are read as bytes. */
    private static final Serde<Object> OUTPUT_KEY = Serdes.serdeFrom(
        (topic, key) -> Oracle.keyJson(key),
        (topic, bytes) -> {
            throw new UnsupportedOperationException("outputs are not read back");
        });

    final StreamsBuilder builder = new StreamsBuilder();
    final Set<String> sources = new LinkedHashSet<>();
    final List<String> sinks = new ArrayList<>();
    private final Map<String, Object> made = new HashMap<>();

    Program(JsonNode document) {
        for (JsonNode node : document.get("nodes")) {
            Object result = make(node);
            if (result != null) {
                made.put(node.get("id").asText(), result);
            }
        }
    }

    private Object make(JsonNode node) {
        String op = node.get("op").asText();
        return switch (op) {
            case "stream" -> builder.stream(source(node), Consumed.with(KEY, Value.SERDE));
            case "table" -> table(node);
            case "global" -> builder.globalTable(source(node), Consumed.with(KEY, Value.SERDE));
            case "to" -> sink(node);
            case "filter" -> filtered(node);
            case "mapValues" -> changed(node);
            case "suppress" -> suppressed(node);
            case "toStream" -> tableOf(node, "in").toStream();
            case "regroup" -> regrouped(node);
            case "aggregate" -> Windowing.aggregate(grouped(streamOf(node, "in"), node.get("by"), null), node);
            case "cogroup" -> cogrouped(node);
            case "joinStreams" -> Joins.streams(node, streamOf(node, "left"), streamOf(node, "right"));
            case "joinTable" -> Joins.streamTable(node, streamOf(node, "left"), tableOf(node, "right"));
            case "joinGlobal" -> Joins.streamGlobal(node, streamOf(node, "left"), globalOf(node, "right"));
            case "joinTables" -> Joins.tables(node, tableOf(node, "left"), tableOf(node, "right"));
            case "joinForeign" -> Joins.foreignKey(node, tableOf(node, "left"), tableOf(node, "right"));
            default -> stateless(op, node);
        };
    }

    private Object stateless(String op, JsonNode node) {
        KStream<Object, Value> in = streamOf(node, "in");
        JsonNode by = node.get("by");
        return switch (op) {
            case "selectKey" -> in.selectKey((key, value) -> Expressions.keyed(by, key, value));
            case "map" -> in.map((key, value) ->
                KeyValue.pair(Expressions.keyed(by, key, value), Expressions.changed(node.get("change"), value)));
            case "flatMap" -> in.flatMap((key, value) -> Expressions.expanded(node.get("expand"), key, value));
            case "flatMapValues" -> in.flatMapValues(value ->
                Expressions.expanded(node.get("expand"), null, value).stream().map(pair -> pair.value).toList());
            case "merge" -> in.merge(streamOf(node, "right"));
            case "branch" -> branch(node, in);
            case "repartition" -> in.repartition(Repartitioned.with(KEY, Value.SERDE));
            case "toTable" -> in.toTable(Materialized.with(KEY, Value.SERDE));
            case "unwindow" -> in.selectKey((key, value) -> ((Windowed<?>) key).key());
            default -> throw new IllegalArgumentException("no such operator: " + op);
        };
    }

    private String source(JsonNode node) {
        String topic = node.get("topic").asText();
        sources.add(topic);
        return topic;
    }

    private KTable<Object, Value> table(JsonNode node) {
        String topic = source(node);
        Consumed<Object, Value> consumed = Consumed.with(KEY, Value.SERDE);
        if (!node.has("versioned")) {
            return builder.table(topic, consumed);
        }
        Duration history = Windowing.ms(node, "versioned");
        return builder.table(
            topic,
            consumed,
            Materialized.<Object, Value>as(Stores.persistentVersionedKeyValueStore(topic + "-versions", history))
                .withKeySerde(KEY)
                .withValueSerde(Value.SERDE));
    }

    private Object filtered(JsonNode node) {
        JsonNode where = node.get("where");
        boolean not = node.path("not").asBoolean();
        if (made.get(node.get("in").asText()) instanceof KStream<?, ?>) {
            KStream<Object, Value> in = streamOf(node, "in");
            return not
                ? in.filterNot((key, value) -> Expressions.holds(where, key, value))
                : in.filter((key, value) -> Expressions.holds(where, key, value));
        }
        KTable<Object, Value> in = tableOf(node, "in");
        return not
            ? in.filterNot((key, value) -> Expressions.holds(where, key, value))
            : in.filter((key, value) -> Expressions.holds(where, key, value));
    }

    private Object changed(JsonNode node) {
        JsonNode change = node.get("change");
        if (made.get(node.get("in").asText()) instanceof KStream<?, ?>) {
            return streamOf(node, "in").mapValues(value -> Expressions.changed(change, value));
        }
        return tableOf(node, "in").mapValues(value -> Expressions.changed(change, value));
    }

    /**
     * The same table with a store of its own. Kafka says of the first aggregate of a key that it replaces the initial one, and a
     * further groupBy takes that back though nobody added it; from here on, what a new key replaces is nothing.
     */
    static KTable<Object, Value> kept(JsonNode node, KTable<Object, Value> table) {
        return table.filter((key, value) -> true, stored(node));
    }

    private static Materialized<Object, Value, KeyValueStore<Bytes, byte[]>> stored(JsonNode node) {
        return Materialized.<Object, Value, KeyValueStore<Bytes, byte[]>>as(node.get("id").asText() + "-store")
            .withKeySerde(KEY)
            .withValueSerde(Value.SERDE);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private Object suppressed(JsonNode node) {
        KTable in = tableOf(node, "in");
        return node.has("limit")
            ? in.suppress(Suppressed.untilTimeLimit(
                Windowing.ms(node, "limit"), Suppressed.BufferConfig.unbounded()))
            : in.suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()));
    }

    private static KStream<Object, Value> branch(JsonNode node, KStream<Object, Value> in) {
        String prefix = node.get("id").asText() + "-";
        var split = in.split(Named.as(prefix));
        int index = 0;
        for (JsonNode where : node.get("where")) {
            split = split.branch(
                (key, value) -> Expressions.holds(where, key, value), Branched.as(Integer.toString(index++)));
        }
        return split.defaultBranch(Branched.as(Integer.toString(index))).get(prefix + node.get("take").asText());
    }

    private static KGroupedStream<Object, Value> grouped(KStream<Object, Value> in, JsonNode by, String name) {
        Grouped<Object, Value> with = Grouped.with(name, KEY, Value.SERDE);
        return by == null || by.isNull()
            ? in.groupByKey(with)
            : in.groupBy((key, value) -> Expressions.keyed(by, key, value), with);
    }

    /** Every stream of a cogroup brings a rule of its own. */
    private Object cogrouped(JsonNode node) {
        CogroupedKStream<Object, Value> all = null;
        for (int i = 0; i < node.get("in").size(); i++) {
            JsonNode agg = node.get("aggs").get(i);
            String name = node.get("id").asText() + "-" + i; // without a name, two that need repartitioning clash
            var grouped = grouped(streamOf(node.get("in").get(i)), null, name);
            all = all == null
                ? grouped.cogroup((key, value, total) -> Expressions.added(agg, total, value, 1))
                : all.cogroup(grouped, (key, value, total) -> Expressions.added(agg, total, value, 1));
        }
        JsonNode window = node.get("window");
        if (window == null || window.isNull()) {
            return kept(node, all.aggregate(() -> Value.ZERO, Materialized.with(KEY, Value.SERDE)));
        }
        return switch (window.get("kind").asText()) {
            case "session" -> all.windowedBy(Windowing.sessionWindows(window)).aggregate(
                () -> Value.ZERO,
                (key, first, second) -> new Value(first.tag() + second.tag(), first.n() + second.n()),
                Materialized.with(KEY, Value.SERDE));
            case "sliding" -> all.windowedBy(Windowing.slidingWindows(window))
                .aggregate(() -> Value.ZERO, Materialized.with(KEY, Value.SERDE));
            default -> all.windowedBy(Windowing.timeWindows(window))
                .aggregate(() -> Value.ZERO, Materialized.with(KEY, Value.SERDE));
        };
    }

    private KTable<Object, Value> regrouped(JsonNode node) {
        JsonNode agg = node.get("agg");
        KGroupedTable<Object, Value> grouped = tableOf(node, "in").groupBy(
            (key, value) -> KeyValue.pair(Expressions.keyed(node.get("by"), key, value), value),
            Grouped.with(KEY, Value.SERDE));
        if (agg.get("kind").asText().equals("count")) {
            return Windowing.counted(grouped.count(Materialized.with(KEY, Serdes.Long())));
        }
        return grouped.aggregate(
            () -> Value.ZERO,
            (key, value, total) -> Expressions.added(agg, total, value, 1),
            (key, value, total) -> Expressions.added(agg, total, value, -1),
            Materialized.with(KEY, Value.SERDE));
    }

    private Object sink(JsonNode node) {
        String topic = node.get("topic").asText();
        sinks.add(topic);
        KStream<Object, Value> stream = made.get(node.get("in").asText()) instanceof KTable<?, ?>
            ? tableOf(node, "in").toStream()
            : streamOf(node, "in");
        stream.to(topic, Produced.with(OUTPUT_KEY, Value.SERDE));
        return null;
    }

    private KStream<Object, Value> streamOf(JsonNode node, String field) {
        return streamOf(node.get(field));
    }

    @SuppressWarnings("unchecked")
    private KStream<Object, Value> streamOf(JsonNode name) {
        return (KStream<Object, Value>) made.get(name.asText());
    }

    @SuppressWarnings("unchecked")
    private KTable<Object, Value> tableOf(JsonNode node, String field) {
        return (KTable<Object, Value>) made.get(node.get(field).asText());
    }

    @SuppressWarnings("unchecked")
    private GlobalKTable<Object, Value> globalOf(JsonNode node, String field) {
        return (GlobalKTable<Object, Value>) made.get(node.get(field).asText());
    }
}
