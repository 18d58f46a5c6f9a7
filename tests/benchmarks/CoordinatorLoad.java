// Loads on the coordinators with Kafka's own clients; the last line on stdout sums up.
//
//   java … CoordinatorLoad.java transactions BOOTSTRAP TOPIC RECORDS RECORD_BYTES RECORDS_IN_EACH
//   java … CoordinatorLoad.java commits      BOOTSTRAP TOPIC COMMITS CONSUMERS
//
//   -> COUNT SECONDS MEAN_MS P50_MS P99_MS     times are those of a transaction, or of a commit
//
// Transactions are made one after the other, from the first send to the end of the commit. Commits are synchronous, by
// several consumers at once, each in a group of its own.
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class CoordinatorLoad {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[1]);
        int count = Integer.parseInt(arguments[3]);
        if (arguments[0].equals("transactions")) {
            transactions(settings, arguments[2], count, new byte[Integer.parseInt(arguments[4])],
                    Integer.parseInt(arguments[5]));
        } else {
            commits(settings, arguments[2], count, Integer.parseInt(arguments[4]));
        }
    }

    static void transactions(Properties settings, String topic, int records, byte[] value, int inEach) {
        settings.put("transactional.id", topic);
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        long[] times = new long[(records + inEach - 1) / inEach];
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            producer.initTransactions();
            long began = System.nanoTime();
            for (int number = 0, sent = 0; number < times.length; number++) {
                long start = System.nanoTime();
                producer.beginTransaction();
                for (int each = 0; each < inEach && sent < records; each++, sent++) {
                    producer.send(new ProducerRecord<>(topic, 0, null, value));
                }
                producer.commitTransaction();
                times[number] = System.nanoTime() - start;
            }
            sumUp(records, System.nanoTime() - began, times);
        }
    }

    static void commits(Properties settings, String topic, int count, int consumers) throws InterruptedException {
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("enable.auto.commit", "false");
        long[] times = new long[count];
        AtomicInteger next = new AtomicInteger();
        TopicPartition partition = new TopicPartition(topic, 0);
        Thread[] threads = new Thread[consumers];
        for (int number = 0; number < consumers; number++) {
            Properties own = new Properties();
            own.putAll(settings);
            own.put("group.id", topic + "-" + number);
            threads[number] = new Thread(() -> {
                try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(own)) {
                    for (int each = next.getAndIncrement(); each < count; each = next.getAndIncrement()) {
                        long start = System.nanoTime();
                        consumer.commitSync(Map.of(partition, new OffsetAndMetadata(each)));
                        times[each] = System.nanoTime() - start;
                    }
                }
            });
        }
        long began = System.nanoTime();
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        sumUp(count, System.nanoTime() - began, times);
    }

    static void sumUp(int count, long elapsed, long[] times) {
        double mean = Arrays.stream(times).average().orElse(0) / 1e6;
        Arrays.sort(times);
        double middle = times[times.length / 2] / 1e6, late = times[(int) (times.length * 0.99)] / 1e6;
        System.out.println(count + " " + elapsed / 1e9 + " " + mean + " " + middle + " " + late);
    }
}
