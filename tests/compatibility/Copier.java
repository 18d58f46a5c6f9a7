// Copies records from one topic to another, exactly once: consume, transform, produce, offsets in the transaction.
//
//   java … Copier.java BOOTSTRAP GROUP FROM TO classic|consumer
//
// Each step of a transaction is a line on stdout, so that a test can end this process, or the broker, between any two.
// After an error that Kafka calls abortable it aborts and reads again; after any other the process ends with status 1,
// as an application under a supervisor does, and the next one takes over its transactional id and its place in the
// group.
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Copier {
    public static void main(String[] arguments) {
        String bootstrap = arguments[0], group = arguments[1], from = arguments[2], to = arguments[3];
        KafkaProducer<String, String> producer = new KafkaProducer<>(producerSettings(bootstrap, group));
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consumerSettings(bootstrap, group, arguments[4]));
        try {
            // Before any read: it ends the open transaction of an earlier process, and with it the pending offsets.
            producer.initTransactions();
            say("ready");
            consumer.subscribe(List.of(from));
            while (true) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                if (!records.isEmpty()) {
                    copy(producer, consumer, records, to);
                }
            }
        } catch (KafkaException failure) {
            say("fatal " + failure);
            Runtime.getRuntime().halt(1);
        }
    }

    static void copy(
            KafkaProducer<String, String> producer,
            KafkaConsumer<String, String> consumer,
            ConsumerRecords<String, String> records,
            String to) {
        Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
        Map<TopicPartition, Long> first = new HashMap<>();
        try {
            producer.beginTransaction();
            say("begun");
            for (ConsumerRecord<String, String> record : records) {
                TopicPartition place = new TopicPartition(record.topic(), record.partition());
                first.putIfAbsent(place, record.offset());
                next.put(place, new OffsetAndMetadata(record.offset() + 1));
                producer.send(new ProducerRecord<>(to, record.partition(), record.key(), "copy of " + record.value()));
            }
            say("sent " + records.count());
            producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
            say("offsets");
            producer.commitTransaction();
            say("committed " + records.count());
        } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException
                | UnsupportedVersionException | TimeoutException failure) {
            throw failure;
        } catch (KafkaException failure) {
            producer.abortTransaction();
            say("aborted " + failure);
            first.forEach(consumer::seek);
        }
    }

    static Properties producerSettings(String bootstrap, String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", group + "-copier");
        settings.put("transaction.timeout.ms", "20000");
        settings.put("max.block.ms", System.getProperty("max.block.ms", "30000"));
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        return settings;
    }

    static Properties consumerSettings(String bootstrap, String group, String protocol) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("group.instance.id", "copier");
        settings.put("isolation.level", "read_committed");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("max.poll.records", "100");
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        if (!protocol.equals("classic")) {
            settings.put("group.protocol", protocol);
        }
        return settings;
    }

    static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
