// Apache Kafka's own log and cleaner on a partition directory, driven by lines on stdin; one line answers each.
//
//   clean DIRECTORY FIRST_DIRTY NOW SEGMENT_BYTES DELETE_RETENTION_MS -> "ok FIRST_UNCLEANABLE CLEANED_TO", or "error what"
//   open DIRECTORY clean|unclean SEGMENT_BYTES NOW                    -> "ok LOG_START LOG_END", or "error what"
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledFuture;
import kafka.log.Cleaner;
import kafka.log.LogToClean;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.utils.Throttler;
import scala.Option;
import scala.runtime.BoxedUnit;

public class CleanerWitness {
    static final TopicPartition PARTITION = new TopicPartition("topic", 0);

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            String answer;
            try {
                answer = "ok " + (words[0].equals("clean") ? clean(words) : open(words));
            } catch (Throwable e) {
                answer = "error " + e.toString().replace('\n', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    static String clean(String[] words) throws Exception {
        long now = Long.parseLong(words[3]);
        UnifiedLog log = log(words[1], true, words[4], words[5], now);
        try {
            log.updateHighWatermark(log.logEndOffset());
            long uncleanable = Math.min(log.lastStableOffset(), log.activeSegment().baseOffset());
            Throttler throttler = new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", fixed(now));
            Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(1 << 20), 1 << 20, 1 << 20, 0.9, throttler, fixed(now),
                partition -> BoxedUnit.UNIT);
            LogToClean part = new LogToClean(PARTITION, log, Long.parseLong(words[2]), uncleanable, false);
            return part.firstUncleanableOffset() + " " + cleaner.doClean(part, now)._1();
        } finally {
            log.close();
        }
    }

    static String open(String[] words) throws Exception {
        UnifiedLog log = log(words[1], words[2].equals("clean"), words[3], "1", Long.parseLong(words[4]));
        try {
            return log.logStartOffset() + " " + log.logEndOffset();
        } finally {
            log.close();
        }
    }

    static UnifiedLog log(String directory, boolean clean, String segmentBytes, String retentionMs, long now) {
        LogConfig config = new LogConfig(Map.of("cleanup.policy", "compact", "segment.bytes", segmentBytes,
            "segment.index.bytes", "4096", "delete.retention.ms", retentionMs, "index.interval.bytes", "100"));
        return UnifiedLog.apply(new File(directory), config, 0, 0, new Idle(), new BrokerTopicStats(false), fixed(now), 60_000,
            new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(1), clean,
            Option.empty(), true, new ConcurrentHashMap<>(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
    }

    static Time fixed(long now) {
        return (Time) java.lang.reflect.Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, values) -> switch (method.getName()) {
                case "milliseconds", "hiResClockMs" -> now;
                case "nanoseconds" -> now * 1_000_000;
                default -> throw new UnsupportedOperationException(method.getName());
            });
    }

    static class Idle implements Scheduler {
        public void startup() { }
        public void shutdown() { }
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            return (ScheduledFuture<?>) java.lang.reflect.Proxy.newProxyInstance(Time.class.getClassLoader(),
                new Class<?>[] {ScheduledFuture.class}, (proxy, method, values) -> true); // nothing but cancelled
        }
        public void resizeThreadPool(int size) { }
    }
}
