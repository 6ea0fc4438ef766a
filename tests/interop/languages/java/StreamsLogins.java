// Kafka Streams applications that copy a topic, one for each login, one after another.
// Arguments: bootstrap servers, source topic, sink topic, state directory, and a file of client settings for each login.
// A line "outcome: …" for each, beside Streams' log: "written" once its record is acknowledged, or the reasons that Streams gives.
import java.io.FileReader;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.ProducerInterceptor;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

public class StreamsLogins {
    static final int SECONDS = 30;
    static final int CLOSE_SECONDS = 5;
    static volatile BlockingQueue<String> outcomes;

    public static void main(String[] arguments) throws Exception {
        for (int number = 4; number < arguments.length; number++) {
            Properties settings = new Properties();
            try (FileReader reader = new FileReader(arguments[number])) {
                settings.load(reader);
            }
            String token = settings.getProperty("sasl.oauthbearer.token.endpoint.url");
            if (token != null) System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", token);
            settings.put("bootstrap.servers", arguments[0]);
            settings.put("application.id", "streams-" + number);
            settings.put("state.dir", arguments[3]);
            settings.put("auto.offset.reset", "earliest");
            settings.put("commit.interval.ms", "100");
            settings.put("enable.idempotence", "false"); // or a user without any right to write is refused before its record
            settings.put("producer.interceptor.classes", Acknowledged.class.getName());
            System.out.println("outcome: " + run(settings, arguments[1], arguments[2]));
        }
        System.exit(0);
    }

    static String run(Properties settings, String source, String sink) throws InterruptedException {
        BlockingQueue<String> mine = new ArrayBlockingQueue<>(100);
        outcomes = mine;
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(source, Consumed.with(Serdes.String(), Serdes.String()))
            .mapValues(value -> value + " by " + settings.getProperty("application.id"))
            .to(sink, Produced.with(Serdes.String(), Serdes.String()));
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.setUncaughtExceptionHandler(error -> {
                mine.offer(reasons(error));
                return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.start();
            String outcome = mine.poll(SECONDS, TimeUnit.SECONDS);
            streams.close(Duration.ofSeconds(CLOSE_SECONDS));
            return outcome == null ? "neither written nor refused within " + SECONDS + " s" : outcome;
        }
    }

    static String reasons(Throwable error) {
        StringBuilder text = new StringBuilder(String.valueOf(error));
        for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) text.append(": ").append(cause);
        return text.toString().replaceAll("\\s+", " ");
    }

    public static class Acknowledged implements ProducerInterceptor<Object, Object> {
        public ProducerRecord<Object, Object> onSend(ProducerRecord<Object, Object> record) {
            return record;
        }

        public void onAcknowledgement(RecordMetadata metadata, Exception error) {
            if (error == null) outcomes.offer("written");
        }

        public void close() {}

        public void configure(Map<String, ?> settings) {}
    }
}
