// Walks through the features of Java's client, and prints the results.
//
//   java … Walk BOOTSTRAP STEM REPLICATION
//
// It compiles against every release from 2.8 on; code that is not in all of them is in Newer. A line of the output is
// one fact. Values that differ from run to run (names, ids, times) are left out or printed relative to the request, so
// that two brokers that do the same get the same text.
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.function.BooleanSupplier;
import java.util.zip.CRC32;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Walk {
    static final int PARTITIONS = 4;
    static final Duration POLL = Duration.ofMillis(50);
    // However slow the machine.
    static final long PATIENCE_MS = 150_000;

    final String bootstrap;
    final String stem;
    final short replication;
    final long begun = System.currentTimeMillis() / 1000 * 1000 - 3_600_000;
    final Admin admin;

    Walk(String bootstrap, String stem, String replication) {
        this.bootstrap = bootstrap;
        this.stem = stem;
        this.replication = Short.parseShort(replication);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        this.admin = Admin.create(settings);
    }

    public static void main(String[] arguments) {
        try {
            Walk walk = new Walk(arguments[0], arguments[1], arguments[2]);
            new Topics(walk).walk();
            new Records(walk).walk();
            new Groups(walk).walk();
            new Transactions(walk).walk();
            new Topics(walk).end();
            walk.admin.close();
            System.out.flush();
            Runtime.getRuntime().halt(0);
        } catch (Throwable failure) {
            System.out.flush();
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    String topic(String name) {
        return stem + "-" + name;
    }

    void say(String line, Object... values) {
        System.out.println(String.format(line, values).replace(stem, "STEM"));
    }

    // The outcome of a request, by the name of the exception's class.
    void outcome(String what, KafkaFuture<?> future) throws InterruptedException {
        try {
            future.get();
            say("%s: done", what);
        } catch (java.util.concurrent.ExecutionException failure) {
            say("%s: %s", what, failure.getCause().getClass().getSimpleName());
        }
    }

    void offsets(String what, String topic, OffsetSpec spec) throws Exception {
        Map<TopicPartition, OffsetSpec> asked = new TreeMap<>(java.util.Comparator.comparing(TopicPartition::partition));
        for (int partition = 0; partition < PARTITIONS; partition++) {
            asked.put(new TopicPartition(topic, partition), spec);
        }
        var answers = admin.listOffsets(asked);
        StringBuilder found = new StringBuilder();
        for (TopicPartition place : asked.keySet()) {
            var one = answers.partitionResult(place).get();
            found.append(' ').append(one.offset());
            found.append(one.timestamp() < 0 ? "" : "@" + (one.timestamp() - begun));
        }
        say("offsets %s:%s", what, found);
    }

    KafkaProducer<String, String> producer(String... more) {
        Properties settings = settings(more);
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        return new KafkaProducer<>(settings);
    }

    KafkaConsumer<String, String> consumer(String... more) {
        Properties settings = settings(more);
        settings.putIfAbsent("auto.offset.reset", "earliest");
        settings.putIfAbsent("enable.auto.commit", "false");
        settings.put("heartbeat.interval.ms", "200");
        settings.put("session.timeout.ms", "30000");
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        return new KafkaConsumer<>(settings);
    }

    private Properties settings(String... more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("retry.backoff.ms", "20");
        for (String one : more) {
            settings.put(one.substring(0, one.indexOf('=')), one.substring(one.indexOf('=') + 1));
        }
        return settings;
    }

    // Polls every one of `consumers` in turn until `done`.
    @SafeVarargs
    final void poll(String what, BooleanSupplier done, Digest into, KafkaConsumer<String, String>... consumers) {
        long limit = System.currentTimeMillis() + PATIENCE_MS;
        while (!done.getAsBoolean()) {
            for (KafkaConsumer<String, String> consumer : consumers) {
                ConsumerRecords<String, String> records = consumer.poll(POLL);
                records.forEach(into::add);
            }
            if (System.currentTimeMillis() > limit) {
                throw new IllegalStateException(what + ": not in time, " + into.total + " records");
            }
        }
    }

    // The records read, in the order of each partition.
    static class Digest {
        final Walk walk;
        int total;
        ConsumerRecord<String, String> last;
        private final Map<String, CRC32> sums = new TreeMap<>();
        private final Map<String, Integer> counts = new TreeMap<>();

        Digest(Walk walk) {
            this.walk = walk;
        }

        void add(ConsumerRecord<String, String> record) {
            String place = record.topic() + " " + record.partition();
            StringBuilder line = new StringBuilder();
            line.append(record.offset()).append(' ').append(record.timestamp() - walk.begun).append(' ');
            line.append(record.timestampType()).append(' ').append(record.leaderEpoch().isPresent()).append(' ');
            line.append(record.key()).append(' ').append(record.value());
            record.headers().forEach(header -> line.append(' ').append(header.key()).append('=')
                    .append(header.value() == null ? null : new String(header.value(), StandardCharsets.UTF_8)));
            sums.computeIfAbsent(place, any -> new CRC32()).update(line.toString().getBytes(StandardCharsets.UTF_8));
            counts.merge(place, 1, Integer::sum);
            total++;
            last = record;
        }

        void say(String what) {
            counts.forEach((place, count) ->
                    walk.say("%s %s: %d records, %08x", what, place, count, sums.get(place).getValue()));
        }
    }
}
