// Topics, their configurations, the cluster and its features, as an administrator sees them.
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.utils.AppInfoParser;

class Topics {
    private final Walk walk;

    Topics(Walk walk) {
        this.walk = walk;
    }

    void walk() throws Exception {
        create();
        configure();
        describe();
        broker();
    }

    private NewTopic topic(String name, int partitions) {
        return new NewTopic(walk.topic(name), partitions, walk.replication);
    }

    private void create() throws Exception {
        NewTopic codecs = topic("codecs", 2).configs(Map.of("retention.ms", "86400000"));
        var created = walk.admin.createTopics(List.of(codecs, topic("moved", 2), topic("copy", Walk.PARTITIONS)));
        created.all().get();
        String name = codecs.name();
        walk.say("created with %d partitions, replicas as asked %s, retention.ms %s", created.numPartitions(name).get(),
                created.replicationFactor(name).get() == walk.replication,
                created.config(name).get().get("retention.ms").value());
        walk.outcome("created again", walk.admin.createTopics(List.of(topic("codecs", 2))).all());
        walk.outcome("too many replicas",
                walk.admin.createTopics(List.of(new NewTopic(walk.topic("wide"), 1, (short) 99))).all());
        walk.outcome("no name", walk.admin.createTopics(List.of(new NewTopic("a b", 1, (short) 1))).all());
        walk.outcome("a configuration of nonsense", walk.admin.createTopics(
                List.of(topic("odd", 1).configs(Map.of("retention.ms", "long")))).all());
        CreateTopicsOptions dry = new CreateTopicsOptions().validateOnly(true);
        walk.outcome("validated", walk.admin.createTopics(List.of(topic("dry", 3)), dry).all());
        var defaults = walk.admin.createTopics(
                List.of(new NewTopic(walk.topic("default"), Optional.empty(), Optional.empty())));
        walk.say("by default %d partitions", defaults.numPartitions(walk.topic("default")).get());
        walk.outcome("more partitions",
                walk.admin.createPartitions(Map.of(name, NewPartitions.increaseTo(Walk.PARTITIONS))).all());
        walk.outcome("fewer partitions",
                walk.admin.createPartitions(Map.of(name, NewPartitions.increaseTo(3))).all());
        walk.outcome("as many partitions",
                walk.admin.createPartitions(Map.of(name, NewPartitions.increaseTo(Walk.PARTITIONS))).all());
        Settled.await(walk.bootstrap, Map.of(name, Walk.PARTITIONS, walk.topic("moved"), 2,
                walk.topic("copy"), Walk.PARTITIONS, walk.topic("default"), 1));
    }

    private void configure() throws Exception {
        ConfigResource moved = new ConfigResource(ConfigResource.Type.TOPIC, walk.topic("moved"));
        alter("altered", moved, AlterConfigOp.OpType.SET, "max.message.bytes", "2000");
        alter("appended", moved, AlterConfigOp.OpType.APPEND, "cleanup.policy", "compact");
        alter("subtracted", moved, AlterConfigOp.OpType.SUBTRACT, "cleanup.policy", "delete");
        alter("appended to what is no list", moved, AlterConfigOp.OpType.APPEND, "retention.ms", "5");
        alter("nonsense", moved, AlterConfigOp.OpType.SET, "cleanup.policy", "burn");
        alter("unknown", moved, AlterConfigOp.OpType.SET, "no.such.thing", "1");
        say(moved, "cleanup.policy", "max.message.bytes", "retention.ms", "min.insync.replicas");
        alter("deleted", moved, AlterConfigOp.OpType.DELETE, "max.message.bytes", "");
        alter("deleted", moved, AlterConfigOp.OpType.DELETE, "cleanup.policy", "");
        say(moved, "cleanup.policy", "max.message.bytes");
        alter("of a topic that is missing", new ConfigResource(ConfigResource.Type.TOPIC, walk.topic("missing")),
                AlterConfigOp.OpType.SET, "retention.ms", "5");
    }

    private void alter(String what, ConfigResource of, AlterConfigOp.OpType how, String name, String value)
            throws Exception {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(name, value), how);
        walk.outcome(what, walk.admin.incrementalAlterConfigs(Map.of(of, List.of(change))).all());
    }

    private void say(ConfigResource resource, String... names) throws Exception {
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        Config config = walk.admin.describeConfigs(List.of(resource), options).all().get().get(resource);
        for (String name : names) {
            ConfigEntry entry = config.get(name);
            StringBuilder synonyms = new StringBuilder();
            entry.synonyms().forEach(one -> synonyms.append(' ').append(one.name()).append('=').append(one.value()));
            walk.say("config %s=%s %s %s read-only %s sensitive %s documented %s synonyms%s", name, entry.value(),
                    entry.source(), entry.type(), entry.isReadOnly(), entry.isSensitive(),
                    entry.documentation() != null, synonyms);
        }
    }

    private void describe() throws Exception {
        Newer.describe(walk.admin, List.of(walk.topic("codecs"), walk.topic("moved"))).forEach((name, topic) -> {
            boolean whole = topic.partitions().stream().allMatch(one ->
                    one.replicas().size() == walk.replication && one.isr().contains(one.leader()));
            walk.say("%s of %d partitions, internal %s, replicas as asked %s, operations %s", name,
                    topic.partitions().size(), topic.isInternal(), whole, topic.authorizedOperations());
        });
        walk.outcome("describing what is missing",
                Newer.describing(walk.admin, List.of(walk.topic("missing"))));
        Set<String> names = new TreeSet<>(walk.admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get());
        names.removeIf(name -> !name.startsWith(walk.stem));
        walk.say("listed: %s", names);
        var cluster = walk.admin.describeCluster();
        walk.say("cluster has a name %s, its controller is a broker %s, operations %s", cluster.clusterId().get() != null,
                cluster.nodes().get().contains(cluster.controller().get()), cluster.authorizedOperations().get());
        // The features depend on the broker; Kafka 3.9 with ZooKeeper has none.
        walk.outcome("features", walk.admin.describeFeatures().featureMetadata());
    }

    private void broker() throws Exception {
        String id = walk.admin.describeCluster().controller().get().idString();
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, id);
        // Each release changes a property of its own: they walk side by side.
        String name = Map.of("2", "log.cleaner.backoff.ms", "3", "log.cleaner.min.compaction.lag.ms",
                "4", "log.cleaner.delete.retention.ms").get(AppInfoParser.getVersion().substring(0, 1));
        String before = value(broker, name);
        alter("dynamic", broker, AlterConfigOp.OpType.SET, name, "14000");
        awaitValue(broker, name, "14000");
        alter("not dynamic", broker, AlterConfigOp.OpType.SET, "zookeeper.connect", "nowhere:1");
        say(broker, name, "message.max.bytes", "num.io.threads", "ssl.key.password");
        alter("back", broker, AlterConfigOp.OpType.DELETE, name, "");
        awaitValue(broker, name, before);
        say(broker, name);
        TreeMap<String, Boolean> there = new TreeMap<>();
        walk.admin.describeLogDirs(List.of(Integer.valueOf(id))).allDescriptions().get().values().forEach(directories ->
                directories.values().forEach(one -> there.put("a directory", one.error() == null)));
        walk.say("log directories: %s", there);
    }

    private String value(ConfigResource resource, String name) throws Exception {
        return walk.admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name).value();
    }

    // A broker receives its configuration from the cluster, a moment after the response.
    private void awaitValue(ConfigResource resource, String name, String value) throws Exception {
        long limit = System.currentTimeMillis() + Walk.PATIENCE_MS;
        while (!value.equals(value(resource, name))) {
            if (System.currentTimeMillis() > limit) {
                throw new IllegalStateException(name + " does not become " + value);
            }
        }
    }

    void end() throws Exception {
        TopicPartition place = new TopicPartition(walk.topic("codecs"), 0);
        walk.outcome("preferred leader", walk.admin.electLeaders(ElectionType.PREFERRED, Set.of(place)).all());
        walk.outcome("unclean leader", walk.admin.electLeaders(ElectionType.UNCLEAN, Set.of(place)).all());
        walk.outcome("deleted", walk.admin.deleteTopics(
                List.of(walk.topic("codecs"), walk.topic("copy"), walk.topic("moved"), walk.topic("default"))).all());
        walk.outcome("deleted what is missing", walk.admin.deleteTopics(List.of(walk.topic("missing"))).all());
    }
}
