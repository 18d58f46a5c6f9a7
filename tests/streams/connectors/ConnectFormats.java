import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.runtime.errors.DeadLetterQueueReporter;
import org.apache.kafka.connect.runtime.errors.Stage;

/** Prints what Kafka Connect names and writes: headers of dead letters, stages, the key and value of an offset. */
public class ConnectFormats {
    public static void main(String[] arguments) throws Exception {
        for (Field field : DeadLetterQueueReporter.class.getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers()) && field.getName().startsWith("ERROR_HEADER")) {
                field.setAccessible(true);
                System.out.println("header " + field.get(null));
            }
        }
        for (Stage stage : Stage.values()) {
            System.out.println("stage " + stage.name());
        }
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", false), true);
        Map<String, Object> partition = new TreeMap<>(Map.of("folder", "b\u00e4r", "file", "a"));
        byte[] key = converter.fromConnectData("offsets", null, List.of("files", partition));
        System.out.println("key " + new String(key, StandardCharsets.ISO_8859_1));
        byte[] value = converter.fromConnectData("offsets", null, Map.of("position", 4711L));
        System.out.println("value " + new String(value, StandardCharsets.ISO_8859_1));
    }
}
