// Groups: two members that share, cooperatively; a subscription by pattern; static members; offsets with metadata, and
// the requests of administrators on groups and their offsets.
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListConsumerGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;

class Groups {
    static final String ASSIGNORS = "partition.assignment.strategy=org.apache.kafka.clients.consumer.";

    private final Walk walk;
    private final String topic;

    Groups(Walk walk) {
        this.walk = walk;
        this.topic = walk.topic("codecs");
    }

    void walk() throws Exception {
        for (String assignor : List.of("RangeAssignor", "CooperativeStickyAssignor")) {
            share(assignor);
        }
        pattern();
        staticMembers();
        offsets();
    }

    private void share(String assignor) throws Exception {
        String group = walk.topic(assignor);
        String[] settings = {"group.id=" + group, ASSIGNORS + assignor};
        Walk.Digest read = new Walk.Digest(walk);
        KafkaConsumer<String, String> first = walk.consumer(settings);
        first.subscribe(List.of(topic));
        // Three records of a partition are deleted.
        int total = Records.CODECS.size() * Records.PER_CODEC - 3;
        walk.poll("reading by a group", () -> read.total == total, read, first);
        read.say(assignor);
        first.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(7, "half way")));
        walk.say("committed %s", text(first.committed(Set.of(new TopicPartition(topic, 0)))));
        first.commitSync();
        KafkaConsumer<String, String> second = walk.consumer(settings);
        second.subscribe(List.of(topic));
        walk.poll("sharing", () -> first.assignment().size() == 2 && second.assignment().size() == 2, read, first, second);
        describe("two members", group);
        second.close();
        walk.poll("inheriting", () -> first.assignment().size() == Walk.PARTITIONS, read, first);
        walk.say("the first has all again, read in all %d", read.total);
        describe("one member", group);
        first.close();
        describe("nobody", group);
    }

    private void describe(String what, String group) throws Exception {
        ConsumerGroupDescription one = walk.admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        TreeMap<Integer, Integer> sizes = new TreeMap<>();
        one.members().forEach(member -> sizes.merge(member.assignment().topicPartitions().size(), 1, Integer::sum));
        walk.say("%s: %s by '%s', simple %s, members by what they have %s", what, one.state(), one.partitionAssignor(),
                one.isSimpleConsumerGroup(), sizes);
    }

    private void pattern() {
        try (KafkaConsumer<String, String> consumer = walk.consumer("group.id=" + walk.topic("pattern"))) {
            consumer.subscribe(Pattern.compile(Pattern.quote(walk.stem) + "-(moved|copy|[0-9]+)"));
            Walk.Digest read = new Walk.Digest(walk);
            walk.poll("a pattern", () -> consumer.assignment().size() == 2 + Walk.PARTITIONS, read, consumer);
            walk.say("by pattern: %s", consumer.subscription().size());
            // A group without members or offsets ends when any topic is deleted, as another walk may do.
            consumer.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(0)));
        }
    }

    private void staticMembers() throws Exception {
        String group = walk.topic("static");
        String[] settings = {"group.id=" + group, "group.instance.id=one", ASSIGNORS + "RangeAssignor"};
        Walk.Digest read = new Walk.Digest(walk);
        KafkaConsumer<String, String> first = walk.consumer(settings);
        first.subscribe(List.of(topic));
        walk.poll("a static member", () -> first.assignment().size() == Walk.PARTITIONS, read, first);
        // A group without members or offsets ends when any topic is deleted, as another walk may do.
        first.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(0)));
        walk.say("generation %d of %s", first.groupMetadata().generationId(), first.groupMetadata().groupInstanceId());
        first.close();
        describe("the static member is away", group);
        KafkaConsumer<String, String> again = walk.consumer(settings);
        again.subscribe(List.of(topic));
        walk.poll("the static member again", () -> again.assignment().size() == Walk.PARTITIONS, read, again);
        walk.say("generation %d", again.groupMetadata().generationId());
        KafkaConsumer<String, String> usurper = walk.consumer(settings);
        usurper.subscribe(List.of(topic));
        walk.poll("its twin", () -> usurper.assignment().size() == Walk.PARTITIONS, read, usurper);
        try {
            again.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1)));
            walk.say("both twins live");
        } catch (FencedInstanceIdException | CommitFailedException failure) {
            // The one from the commit's response, the other where a heartbeat's response came first.
            walk.say("the first twin is out");
        }
        again.close();
        usurper.close();
        walk.outcome("deleted with a member", walk.admin.deleteConsumerGroups(List.of(group)).all());
        walk.outcome("member removed", walk.admin.removeMembersFromConsumerGroup(
                group, new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("one")))).all());
        walk.outcome("member removed again", walk.admin.removeMembersFromConsumerGroup(
                group, new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("one")))).all());
        walk.outcome("deleted", walk.admin.deleteConsumerGroups(List.of(group)).all());
    }

    private String text(Map<TopicPartition, OffsetAndMetadata> offsets) {
        TreeMap<String, String> sorted = new TreeMap<>();
        offsets.forEach((place, one) -> sorted.put(place.toString(),
                one == null ? "nothing" : one.offset() + " '" + one.metadata() + "'"));
        return sorted.toString();
    }

    private void offsets() throws Exception {
        String group = walk.topic("CooperativeStickyAssignor");
        TopicPartition place = new TopicPartition(topic, 2);
        var listed = walk.admin.listConsumerGroupOffsets(group);
        walk.say("offsets: %s", text(listed.partitionsToOffsetAndMetadata().get()));
        walk.outcome("altered", walk.admin.alterConsumerGroupOffsets(
                group, Map.of(place, new OffsetAndMetadata(11, "by hand"))).all());
        walk.outcome("altered for a new group", walk.admin.alterConsumerGroupOffsets(
                walk.topic("new"), Map.of(place, new OffsetAndMetadata(12))).all());
        walk.outcome("deleted an offset", walk.admin.deleteConsumerGroupOffsets(
                group, Set.of(new TopicPartition(topic, 3))).all());
        walk.say("offsets: %s", text(walk.admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()));
        walk.say("offsets of nobody: %s", text(
                walk.admin.listConsumerGroupOffsets(walk.topic("nobody")).partitionsToOffsetAndMetadata().get()));
        TreeMap<String, String> groups = new TreeMap<>();
        walk.admin.listConsumerGroups(new ListConsumerGroupsOptions()).all().get().stream()
                .filter(one -> one.groupId().startsWith(walk.stem))
                .forEach(one -> groups.put(one.groupId(), one.state() + " simple " + one.isSimpleConsumerGroup()));
        groups.forEach((name, state) -> walk.say("listed %s: %s", name, state));
        walk.outcome("deleted the new group", walk.admin.deleteConsumerGroups(List.of(walk.topic("new"))).all());
        walk.outcome("deleted no group", walk.admin.deleteConsumerGroups(List.of(walk.topic("nobody"))).all());
    }
}
