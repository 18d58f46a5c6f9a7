// The assignments of Kafka's server-side assignors, for kafka_assigns.py.
//
// Input lines, "-" for nothing:
//   NAME TOPIC=COUNT,… MEMBER/INSTANCE/TOPIC,…/TOPIC:PARTITION,… …     the last part: the member's assignment before
// Output lines: MEMBER/TOPIC:PARTITION,… for each member, in the order of the request, ascending within.
// A topic is a small number, the lower half of its id, so that Kafka's hash tables hold topics in ascending order.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.StringJoiner;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

public class KafkaAssigns {
    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            output.append(answer(line.split(" "))).append('\n');
        }
        System.out.print(output);
    }

    private static String answer(String[] words) {
        ConsumerGroupPartitionAssignor assignor = words[0].equals("range") ? new RangeAssignor() : new UniformAssignor();
        Map<Uuid, Integer> counts = new HashMap<>();
        for (String topic : parts(words[1])) {
            counts.put(id(topic.split("=")[0]), Integer.parseInt(topic.split("=")[1]));
        }
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        for (int i = 2; i < words.length; i++) {
            String[] fields = words[i].split("/");
            Set<Uuid> topics = new LinkedHashSet<>();
            for (String topic : parts(fields[2])) topics.add(id(topic));
            subscriptions.add(topics);
            Map<Uuid, Set<Integer>> owned = new TreeMap<>();
            for (String each : parts(fields[3])) {
                Uuid topic = id(each.split(":")[0]);
                int partition = Integer.parseInt(each.split(":")[1]);
                owned.computeIfAbsent(topic, key -> new TreeSet<>()).add(partition);
                owners.computeIfAbsent(topic, key -> new HashMap<>()).put(partition, fields[0]);
            }
            Optional<String> instance = fields[1].equals("-") ? Optional.empty() : Optional.of(fields[1]);
            Assignment before = new Assignment(Collections.unmodifiableMap(owned));
            members.put(fields[0], new MemberSubscriptionAndAssignmentImpl(Optional.empty(), instance, topics, before));
        }
        SubscriptionType type = subscriptions.size() == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        GroupAssignment assigned = assignor.assign(new GroupSpecImpl(members, type, owners), new SubscribedTopicDescriber() {
            public int numPartitions(Uuid topic) {
                return counts.getOrDefault(topic, -1);
            }

            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        });
        StringJoiner answer = new StringJoiner(" ");
        for (String member : members.keySet()) {
            MemberAssignment given = assigned.members().get(member);
            StringJoiner text = new StringJoiner(",");
            if (given != null) {
                new TreeMap<>(given.partitions()).forEach((topic, partitions) -> new TreeSet<>(partitions).forEach(
                    partition -> text.add(topic.getLeastSignificantBits() + ":" + partition)));
            }
            answer.add(member + "/" + text);
        }
        return answer.toString();
    }

    private static String[] parts(String text) {
        return text.equals("-") ? new String[0] : text.split(",");
    }

    private static Uuid id(String topic) {
        return new Uuid(0, Long.parseLong(topic));
    }
}
