import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.controller.QuorumFeatures;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Prints, as one JSON object, what the classes of Apache Kafka's jars say about error codes, settings, the operations of the
 * admin client and features. Bounds are not read but tried: each setting has texts that Kafka's definition accepts or refuses.
 */
public final class ParityFacts {
    private static final Pattern NUMBER = Pattern.compile("-?\\d+(\\.\\d+)?(E\\d+)?");
    private static final Pattern WORD = Pattern.compile("[A-Za-z0-9_.-]+");

    public static void main(String[] args) throws Exception {
        Map<String, Object> facts = new TreeMap<>();
        facts.put("errors", errors());
        facts.put("settings", settings());
        facts.put("admin", operations());
        facts.put("features", features());
        facts.put("releases", releases());
        ObjectMapper mapper = new ObjectMapper().enable(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS);
        System.out.println(mapper.writeValueAsString(facts));
    }

    private static Map<String, Object> errors() {
        Map<String, Object> errors = new TreeMap<>();
        for (Errors error : Errors.values()) {
            boolean retriable = error.exception() instanceof RetriableException;
            errors.put(error.name(), Map.of("code", error.code(), "retriable", retriable));
        }
        return errors;
    }

    private static Map<String, Object> settings() {
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        Map<String, Object> settings = new TreeMap<>();
        settings.put("broker", described(AbstractKafkaConfig.CONFIG_DEF, key -> Map.of("update", modes.getOrDefault(key, "read-only"))));
        settings.put("topic", described(LogConfig.configDefCopy(), key -> Map.of("broker", ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS
            .getOrDefault(key, List.of()).stream().map(ConfigSynonym::name).toList())));
        settings.put("group", described(GroupConfig.CONFIG_DEF, key -> Map.of("broker", GroupConfig.brokerSynonym(key).map(List::of).orElse(List.of()))));
        settings.put("client-metrics", described(ClientMetricsConfigs.configDef(), key -> Map.of()));
        return settings;
    }

    private static Map<String, Object> described(ConfigDef definition, Function<String, Map<String, Object>> more) {
        Map<String, Object> described = new TreeMap<>();
        for (ConfigDef.ConfigKey key : definition.configKeys().values()) {
            Map<String, Object> facts = new TreeMap<>(more.apply(key.name));
            facts.put("type", key.type.name());
            facts.put("required", !key.hasDefault());
            facts.put("internal", key.internalConfig);
            facts.put("default", key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null);
            Map<String, Object> tried = new TreeMap<>();
            for (String text : texts(key)) {
                tried.put(text, accepts(key, text));
            }
            facts.put("accepts", tried);
            described.put(key.name, facts);
        }
        return described;
    }

    /** Texts at the edges of the type and of what the validator's words name. */
    private static Set<String> texts(ConfigDef.ConfigKey key) {
        Set<String> texts = new LinkedHashSet<>();
        String words = key.validator == null ? "" : key.validator.toString();
        switch (key.type) {
            case SHORT, INT, LONG -> {
                texts.addAll(List.of("-2", "-1", "0", "1", "2", "1.5", "", "9223372036854775808"));
                texts.add(key.type == ConfigDef.Type.SHORT ? "32768" : key.type == ConfigDef.Type.INT ? "2147483648" : "9223372036854775807");
                for (Matcher match = NUMBER.matcher(words); match.find();) {
                    if (match.group().length() < 19 && match.group(1) == null) {
                        long edge = Long.parseLong(match.group());
                        texts.addAll(List.of(String.valueOf(edge - 1), String.valueOf(edge), String.valueOf(edge + 1)));
                    }
                }
            }
            case DOUBLE -> {
                texts.addAll(List.of("-1", "-0.1", "0", "0.25", "0.5", "0.75", "1", "1.1", "100", "none"));
            }
            case BOOLEAN -> texts.addAll(List.of("true", "FALSE", "yes", "1", ""));
            case STRING, LIST -> {
                texts.addAll(List.of("", "no such value"));
                if (key.validator instanceof ConfigDef.ValidString || key.validator instanceof ConfigDef.ValidList
                        || key.validator instanceof ConfigDef.CaseInsensitiveValidString) {
                    for (Matcher match = WORD.matcher(words); match.find();) {
                        texts.add(match.group());
                        texts.add(match.group().toUpperCase(java.util.Locale.ROOT));
                    }
                }
                if (key.hasDefault() && key.defaultValue != null) {
                    texts.add(ConfigDef.convertToString(key.defaultValue, key.type));
                }
            }
            default -> { }
        }
        return texts;
    }

    private static boolean accepts(ConfigDef.ConfigKey key, String text) {
        try {
            Object value = ConfigDef.parseType(key.name, text, key.type);
            if (key.validator != null) {
                key.validator.ensureValid(key.name, value);
            }
            return true;
        } catch (ConfigException | NullPointerException refused) {
            return false;
        }
    }

    private static List<String> operations() {
        Set<String> operations = new TreeSet<>();
        for (Method method : Admin.class.getMethods()) {
            if (!Modifier.isStatic(method.getModifiers()) && method.getAnnotation(Deprecated.class) == null) {
                operations.add(method.getName());
            }
        }
        return new ArrayList<>(operations);
    }

    private static Map<String, Object> features() {
        Map<String, Object> features = new TreeMap<>();
        QuorumFeatures.defaultSupportedFeatureMap(false).forEach((name, range) ->
            features.put(name, Map.of("min", range.min(), "max", range.max())));
        return features;
    }

    /** The levels that `kafka-features upgrade --release-version` asks for. */
    private static Map<String, Object> releases() {
        Map<String, Object> releases = new TreeMap<>();
        for (MetadataVersion version : MetadataVersion.VERSIONS) {
            if (version.isProduction()) {
                Map<String, Object> levels = new TreeMap<>();
                levels.put(MetadataVersion.FEATURE_NAME, version.featureLevel());
                for (Feature feature : Feature.PRODUCTION_FEATURES) {
                    levels.put(feature.featureName(), feature.defaultLevel(version));
                }
                releases.put(version.version(), levels);
            }
        }
        return releases;
    }
}
