import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Properties;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Reads one document a line from standard input, runs it in Kafka's TopologyTestDriver with caches off, and answers with
 * one line: {"outputs": {topic: [[key, [tag, n] or null, timestamp in ms], ...]}} or {"error": text}.
 * The key of a windowed record is [key, start, end]. The one argument is a folder for state.
 */
public final class Oracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Oracle() {}

    public static void main(String[] arguments) throws IOException {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader documents = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = documents.readLine(); line != null; line = documents.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("outputs", run(JSON.readTree(line), arguments[0]));
            } catch (Exception problem) {
                answer.put("error", cause(problem).toString());
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
    }

    private static Throwable cause(Throwable problem) {
        return problem.getCause() == null ? problem : cause(problem.getCause());
    }

    private static ObjectNode run(JsonNode document, String directory) {
        Program program = new Program(document);
        ObjectNode outputs = JSON.createObjectNode();
        Properties settings = settings(directory, document.path("stores").asText());
        try (var driver = new TopologyTestDriver(program.builder.build(settings), settings, Instant.EPOCH)) {
            for (JsonNode input : document.get("inputs")) {
                String topic = input.get(0).asText();
                if (program.sources.contains(topic)) {
                    driver.createInputTopic(topic, new StringSerializer(), Value.SERDE.serializer())
                        .pipeInput(input.get(1).textValue(), Value.of(input.get(2)), input.get(3).asLong());
                }
            }
            for (String sink : program.sinks) {
                ArrayNode records = outputs.putArray(sink);
                var topic = driver.createOutputTopic(sink, new ByteArrayDeserializer(), Value.SERDE.deserializer());
                for (TestRecord<byte[], Value> record : topic.readRecordsToList()) {
                    records.add(written(record));
                }
            }
        }
        return outputs;
    }

    private static Properties settings(String directory, String stores) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "oracle");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "127.0.0.1:1");
        settings.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        settings.put(
            StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG,
            stores.equals("memory")
                ? BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class
                : BuiltInDslStoreSuppliers.RocksDBDslStoreSuppliers.class);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, DefaultSerde.class);
        // Kafka looks for results of outer joins that are due only once a second of wall-clock time: here, after every record.
        settings.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0L);
        return settings;
    }

    /** For nodes that lost their serde on the way. */
    public static final class DefaultSerde extends Serdes.WrapperSerde<Value> {
        public DefaultSerde() {
            super(Value.SERDE.serializer(), Value.SERDE.deserializer());
        }
    }

    private static ArrayNode written(TestRecord<byte[], Value> record) {
        ArrayNode written = JSON.createArrayNode();
        try {
            written.add(record.key() == null ? JSON.nullNode() : JSON.readTree(record.key()));
        } catch (IOException impossible) {
            throw new IllegalStateException(impossible);
        }
        Value value = record.value();
        if (value == null) {
            written.addNull();
        } else {
            written.addArray().add(value.tag()).add(value.n());
        }
        return written.add(record.timestamp());
    }

    static byte[] keyJson(Object key) {
        if (key == null) {
            return null;
        }
        try {
            if (key instanceof Windowed<?> windowed) {
                Object[] parts = {windowed.key(), windowed.window().start(), windowed.window().end()};
                return JSON.writeValueAsBytes(parts);
            }
            return JSON.writeValueAsBytes(key);
        } catch (JsonProcessingException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
