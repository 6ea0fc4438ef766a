// Kafka's own Java clients against one broker: `java Clients.java COMMAND BOOTSTRAP ARGUMENTS`, arguments and answer in JSON. What it
// prints last is its answer.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Clients {
    static final long LIMIT_MS = 60_000;
    static final long STARTED = System.currentTimeMillis();
    static final ObjectMapper JSON = new ObjectMapper();
    static String bootstrap;
    static JsonNode given;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[1];
        given = JSON.readTree(arguments[2]);
        Object answer = switch (arguments[0]) {
            case "produce" -> produce();
            case "consume" -> consume();
            case "group" -> group();
            case "rebalance" -> rebalance();
            case "transact" -> transact();
            case "copy" -> copy();
            case "share" -> share();
            case "share-two" -> shareTwo();
            case "share-hold" -> shareHold();
            case "admin" -> admin();
            case "logins" -> logins();
            default -> throw new IllegalArgumentException(arguments[0]);
        };
        System.out.println(JSON.writeValueAsString(answer));
        System.exit(0);
    }

    static String text(String name) {
        return given.path(name).asText("");
    }

    static int count() {
        return given.get("count").asInt();
    }

    static List<String> values() {
        List<String> found = new ArrayList<>();
        given.get("values").forEach(one -> found.add(one.asText()));
        return found;
    }

    static void await(String what, BooleanSupplier done) throws InterruptedException {
        while (!done.getAsBoolean()) {
            if (System.currentTimeMillis() - STARTED > LIMIT_MS) throw new IllegalStateException(what + " never came");
            Thread.sleep(20);
        }
    }

    static KafkaProducer<String, String> producer(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    static void send(KafkaProducer<String, String> producer, List<String> values) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (String value : values) {
            ProducerRecord<String, String> record = new ProducerRecord<>(text("topic"), "key of " + value, value);
            record.headers().add("from", "java".getBytes(StandardCharsets.UTF_8));
            sent.add(producer.send(record));
        }
        producer.flush();
        for (Future<RecordMetadata> one : sent) one.get();
    }

    static Object produce() throws Exception {
        String codec = text("codec").isEmpty() ? "none" : text("codec");
        try (KafkaProducer<String, String> producer = producer(Map.of("compression.type", codec))) {
            send(producer, values());
        }
        return Map.of("produced", values().size());
    }

    /** One record for each login: "written", or the client's own words. */
    static Object logins() throws Exception {
        List<String> outcomes = new ArrayList<>();
        for (JsonNode login : given.get("logins")) {
            Map<String, Object> secured = new HashMap<>();
            login.get("java").fields().forEachRemaining(setting -> secured.put(setting.getKey(), setting.getValue().asText()));
            secured.put("enable.idempotence", false);
            secured.put("max.block.ms", 20_000);
            String tokens = login.path("java").path("sasl.oauthbearer.token.endpoint.url").asText("");
            if (!tokens.isEmpty()) System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", tokens);
            try (KafkaProducer<String, String> producer = producer(secured)) {
                producer.send(new ProducerRecord<>(text("topic"), login.get("user").asText())).get();
                outcomes.add("written");
            } catch (KafkaException | ExecutionException refused) {
                outcomes.add(String.valueOf(refused));
            }
        }
        return Map.of("outcomes", outcomes);
    }

    static Map<String, Object> settings(String group) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("fetch.max.wait.ms", 100);
        if (!group.isEmpty()) settings.put("group.id", group);
        return settings;
    }

    static KafkaConsumer<String, String> consumer(String group) {
        Map<String, Object> settings = settings(group);
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        if (text("protocol").equals("consumer")) settings.put("group.protocol", "consumer");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    static List<String> take(KafkaConsumer<String, String> consumer) throws Exception {
        List<String> found = new ArrayList<>();
        await("the records", () -> {
            consumer.poll(Duration.ofMillis(200)).forEach(record -> found.add(record.value()));
            return found.size() >= count();
        });
        found.sort(null);
        return found;
    }

    static Object consume() throws Exception {
        try (KafkaConsumer<String, String> consumer = consumer("")) {
            List<TopicPartition> all = consumer.partitionsFor(text("topic")).stream()
                .map(one -> new TopicPartition(one.topic(), one.partition())).toList();
            consumer.assign(all);
            consumer.seekToBeginning(all);
            return Map.of("values", take(consumer));
        }
    }

    static Object group() throws Exception {
        try (KafkaConsumer<String, String> consumer = consumer(text("group"))) {
            consumer.subscribe(List.of(text("topic")));
            List<String> found = take(consumer);
            consumer.commitSync();
            return Map.of("values", found);
        }
    }

    /** One member on a thread of its own. */
    static class Member extends Thread implements ConsumerRebalanceListener {
        final KafkaConsumer<String, String> consumer = consumer(text("group"));
        final Set<TopicPartition> owned = ConcurrentHashMap.newKeySet();

        @Override
        public void run() {
            try (consumer) {
                consumer.subscribe(List.of(text("topic")), this);
                while (true) consumer.poll(Duration.ofMillis(100));
            } catch (WakeupException leaving) {
                owned.clear();
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            owned.addAll(partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            owned.removeAll(partitions);
        }

        void leave() throws InterruptedException {
            consumer.wakeup();
            join();
        }
    }

    static Object rebalance() throws Exception {
        Member first = new Member();
        first.start();
        await("the first assignment", () -> first.owned.size() == count());
        Member second = new Member();
        second.start();
        await("sharing", () -> !second.owned.isEmpty() && first.owned.size() + second.owned.size() == count());
        List<Integer> shared = List.of(first.owned.size(), second.owned.size());
        second.leave();
        await("the return", () -> first.owned.size() == count());
        int alone = first.owned.size();
        first.leave();
        return Map.of("shared", shared, "alone", alone);
    }

    static Object transact() throws Exception {
        List<String> aborted = values().stream().map(value -> "aborted " + value).toList();
        try (KafkaProducer<String, String> producer = producer(Map.of("transactional.id", text("id")))) {
            producer.initTransactions();
            for (boolean commits : new boolean[] {false, true, false}) {
                producer.beginTransaction();
                send(producer, commits ? values() : aborted);
                if (commits) producer.commitTransaction();
                else producer.abortTransaction();
            }
        }
        return Map.of("committed", values().size());
    }

    static Object copy() throws Exception {
        int copied = 0;
        try (KafkaConsumer<String, String> consumer = consumer(text("group"));
                KafkaProducer<String, String> producer = producer(Map.of("transactional.id", text("id")))) {
            producer.initTransactions();
            consumer.subscribe(List.of(text("topic")));
            while (copied < count()) {
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                List<String> found = new ArrayList<>();
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    found.add(record.value());
                    offsets.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
                if (found.isEmpty()) continue;
                producer.beginTransaction();
                for (String value : found) producer.send(new ProducerRecord<>(text("sink"), value));
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                producer.commitTransaction();
                copied += found.size();
            }
        }
        return Map.of("copied", copied);
    }

    static void sharesFromTheBeginning() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, text("group"));
            AlterConfigOp earliest = new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(group, List.of(earliest))).all().get();
        }
    }

    static KafkaShareConsumer<String, String> shareConsumer() {
        Map<String, Object> settings = settings(text("group"));
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("max.poll.records", 2);
        KafkaShareConsumer<String, String> consumer =
            new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(text("topic")));
        return consumer;
    }

    static int accept(KafkaShareConsumer<String, String> consumer, Set<String> accepted) {
        int found = 0;
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
            consumer.acknowledge(record, AcknowledgeType.ACCEPT);
            accepted.add(record.value());
            found++;
        }
        consumer.commitSync();
        return found;
    }

    /** Two consumers accept what is written one by one into one partition, until both had some of it. */
    static Object shareTwo() throws Exception {
        sharesFromTheBeginning();
        Set<String> accepted = ConcurrentHashMap.newKeySet();
        int[] taken = new int[2];
        try (KafkaShareConsumer<String, String> first = shareConsumer();
                KafkaShareConsumer<String, String> second = shareConsumer();
                KafkaProducer<String, String> producer = producer(Map.of("linger.ms", 0))) {
            int[] written = new int[1];
            await("records for both", () -> {
                if (taken[0] == 0 || taken[1] == 0) {
                    for (int number = 0; number < 4; number++) {
                        producer.send(new ProducerRecord<>(text("topic"), "value " + written[0]++));
                        producer.flush();
                    }
                }
                taken[0] += accept(first, accepted);
                taken[1] += accept(second, accepted);
                return taken[0] > 0 && taken[1] > 0 && accepted.size() >= written[0];
            });
        }
        return Map.of("accepted", accepted.size(), "first", taken[0], "second", taken[1]);
    }

    /** One consumer takes records and never acknowledges them; another gets all in the end. */
    static Object shareHold() throws Exception {
        sharesFromTheBeginning();
        Set<String> held = ConcurrentHashMap.newKeySet();
        Set<String> accepted = ConcurrentHashMap.newKeySet();
        try (KafkaShareConsumer<String, String> silent = shareConsumer()) {
            await("some records", () -> {
                silent.poll(Duration.ofMillis(200)).forEach(record -> held.add(record.value()));
                return !held.isEmpty();
            });
            try (KafkaShareConsumer<String, String> other = shareConsumer()) {
                await("the records", () -> {
                    accept(other, accepted);
                    return accepted.size() >= count();
                });
            }
        }
        return Map.of("held", held.size(), "accepted", accepted.stream().sorted().toList());
    }

    /** Accepts every record but for the first delivery of each second one, which it releases. */
    static Object share() throws Exception {
        sharesFromTheBeginning();
        Map<String, Object> settings = settings(text("group"));
        settings.put("share.acknowledgement.mode", "explicit");
        Map<String, Integer> deliveries = new TreeMap<>();
        Set<String> accepted = ConcurrentHashMap.newKeySet();
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(text("topic")));
            await("the records", () -> {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    int delivery = deliveries.merge(record.value(), 1, Integer::sum);
                    boolean releases = delivery == 1 && record.offset() % 2 == 1;
                    consumer.acknowledge(record, releases ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                    if (!releases) accepted.add(record.value());
                }
                consumer.commitSync();
                return accepted.size() >= count();
            });
        }
        return Map.of("accepted", accepted.stream().sorted().toList(), "deliveries", deliveries);
    }

    static Object admin() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            String topic = text("topic");
            String group = text("group");
            admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1))).all().get();
            int partitions = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
            String state = admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState().toString();
            boolean listed = admin.listGroups(ListGroupsOptions.forConsumerGroups()).all().get().stream()
                .anyMatch(one -> one.groupId().equals(group));
            int offsets = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().size();
            Set<String> features = admin.describeFeatures().featureMetadata().get().finalizedFeatures().keySet();
            admin.deleteTopics(List.of(topic)).all().get();
            admin.deleteConsumerGroups(List.of(group)).all().get();
            return Map.of("created", topic, "partitions", partitions, "state", state, "listed", listed, "offsets", offsets,
                "deleted", group, "features", features.stream().sorted().collect(Collectors.toList()));
        }
    }
}
