// Kafka's own conversion of message sets of magic 0 and 1, driven by lines on stdin; one line answers each.
//
//   lift TARGET|producer COMPACTED TYPE BEFORE AFTER NOW MAX_BYTES HEX   -> "ok HEX", or "error CODE # what"
//   lower MAGIC FIRST_OFFSET HEX                                         -> "ok HEX", or "error CODE # what"
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

public class LegacyWitness {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder answers = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            String answer;
            try {
                answer = "ok " + (words[0].equals("lift") ? lift(words) : lower(words));
            } catch (RecordValidationException e) {
                answer = "error " + Errors.forException(e.invalidException()).code();
            } catch (Throwable e) { // snappy-java throws Errors, and the broker catches those too
                answer = "error " + Errors.forException(e).code() + " # " + e.toString().replace('\n', ' ');
            }
            answers.append(answer).append('\n');
        }
        System.out.print(answers);
    }

    static String lift(String[] words) {
        MemoryRecords records = MemoryRecords.readableRecords(unhex(words[8]));
        CompressionType source = CompressionType.NONE;
        int valid = 0;
        for (MutableRecordBatch batch : records.batches()) { // the batches, which the log checks before the validator
            if (batch.sizeInBytes() > Integer.parseInt(words[7]))
                throw new RecordTooLargeException();
            batch.ensureValid();
            if (batch.compressionType() != CompressionType.NONE)
                source = batch.compressionType();
            valid += batch.sizeInBytes();
        }
        if (valid == 0)
            return "";
        ByteBuffer whole = records.buffer().duplicate();
        whole.limit(valid);
        Compression target = words[1].equals("producer") ? Compression.of(source).build() : Compression.of(words[1]).build();
        LogValidator validator = new LogValidator(MemoryRecords.readableRecords(whole), new TopicPartition("t", 0),
            fixed(Long.parseLong(words[6])), source, target, Boolean.parseBoolean(words[2]), RecordBatch.MAGIC_VALUE_V2,
            TimestampType.forName(words[3]), Long.parseLong(words[4]), Long.parseLong(words[5]), 0, AppendOrigin.CLIENT,
            MetadataVersion.latestProduction());
        return hex(validator.validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(0), new NoMetrics(),
            BufferSupplier.NO_CACHING).validatedRecords.buffer());
    }

    static String lower(String[] words) {
        return hex(MemoryRecords.readableRecords(unhex(words[3]))
            .downConvert(Byte.parseByte(words[1]), Long.parseLong(words[2]), Time.SYSTEM).records().buffer());
    }

    static Time fixed(long now) {
        return (Time) java.lang.reflect.Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, values) -> switch (method.getName()) {
                case "milliseconds" -> now;
                case "nanoseconds", "hiResClockMs" -> 0L;
                default -> throw new UnsupportedOperationException(method.getName());
            });
    }

    static class NoMetrics implements LogValidator.MetricsRecorder {
        public void recordInvalidMagic() { }
        public void recordInvalidOffset() { }
        public void recordInvalidSequence() { }
        public void recordInvalidChecksums() { }
        public void recordNoKeyCompactedTopic() { }
    }

    static String hex(ByteBuffer buffer) {
        byte[] content = new byte[buffer.remaining()];
        buffer.duplicate().get(content);
        return HexFormat.of().formatHex(content);
    }

    static ByteBuffer unhex(String text) {
        return ByteBuffer.wrap(HexFormat.of().parseHex(text));
    }
}
