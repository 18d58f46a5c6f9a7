// Records: every codec, headers and times; assign, seek, pause, offsets by time; records that are deleted or too large.
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

class Records {
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    static final int PER_CODEC = 20;

    private final Walk walk;
    private final String topic;

    Records(Walk walk) {
        this.walk = walk;
        this.topic = walk.topic("codecs");
    }

    void walk() throws Exception {
        produce();
        refused();
        consume();
        offsets();
    }

    private void produce() throws Exception {
        int number = 0;
        for (String codec : CODECS) {
            boolean plain = codec.equals("none");
            String idempotence = "enable.idempotence=" + !plain, acks = plain ? "acks=1" : "acks=all";
            try (KafkaProducer<String, String> producer =
                    walk.producer("compression.type=" + codec, idempotence, acks, "linger.ms=50")) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int i = 0; i < PER_CODEC; i++, number++) {
                    var record = new ProducerRecord<>(topic, i % Walk.PARTITIONS, walk.begun + 1000L * number,
                            number % 5 == 0 ? null : "key " + number,
                            number % 7 == 0 ? null : codec + " ".repeat(i) + number);
                    record.headers().add("codec", codec.getBytes(StandardCharsets.UTF_8)).add("nothing", null);
                    sent.add(producer.send(record));
                }
                RecordMetadata last = sent.get(PER_CODEC - 1).get();
                walk.say("%s: last in %d at %d, its time %d", codec, last.partition(), last.offset(),
                        last.timestamp() - walk.begun);
            }
        }
    }

    private void refused() {
        try (KafkaProducer<String, String> producer = walk.producer("max.request.size=4000000")) {
            for (var record : List.of(
                    new ProducerRecord<>(topic, 0, "large", "x".repeat(2_000_000)),
                    new ProducerRecord<>(walk.topic("no such name"), "k", "v"))) {
                try {
                    producer.send(record).get();
                    walk.say("accepted");
                } catch (ExecutionException failure) {
                    walk.say("refused: %s", failure.getCause().getClass().getSimpleName());
                } catch (Exception failure) {
                    walk.say("refused: %s", failure.getClass().getSimpleName());
                }
            }
        }
    }

    private List<TopicPartition> places() {
        List<TopicPartition> places = new ArrayList<>();
        for (int partition = 0; partition < Walk.PARTITIONS; partition++) {
            places.add(new TopicPartition(topic, partition));
        }
        return places;
    }

    private void consume() {
        int total = CODECS.size() * PER_CODEC;
        try (KafkaConsumer<String, String> consumer = walk.consumer()) {
            consumer.assign(places());
            Walk.Digest all = new Walk.Digest(walk);
            walk.poll("reading all", () -> all.total == total, all, consumer);
            all.say("assigned");

            List<TopicPartition> paused = places().subList(1, Walk.PARTITIONS);
            consumer.seekToBeginning(places());
            consumer.pause(paused);
            Walk.Digest first = new Walk.Digest(walk);
            walk.poll("reading one", () -> first.total == total / Walk.PARTITIONS, first, consumer);
            first.say("while the others pause");
            consumer.resume(paused);
            Walk.Digest others = new Walk.Digest(walk);
            walk.poll("reading on", () -> others.total == total - first.total, others, consumer);
            others.say("resumed");

            consumer.seek(places().get(2), 21);
            Walk.Digest end = new Walk.Digest(walk);
            walk.poll("seeking", () -> end.total == 4, end, consumer);
            walk.say("from 21: %d, last %d, position %d", end.total, end.last.offset(),
                    consumer.position(places().get(2)));
            byTime(consumer);
        }
    }

    private void byTime(KafkaConsumer<String, String> consumer) {
        for (long second : List.of(-10L, 0L, 50L, 99L, 100L)) {
            Map<TopicPartition, Long> asked = new HashMap<>();
            places().forEach(place -> asked.put(place, walk.begun + 1000 * second));
            Map<TopicPartition, OffsetAndTimestamp> found = consumer.offsetsForTimes(asked);
            StringBuilder line = new StringBuilder();
            for (TopicPartition place : places()) {
                OffsetAndTimestamp one = found.get(place);
                line.append(one == null ? " none" : " " + one.offset() + "@" + (one.timestamp() - walk.begun));
            }
            walk.say("at %d s:%s", second, line);
        }
        walk.say("beginning %s, end %s", inOrder(consumer.beginningOffsets(places())),
                inOrder(consumer.endOffsets(places())));
        walk.say("partitions %d, this topic is listed %s", consumer.partitionsFor(topic).size(),
                consumer.listTopics().containsKey(topic));
    }

    private List<Long> inOrder(Map<TopicPartition, Long> offsets) {
        List<Long> found = new ArrayList<>();
        places().forEach(place -> found.add(offsets.get(place)));
        return found;
    }

    private void offsets() throws Exception {
        TopicPartition place = new TopicPartition(topic, 1);
        var deleted = walk.admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(3)));
        walk.say("deleted up to %d", deleted.lowWatermarks().get(place).get().lowWatermark());
        walk.outcome("deleted past the end",
                walk.admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(3000))).all());
        walk.offsets("of the earliest", topic, OffsetSpec.earliest());
        walk.offsets("of the latest", topic, OffsetSpec.latest());
        walk.offsets("at 50 s", topic, OffsetSpec.forTimestamp(walk.begun + 50_000));
        Newer.offsets(walk, topic);
        try (KafkaConsumer<String, String> consumer = walk.consumer("auto.offset.reset=none")) {
            consumer.assign(List.of(place));
            consumer.seek(place, 0);
            Walk.Digest none = new Walk.Digest(walk);
            walk.poll("reading what is deleted", () -> none.total > 0, none, consumer);
        } catch (org.apache.kafka.common.KafkaException failure) {
            walk.say("reading what is deleted: %s", failure.getClass().getSimpleName());
        }
    }
}
