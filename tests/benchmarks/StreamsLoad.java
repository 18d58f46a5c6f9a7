import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.RocksDBConfigSetter;
import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.Cache;
import org.rocksdb.LRUCache;
import org.rocksdb.Options;
import org.rocksdb.WriteBufferManager;

/**
 * The applications of streams_topologies.py in Java. Arguments are name=value: kind, input, output, table, and those of
 * StreamsConfig (names with a dot). Prints RUNNING when it begins to read, and how long a restoration took; ends with
 * its standard input.
 */
public final class StreamsLoad {
    private static final Duration WINDOW = Duration.ofMinutes(1);

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        Properties config = new Properties();
        config.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        config.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            if (parts[0].contains(".")) {
                config.put(parts[0], parts[1]);
            } else {
                options.put(parts[0], parts[1]);
            }
        }
        if (config.containsKey(Bounded.LIMIT)) {
            config.put(StreamsConfig.ROCKSDB_CONFIG_SETTER_CLASS_CONFIG, Bounded.class);
        }
        KafkaStreams streams = new KafkaStreams(topology(options), config);
        streams.setStateListener((now, before) -> {
            System.out.println(now);
            if (now == KafkaStreams.State.ERROR) {
                Runtime.getRuntime().halt(1);
            }
        });
        streams.setGlobalStateRestoreListener(new Restoration());
        streams.start();
        while (System.in.read() >= 0) {
            continue;
        }
        streams.close(Duration.ofSeconds(20));
    }

    private static Topology topology(Map<String, String> options) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> stream =
            builder.stream(options.get("input"), Consumed.with(Serdes.String(), Serdes.String()));
        String output = options.get("output");
        switch (options.get("kind")) {
            case "stateless":
                stream.filter((key, value) -> value.charAt(0) != '0')
                    .mapValues(value -> value.toUpperCase())
                    .map((key, value) -> KeyValue.pair(value.substring(0, 4), value))
                    .to(output, Produced.with(Serdes.String(), Serdes.String()));
                break;
            case "wordcount":
                stream.groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
                    .count(Materialized.as("counts"))
                    .toStream()
                    .to(output, Produced.with(Serdes.String(), Serdes.Long()));
                break;
            case "join":
                KTable<String, String> rows = builder.table(
                    options.get("table"), Consumed.with(Serdes.String(), Serdes.String()), Materialized.as("counts"));
                stream.join(rows, (value, row) -> value.substring(0, 40) + row,
                        Joined.with(Serdes.String(), Serdes.String(), Serdes.String()))
                    .to(output, Produced.with(Serdes.String(), Serdes.String()));
                break;
            case "stores":
                for (int number = 0; number < 100; number++) {
                    stream.groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
                        .reduce((old, value) -> value, Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(
                            "latest-" + number).withLoggingDisabled());
                }
                stream.to(output, Produced.with(Serdes.String(), Serdes.String()));
                break;
            default:
                TimeWindows windows = TimeWindows.ofSizeAndGrace(WINDOW, Duration.ofMinutes(1));
                if (options.get("kind").equals("hopping")) {
                    windows = windows.advanceBy(Duration.ofSeconds(20));
                }
                stream.groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
                    .windowedBy(windows)
                    .count(Materialized.as("counts"))
                    .toStream()
                    .map((windowed, count) -> KeyValue.pair(windowed.key() + "@" + windowed.window().start(), count))
                    .to(output, Produced.with(Serdes.String(), Serdes.Long()));
        }
        return builder.build();
    }

    /** One block cache and one write buffer manager for all stores, as Kafka's documentation has it. */
    public static final class Bounded implements RocksDBConfigSetter {
        static final String LIMIT = "rocksdb.memory.max.bytes";
        private static Cache cache;
        private static WriteBufferManager manager;

        @Override
        public synchronized void setConfig(String store, Options options, Map<String, Object> configs) {
            if (cache == null) {
                long limit = Long.parseLong((String) configs.get(LIMIT));
                cache = new LRUCache(limit, -1, false);
                manager = new WriteBufferManager(limit / 2, cache);
            }
            BlockBasedTableConfig table = (BlockBasedTableConfig) options.tableFormatConfig();
            table.setBlockCache(cache);
            table.setCacheIndexAndFilterBlocks(true);
            table.setPinTopLevelIndexAndFilter(true);
            options.setTableFormatConfig(table);
            options.setWriteBufferManager(manager);
        }

        @Override
        public void close(String store, Options options) {
        }
    }

    private static final class Restoration implements StateRestoreListener {
        private long began;

        @Override
        public void onRestoreStart(TopicPartition changelog, String store, long start, long end) {
            began = System.nanoTime();
        }

        @Override
        public void onBatchRestored(TopicPartition changelog, String store, long end, long count) {
        }

        @Override
        public void onRestoreEnd(TopicPartition changelog, String store, long total) {
            System.out.println("RESTORED " + total + " " + (System.nanoTime() - began) / 1e9);
        }
    }
}
