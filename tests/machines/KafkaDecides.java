// Decisions of Kafka itself, for kafka_decides.py: its placement of replicas and its elections.
//
// Input lines, lists with commas, "-" for an empty one:
//   place ID[:RACK],… PARTITIONS FACTOR FIRST START
//   elect KIND REPLICAS ISR LIVE LEAVING              KIND: offline, unclean, preferred, reassigned, leaving
// Output lines: the replicas of each partition, with ";" between partitions; or "LEADER/ISR/RECOVERY", "none" without.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Collectors;
import kafka.api.LeaderAndIsr;
import kafka.cluster.Broker;
import kafka.cluster.EndPoint;
import kafka.controller.ControllerContext;
import kafka.controller.Election$;
import kafka.controller.ElectionResult;
import kafka.controller.ReplicaAssignment;
import org.apache.kafka.admin.AdminUtils;
import org.apache.kafka.admin.BrokerMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.LeaderRecoveryState;
import scala.Option;
import scala.Tuple2;
import scala.Tuple3;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

public class KafkaDecides {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            output.append(words[0].equals("place") ? place(words) : elect(words)).append('\n');
        }
        System.out.print(output);
    }

    private static String place(String[] words) {
        List<BrokerMetadata> brokers = new ArrayList<>();
        for (String broker : words[1].split(",")) {
            String[] parts = broker.split(":");
            brokers.add(new BrokerMetadata(Integer.parseInt(parts[0]), parts.length > 1 ? Optional.of(parts[1]) : Optional.empty()));
        }
        Map<Integer, List<Integer>> placed = new TreeMap<>(AdminUtils.assignReplicasToBrokers(
            brokers, Integer.parseInt(words[2]), Integer.parseInt(words[3]), Integer.parseInt(words[4]), Integer.parseInt(words[5])));
        return placed.values().stream().map(KafkaDecides::text).collect(Collectors.joining(";"));
    }

    private static String elect(String[] words) {
        ControllerContext context = new ControllerContext();
        context.updatePartitionFullReplicaAssignment(PARTITION, new ReplicaAssignment(seq(numbers(words[2])), seq(List.of()), seq(List.of())));
        Map<Broker, Object> live = new HashMap<>();
        for (Object id : numbers(words[4])) {
            EndPoint endpoint = new EndPoint("localhost", 9092, ListenerName.normalised("PLAINTEXT"), SecurityProtocol.PLAINTEXT);
            live.put(Broker.apply((Integer) id, endpoint, Option.<String>empty()), 1L);
        }
        context.setLiveBrokers(CollectionConverters.asScala(live));
        numbers(words[5]).forEach(id -> context.shuttingDownBrokerIds().add(id));
        @SuppressWarnings("unchecked")
        scala.collection.immutable.List<Object> isr = (scala.collection.immutable.List<Object>) (Object) CollectionConverters.asScala(numbers(words[3])).toList();
        LeaderAndIsr before = LeaderAndIsr.apply(-1, 0, isr, LeaderRecoveryState.RECOVERED, 0);
        ElectionResult result = run(words[1], context, before).head();
        if (result.leaderAndIsr().isEmpty()) {
            return "none";
        }
        LeaderAndIsr after = result.leaderAndIsr().get();
        return after.leader() + "/" + text(CollectionConverters.asJava(after.isr())) + "/" + after.leaderRecoveryState();
    }

    private static Seq<ElectionResult> run(String kind, ControllerContext context, LeaderAndIsr before) {
        Seq<Tuple2<TopicPartition, LeaderAndIsr>> one = CollectionConverters.asScala(List.of(Tuple2.apply(PARTITION, before))).toSeq();
        switch (kind) {
            case "preferred": return Election$.MODULE$.leaderForPreferredReplica(context, one);
            case "reassigned": return Election$.MODULE$.leaderForReassign(context, one);
            case "leaving": return Election$.MODULE$.leaderForControlledShutdown(context, one);
            default:
                Object unclean = kind.equals("unclean");
                return Election$.MODULE$.leaderForOffline(context, true,
                    CollectionConverters.asScala(List.of(Tuple3.apply(PARTITION, Option.apply(before), unclean))).toSeq());
        }
    }

    private static List<Object> numbers(String words) {
        List<Object> found = new ArrayList<>();
        for (String word : words.split(",")) {
            if (!word.equals("-")) {
                found.add(Integer.valueOf(word));
            }
        }
        return found;
    }

    private static Seq<Object> seq(List<Object> items) {
        return CollectionConverters.asScala(items).toSeq();
    }

    private static String text(List<?> items) {
        return items.isEmpty() ? "-" : items.stream().map(String::valueOf).collect(Collectors.joining(","));
    }
}
