import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * What Kafka's own classes say. "errors" prints every error code: number, name, whether clients may retry.
 * "encode" reads one JSON object per line (class, version, json) and prints the bytes of that message as hex.
 */
public final class KafkaFacts {
    public static void main(String[] args) throws Exception {
        if (args[0].equals("errors")) {
            for (Errors error : Errors.values()) {
                boolean retriable = error.exception() instanceof RetriableException;
                System.out.println(error.code() + " " + error.name() + " " + (retriable ? "retriable" : "final"));
            }
            return;
        }
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        ObjectMapper mapper = new ObjectMapper();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(encode(mapper.readTree(line)));
        }
    }

    private static String encode(JsonNode asked) throws Exception {
        short version = (short) asked.get("version").asInt();
        Class<?> converter = Class.forName(asked.get("class").asText() + "JsonConverter");
        try {
            Message message = (Message) converter
                .getMethod("read", JsonNode.class, short.class)
                .invoke(null, asked.get("json"), version);
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(buffer), cache, version);
            return HexFormat.of().formatHex(buffer.array());
        } catch (InvocationTargetException failed) {
            throw new IllegalArgumentException(asked.toString(), failed.getCause());
        }
    }
}
