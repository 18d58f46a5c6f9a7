// Transactions: committed, aborted and fenced; what each isolation level reads; offsets that belong to a transaction.
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

class Transactions {
    private final Walk walk;
    private final String topic;
    private final String id;

    Transactions(Walk walk) {
        this.walk = walk;
        this.topic = walk.topic("copy");
        this.id = walk.topic("transactional");
    }

    void walk() throws Exception {
        String[] settings = {"transactional.id=" + id, "transaction.timeout.ms=" + Walk.PATIENCE_MS, "compression.type=lz4"};
        KafkaProducer<String, String> producer = walk.producer(settings);
        producer.initTransactions();
        for (int number = 0; number < 4; number++) {
            transact(producer, number);
        }
        read("read_committed", 2);
        read("read_uncommitted", 4);
        offsets();
        fenced(producer, settings);
    }

    private void transact(KafkaProducer<String, String> producer, int number) throws Exception {
        producer.beginTransaction();
        for (int partition = 0; partition < Walk.PARTITIONS; partition++) {
            producer.send(new ProducerRecord<>(topic, partition, walk.begun + number, "key", "transaction " + number));
        }
        producer.sendOffsetsToTransaction(
                Map.of(new TopicPartition(topic, 1), new OffsetAndMetadata(100 + number, "of " + number)),
                new ConsumerGroupMetadata(walk.topic("copiers")));
        producer.flush();
        if (number == 1) {
            Newer.transactions(walk, id, topic);
        }
        if (number % 2 == 0) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    // Markers are between the records; aborted records are skipped or not.
    private void read(String level, int count) {
        try (KafkaConsumer<String, String> consumer = walk.consumer("isolation.level=" + level)) {
            TopicPartition place = new TopicPartition(topic, 0);
            consumer.assign(List.of(place));
            List<String> found = new ArrayList<>();
            Walk.Digest read = new Walk.Digest(walk) {
                @Override
                void add(org.apache.kafka.clients.consumer.ConsumerRecord<String, String> record) {
                    super.add(record);
                    found.add(record.offset() + " " + record.value());
                }
            };
            walk.poll("reading transactions", () -> consumer.position(place) >= 8, read, consumer);
            walk.say("%s: %s as expected %s, end %d", level, found, read.total == count,
                    consumer.endOffsets(List.of(place)).get(place));
        }
    }

    private void offsets() throws Exception {
        walk.say("offset of the last that was committed: %d", walk.admin.listConsumerGroupOffsets(walk.topic("copiers"))
                .partitionsToOffsetAndMetadata().get().get(new TopicPartition(topic, 1)).offset());
    }

    private void fenced(KafkaProducer<String, String> first, String[] settings) throws Exception {
        first.beginTransaction();
        first.send(new ProducerRecord<>(topic, 2, "k", "of the first")).get();
        KafkaProducer<String, String> second = walk.producer(settings);
        second.initTransactions();
        try {
            first.commitTransaction();
            walk.say("the first commits");
        } catch (KafkaException failure) {
            walk.say("the first: %s", failure.getClass().getSimpleName());
        }
        first.close();
        second.beginTransaction();
        second.send(new ProducerRecord<>(topic, 2, "k", "of the second")).get();
        second.commitTransaction();
        second.close();
        var place = new TopicPartition(topic, 2);
        // The coordinator answers a commit when it is decided; its marker follows.
        try (KafkaConsumer<String, String> consumer = walk.consumer("isolation.level=read_committed")) {
            consumer.assign(List.of(place));
            Walk.Digest read = new Walk.Digest(walk);
            walk.poll("the second's marker", () -> consumer.position(place) >= 12, read, consumer);
            walk.say("end after all: %d", consumer.position(place));
        }
    }
}
