// A client of Kafka 0.10: it writes, and reads in a consumer group. Commands, each of several words, follow one another:
//
//   write BOOTSTRAP TOPIC CODEC COUNT FIRST_TIMESTAMP      records "key-N" "value N …", acks=all
//   read BOOTSTRAP TOPIC GROUP COUNT                       prints TOPIC OFFSET TIMESTAMP TYPE KEY VALUE for each record
import java.util.Collections;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class OldClient {
    public static void main(String[] words) throws Exception {
        for (int at = 0; at < words.length; ) {
            switch (words[at]) {
                case "write" -> {
                    write(words[at + 1], words[at + 2], words[at + 3], Integer.parseInt(words[at + 4]),
                        Long.parseLong(words[at + 5]));
                    at += 6;
                }
                case "read" -> {
                    read(words[at + 1], words[at + 2], words[at + 3], Integer.parseInt(words[at + 4]));
                    at += 5;
                }
                default -> throw new IllegalArgumentException(words[at]);
            }
        }
        System.out.println("done");
    }

    static void write(String bootstrap, String topic, String codec, int count, long timestamp) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("compression.type", codec);
        properties.put("acks", "all");
        properties.put("linger.ms", "20");
        try (KafkaProducer<String, String> producer =
                 new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            Future<RecordMetadata> last = null;
            for (int n = 0; n < count; n++) {
                String key = n % 7 == 0 ? null : "key-" + n;
                String value = key != null && n % 11 == 0 ? null : "value " + n + " of an old client";
                last = producer.send(new ProducerRecord<>(topic, 0, timestamp + n, key, value));
            }
            if (last.get().offset() < count - 1)
                throw new IllegalStateException("the last record is at " + last.get().offset());
        }
    }

    static KafkaConsumer<String, String> consumer(String bootstrap, String group) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", group);
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    static void read(String bootstrap, String topic, String group, int count) {
        try (KafkaConsumer<String, String> consumer = consumer(bootstrap, group)) {
            consumer.subscribe(Collections.singletonList(topic));
            while (count > 0) {
                for (ConsumerRecord<String, String> record : consumer.poll(1000)) {
                    System.out.println(String.join(" ", topic, String.valueOf(record.offset()),
                        String.valueOf(record.timestamp()), record.timestampType().toString(),
                        String.valueOf(record.key()), String.valueOf(record.value())));
                    count--;
                }
            }
            consumer.commitSync();
        }
    }
}
