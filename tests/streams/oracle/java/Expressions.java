import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;

/** The small functions of a document: predicates, changes of a value, new keys, expansions, aggregates. `f` names each. */
final class Expressions {
    private Expressions() {}

    static boolean holds(JsonNode where, Object key, Value value) {
        Object bare = key instanceof Windowed<?> windowed ? windowed.key() : key;
        return switch (where.get("f").asText()) {
            case "n>" -> value != null && value.n() > where.get("c").asLong();
            case "n%" -> value != null && remainder(where, value) == where.get("r").asLong();
            case "tag=" -> value != null && value.tag().equals(where.get("c").asText());
            case "key=" -> where.get("c").asText().equals(bare);
            case "keyed" -> bare != null;
            case "null" -> value == null;
            case "some" -> value != null;
            default -> throw unknown(where);
        };
    }

    static Value changed(JsonNode change, Value value) {
        String f = change.get("f").asText();
        if (f.equals("default")) {
            return value != null ? value : new Value(change.get("tag").asText(), change.get("n").asLong());
        }
        if (value == null) {
            return null;
        }
        return switch (f) {
            case "add" -> new Value(value.tag(), value.n() + change.get("c").asLong());
            case "tag" -> new Value(value.tag() + change.get("c").asText(), value.n());
            case "drop" -> remainder(change, value) == change.get("r").asLong() ? null : value;
            default -> throw unknown(change);
        };
    }

    static Object keyed(JsonNode by, Object key, Value value) {
        return switch (by.get("f").asText()) {
            case "key" -> key;
            case "const" -> by.get("c").asText();
            case "suffix" -> key == null ? null : key + by.get("c").asText();
            case "tag" -> value == null ? null : value.tag();
            case "tag unless" -> value == null || value.tag().equals(by.get("c").asText()) ? null : value.tag();
            case "n%" -> value == null ? null : Long.toString(remainder(by, value));
            default -> throw unknown(by);
        };
    }

    static List<KeyValue<Object, Value>> expanded(JsonNode expand, Object key, Value value) {
        List<KeyValue<Object, Value>> records = new ArrayList<>();
        if (value == null) {
            return records;
        }
        switch (expand.get("f").asText()) {
            case "repeat" -> {
                for (long i = 0; i < remainder(expand, value); i++) {
                    records.add(KeyValue.pair(key, new Value(value.tag(), i)));
                }
            }
            case "keys" -> {
                records.add(KeyValue.pair(value.tag(), value));
                records.add(KeyValue.pair(key, value));
            }
            default -> throw unknown(expand);
        }
        return records;
    }

    /**
     * One more value into an aggregate: the rule for `n` and the rule for `tag`. `sign` is -1 to take one out. Windows and
     * cogroups hand null values to the aggregator: they change nothing.
     */
    static Value added(JsonNode rules, Value total, Value value, int sign) {
        if (value == null) {
            return total;
        }
        long n = switch (rules.get("n").asText()) {
            case "sum" -> total.n() + sign * value.n();
            case "count" -> total.n() + sign;
            case "min" -> Math.min(total.n(), value.n());
            case "max" -> Math.max(total.n(), value.n());
            case "first" -> total.n();
            case "last" -> value.n();
            default -> throw unknown(rules);
        };
        String tag = switch (rules.get("tag").asText()) {
            case "none" -> "";
            case "concat" -> total.tag() + value.tag();
            case "min" -> total.tag().compareTo(value.tag()) <= 0 ? total.tag() : value.tag();
            case "max" -> total.tag().compareTo(value.tag()) >= 0 ? total.tag() : value.tag();
            case "first" -> total.tag();
            case "last" -> value.tag();
            default -> throw unknown(rules);
        };
        return new Value(tag, n);
    }

    /** Two sessions that became one, the earlier one first: what `added` makes of both, but counts add up. */
    static Value merged(JsonNode rules, Value first, Value second) {
        Value both = added(rules, first, second, 1);
        return rules.get("n").asText().equals("count") ? new Value(both.tag(), first.n() + second.n()) : both;
    }

    private static long remainder(JsonNode node, Value value) {
        return Math.floorMod(value.n(), node.get("m").asLong());
    }

    private static IllegalArgumentException unknown(JsonNode node) {
        return new IllegalArgumentException("no such function: " + node);
    }
}
