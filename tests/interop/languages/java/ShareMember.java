// A share consumer that does as it is told: `java ShareMember BOOTSTRAP TOPIC GROUP SETTINGS`. It reads a command in JSON from each
// line of its input, and prints the outcome as a line of JSON. The end of the input closes it.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ShareMember {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Map<Long, ConsumerRecord<String, String>> polled = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        JSON.readTree(arguments[3]).properties().forEach(entry -> settings.put(entry.getKey(), entry.getValue().asText()));
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[2]);
        settings.put("fetch.max.wait.ms", "100");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(arguments[1]));
            for (String line = commands.readLine(); line != null; line = commands.readLine()) {
                System.out.println(JSON.writeValueAsString(outcome(consumer, JSON.readTree(line))));
            }
        }
    }

    static Object outcome(KafkaShareConsumer<String, String> consumer, JsonNode command) {
        try {
            return switch (command.get("do").asText()) {
                case "poll" -> poll(consumer, command.get("ms").asLong());
                case "acknowledge" -> acknowledge(consumer, command);
                case "commit" -> commit(consumer);
                default -> throw new IllegalArgumentException(command.toString());
            };
        } catch (IllegalStateException refused) {
            return Map.of("refused", "IllegalStateException");
        }
    }

    /** The records of the first poll that returns some: offset, value and delivery count of each. */
    static Object poll(KafkaShareConsumer<String, String> consumer, long ms) {
        long end = System.currentTimeMillis() + ms;
        List<List<Object>> records = new ArrayList<>();
        do {
            ConsumerRecords<String, String> batch = consumer.poll(Duration.ofMillis(200));
            polled.clear();
            for (ConsumerRecord<String, String> record : batch) {
                polled.put(record.offset(), record);
                records.add(List.of(record.offset(), record.value(), record.deliveryCount().orElse((short) -1)));
            }
        } while (records.isEmpty() && System.currentTimeMillis() < end);
        return Map.of("records", records);
    }

    static Object acknowledge(KafkaShareConsumer<String, String> consumer, JsonNode command) {
        AcknowledgeType type = AcknowledgeType.valueOf(command.get("type").asText());
        for (JsonNode offset : command.get("offsets")) consumer.acknowledge(polled.get(offset.asLong()), type);
        return Map.of();
    }

    /** The names of the errors with which brokers refused acknowledgements. */
    static Object commit(KafkaShareConsumer<String, String> consumer) {
        List<String> errors = new ArrayList<>();
        for (Map.Entry<TopicIdPartition, Optional<KafkaException>> entry : consumer.commitSync().entrySet()) {
            entry.getValue().ifPresent(error -> errors.add(
                error instanceof ApiException refusal ? Errors.forException(refusal).name() : error.toString()));
        }
        return Map.of("errors", errors);
    }
}
