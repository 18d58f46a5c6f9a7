// Methods that clients have since 3.1: descriptions of producers and transactions (KIP-664), and more kinds of offsets.
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;

class Newer {
    static Map<String, TopicDescription> describe(Admin admin, List<String> topics) throws Exception {
        return new TreeMap<>(describing(admin, topics).get());
    }

    static KafkaFuture<Map<String, TopicDescription>> describing(Admin admin, List<String> topics) {
        return admin.describeTopics(topics).allTopicNames();
    }

    static void transactions(Walk walk, String transactionalId, String topic) throws Exception {
        TopicPartition place = new TopicPartition(topic, 0);
        for (ProducerState one :
                walk.admin.describeProducers(List.of(place)).partitionResult(place).get().activeProducers()) {
            // Its sequence begins anew with each transaction where the broker has KIP-890's second part.
            walk.say("a producer is in a transaction from %s", one.currentTransactionStartOffset());
        }
        TransactionDescription described =
                walk.admin.describeTransactions(List.of(transactionalId)).description(transactionalId).get();
        TreeSet<String> places = new TreeSet<>();
        described.topicPartitions().forEach(one -> places.add(one.topic().equals(topic) ? one.toString() : one.topic()));
        walk.say("transaction %s, timeout %d, %s", described.state(), described.transactionTimeoutMs(), places);
        ListTransactionsOptions ongoing =
                new ListTransactionsOptions().filterStates(List.of(TransactionState.ONGOING));
        boolean listed = walk.admin.listTransactions(ongoing).all().get().stream()
                .anyMatch(one -> one.transactionalId().equals(transactionalId));
        walk.say("listed as ongoing: %s", listed);
    }

    static void offsets(Walk walk, String topic) throws Exception {
        walk.offsets("of the newest", topic, OffsetSpec.maxTimestamp());
        walk.offsets("of the earliest on disk", topic, OffsetSpec.earliestLocal());
        walk.offsets("of the latest elsewhere", topic, OffsetSpec.latestTiered());
    }
}
