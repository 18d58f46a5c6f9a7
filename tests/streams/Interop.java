// The application that tests/streams/test_java_interop.py has in Python, too: the same topics, the same state.
//
//   java … Interop.java BOOTSTRAP APPLICATION_ID STATE_DIRECTORY
//
// It prints its states, and closes at SIGTERM.
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;

public class Interop {
    static final Serde<String> TEXT = Serdes.String();

    public static void main(String[] arguments) throws InterruptedException {
        Topology topology = build(arguments[1]);
        say(topology.describe().toString().replace("\n", "\\n"));
        KafkaStreams streams = new KafkaStreams(topology, settings(arguments));
        streams.setStateListener((now, before) -> say(now.toString()));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
        Thread.currentThread().join();
    }

    static Topology build(String application) {
        StreamsBuilder builder = new StreamsBuilder();
        KGroupedStream<String, String> words = builder.stream("lines", Consumed.with(TEXT, TEXT))
                .map((key, word) -> new KeyValue<>(word, key))
                .groupByKey(Grouped.with(TEXT, TEXT));
        words.count(Materialized.as("totals"))
                .toStream()
                .to(application + "-counts", Produced.with(TEXT, Serdes.Long()));
        words.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofMinutes(10)))
                .count()
                .toStream()
                .to(application + "-windowed", Produced.with(
                        WindowedSerdes.timeWindowedSerdeFrom(String.class, 60_000), Serdes.Long()));
        KTable<String, String> left = builder.table("left", Consumed.with(TEXT, TEXT));
        KTable<String, String> right = builder.table("right", Consumed.with(TEXT, TEXT), Materialized.as("rights"));
        left.join(right, (one, other) -> one + "+" + other)
                .toStream()
                .to(application + "-joined", Produced.with(TEXT, TEXT));
        return builder.build();
    }

    static Properties settings(String[] arguments) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "2000");
        settings.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), "300");
        settings.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), "3000");
        return settings;
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
