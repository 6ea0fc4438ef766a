// Subscribes by a pattern that the broker resolves (KIP-848), and says what it is given.
// Arguments: bootstrap servers, group, group.instance.id, pattern, how many partitions to wait for, seconds to wait; and perhaps a
// file that says how to log in.
import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.errors.InvalidRegularExpression;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class PatternConsumer {
    public static void main(String[] arguments) throws IOException {
        Properties settings = new Properties();
        if (arguments.length > 6) {
            try (Reader file = Files.newBufferedReader(Path.of(arguments[6]))) {
                settings.load(file);
            }
        }
        settings.putAll(Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[1],
            "group.instance.id", arguments[2],
            "group.protocol", "consumer",
            "key.deserializer", ByteArrayDeserializer.class,
            "value.deserializer", ByteArrayDeserializer.class));
        int wanted = Integer.parseInt(arguments[4]);
        long deadline = System.nanoTime() + Long.parseLong(arguments[5]) * 1_000_000_000L;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(new SubscriptionPattern(arguments[3]));
            while (consumer.assignment().size() != wanted && System.nanoTime() < deadline) {
                consumer.poll(Duration.ofMillis(50));
            }
            TreeSet<String> places = new TreeSet<>();
            consumer.assignment().forEach(place -> places.add(place.toString()));
            System.out.println("assigned " + String.join(" ", places));
        } catch (InvalidRegularExpression refused) {
            System.out.println("refused");
        }
    }
}
