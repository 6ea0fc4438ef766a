// A Kafka Streams application that counts words exactly once and runs until it is killed.
// Arguments: bootstrap servers, application id, state directory, directory of the holds (Hold.java), source topic, sink topic;
// and the protocol of its group (classic or streams), if it is not the classic one.
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;

public class WordCount {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[2]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", "100");
        settings.put("statestore.cache.max.bytes", "0"); // so that every word leaves one record in the sink
        settings.put("auto.offset.reset", "earliest");
        if (arguments.length > 6) {
            settings.put("group.protocol", arguments[6]);
        } else {
            settings.put("session.timeout.ms", "6000"); // the one that was killed is forgotten soon
        }
        settings.put("max.poll.records", "20");
        Hold hold = new Hold(arguments[3]);

        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream(arguments[4], Consumed.with(Serdes.String(), Serdes.String()));
        lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count()
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(arguments[5], Produced.with(Serdes.String(), Serdes.String()));
        lines.foreach((number, line) -> hold.at(number)); // after the words: a record goes to the children in their order
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
