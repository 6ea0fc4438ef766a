// A Kafka Streams application that counts words, joins them with a table, and counts them by windows of ten seconds, all exactly
// once and in a streams group. It runs until it is killed.
// Arguments: bootstrap servers, application id, state directory, directory of the holds (Hold.java).
// Topics: lines (number -> words) and kinds (word -> kind), with equally many partitions; counts, joined and windowed.
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.TimeWindows;

public class StreamsJob {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[2]);
        settings.put("group.protocol", "streams");
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", "100");
        settings.put("statestore.cache.max.bytes", "0"); // so that every word leaves one record in each sink
        settings.put("auto.offset.reset", "earliest");
        settings.put("producer.transaction.timeout.ms", "6000"); // what was killed holds the others up no longer
        settings.put("max.poll.records", "20");
        Hold hold = new Hold(arguments[3]);

        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream("lines", Consumed.with(Serdes.String(), Serdes.String()));
        KStream<String, String> words = lines.flatMap((number, line) -> Arrays.stream(line.split(" "))
                .map(word -> new KeyValue<>(word, number)).collect(Collectors.toList()))
            .repartition(Repartitioned.with(Serdes.String(), Serdes.String()).withName("words"));
        lines.foreach((number, line) -> hold.at(number)); // after the words: a record goes to the children in their order
        KTable<String, String> kinds = builder.table("kinds", Consumed.with(Serdes.String(), Serdes.String()));
        words.groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .count()
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to("counts", Produced.with(Serdes.String(), Serdes.String()));
        words.join(kinds, (number, kind) -> number + "/" + kind, Joined.with(Serdes.String(), Serdes.String(), Serdes.String()))
            .to("joined", Produced.with(Serdes.String(), Serdes.String()));
        words.groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofDays(1)))
            .count()
            .toStream((window, count) -> window.key() + "@" + window.window().start())
            .mapValues(count -> Long.toString(count))
            .to("windowed", Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
