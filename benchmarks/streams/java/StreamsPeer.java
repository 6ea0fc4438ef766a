import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * The programs of the benchmark in Kafka Streams. Standard input has commands, a line each, and each is answered with a line:
 * "start PROGRAM GUARANTEE APPLICATION COMMIT_MS INPUT[,INPUT] OUTPUT" with "ready", "stop" with "stopped".
 */
public final class StreamsPeer {
    private static final Map<String, Integer> INPUTS =
            Map.of("words", 1, "windows", 1, "stream-table", 2, "table-table", 2, "stateless", 1);

    public static void main(String[] arguments) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        KafkaStreams running = null;
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.trim().split(" ");
            if (running != null) {
                running.close(Duration.ofSeconds(30));
                running = null;
            }
            if (words[0].equals("start")) {
                running = started(arguments[0], arguments[1], words);
                System.out.println("ready");
            } else {
                System.out.println("stopped");
            }
        }
        if (running != null) {
            running.close(Duration.ofSeconds(10));
        }
    }

    private static KafkaStreams started(String servers, String directory, String[] words) throws Exception {
        Properties properties = new Properties();
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, words[2]);
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, words[3]);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, words[4]);
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, "2");
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.mainConsumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        properties.put(StreamsConfig.mainConsumerPrefix(ConsumerConfig.ISOLATION_LEVEL_CONFIG), "read_committed");
        KafkaStreams streams = new KafkaStreams(topology(words[1], words[5].split(","), words[6]), properties);
        CountDownLatch runs = new CountDownLatch(1);
        streams.setStateListener((state, before) -> {
            if (state == KafkaStreams.State.RUNNING) {
                runs.countDown();
            }
        });
        streams.start();
        runs.await();
        return streams;
    }

    private static Topology topology(String program, String[] inputs, String output) {
        if (INPUTS.get(program) != inputs.length) {
            throw new IllegalArgumentException(program + " has " + INPUTS.get(program) + " inputs");
        }
        StreamsBuilder builder = new StreamsBuilder();
        switch (program) {
            case "words" -> builder.<String, String>stream(inputs[0])
                    .flatMapValues(line -> Arrays.asList(line.split(" ")))
                    .groupBy((key, word) -> word)
                    .count()
                    .toStream()
                    .mapValues(count -> Long.toString(count))
                    .to(output);
            case "windows" -> builder.<String, String>stream(inputs[0])
                    .groupByKey()
                    .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofMinutes(10)))
                    .count()
                    .toStream((window, count) -> window.key() + "@" + window.window().start())
                    .mapValues(count -> Long.toString(count))
                    .to(output);
            case "stream-table" -> builder.<String, String>stream(inputs[0])
                    .join(builder.<String, String>table(inputs[1]), (item, name) -> item + ":" + name)
                    .to(output);
            case "table-table" -> builder.<String, String>table(inputs[0])
                    .join(builder.<String, String>table(inputs[1]), (left, right) -> left + "|" + right)
                    .toStream()
                    .to(output);
            default -> builder.<String, String>stream(inputs[0])
                    .filter((key, value) -> !value.startsWith("no"))
                    .mapValues(value -> value.toUpperCase())
                    .to(output);
        }
        return builder.build();
    }
}
