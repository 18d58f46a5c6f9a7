// Methods that clients before 3.1 have under other names, or not at all.
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaFuture;

class Newer {
    static Map<String, TopicDescription> describe(Admin admin, List<String> topics) throws Exception {
        return new TreeMap<>(describing(admin, topics).get());
    }

    static KafkaFuture<Map<String, TopicDescription>> describing(Admin admin, List<String> topics) {
        return admin.describeTopics(topics).all();
    }

    static void transactions(Walk walk, String transactionalId, String topic) {}

    static void offsets(Walk walk, String topic) {}
}
