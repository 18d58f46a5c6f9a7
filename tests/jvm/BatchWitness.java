// Kafka's own reader, writer and validator of record batches, driven by lines on stdin; one line answers each.
//
//   write CODEC LEVEL BASE_OFFSET APPEND_TIME|- PRODUCER_ID EPOCH SEQUENCE TRANSACTIONAL RECORD...   -> hex of the batch
//   marker COMMIT BASE_OFFSET TIMESTAMP LEADER_EPOCH PRODUCER_ID EPOCH COORDINATOR_EPOCH            -> hex of the batch
//   read HEX                                                     -> header fields, then RECORD...
//   validate API_VERSION COMPACTED TYPE BEFORE AFTER NOW EPOCH HEX   -> "ok HEX", or "error CODE INDEX... # what"
//
// A RECORD is offset,timestamp,key,value,headers; bytes are hex after an x, null is -, a header is key:value, and a
// header ends with a semicolon.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.DefaultRecordBatch;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

public class BatchWitness {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder answers = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            answers.append(switch (words[0]) {
                case "write" -> write(words);
                case "marker" -> marker(words);
                case "read" -> read(words[1]);
                case "validate" -> validate(words);
                default -> throw new IllegalArgumentException(words[0]);
            }).append('\n');
        }
        System.out.print(answers);
    }

    static String write(String[] words) {
        Compression codec = compression(words[1], words[2]);
        boolean appendTime = !words[4].equals("-");
        TimestampType type = appendTime ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(1024), RecordBatch.MAGIC_VALUE_V2,
            codec, type, Long.parseLong(words[3]), appendTime ? Long.parseLong(words[4]) : RecordBatch.NO_TIMESTAMP,
            Long.parseLong(words[5]), Short.parseShort(words[6]), Integer.parseInt(words[7]),
            Boolean.parseBoolean(words[8]), false, RecordBatch.NO_PARTITION_LEADER_EPOCH, Integer.MAX_VALUE);
        for (int i = 9; i < words.length; i++) {
            String[] fields = words[i].split(",", -1);
            builder.appendWithOffset(Long.parseLong(fields[0]), Long.parseLong(fields[1]), bytes(fields[2]),
                bytes(fields[3]), headers(fields[4]));
        }
        return hex(builder.build().buffer());
    }

    static String marker(String[] words) {
        ControlRecordType type = Boolean.parseBoolean(words[1]) ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        return hex(MemoryRecords.withEndTransactionMarker(Long.parseLong(words[2]), Long.parseLong(words[3]),
            Integer.parseInt(words[4]), Long.parseLong(words[5]), Short.parseShort(words[6]),
            new EndTransactionMarker(type, Integer.parseInt(words[7]))).buffer());
    }

    static String read(String text) {
        RecordBatch batch = MemoryRecords.readableRecords(unhex(text)).batches().iterator().next();
        StringBuilder answer = new StringBuilder();
        answer.append(String.join(" ", String.valueOf(batch.isValid()), String.valueOf(batch.baseOffset()),
            String.valueOf(batch.lastOffset()), String.valueOf(batch.partitionLeaderEpoch()),
            String.valueOf(batch.compressionType().id), String.valueOf(batch.maxTimestamp()),
            String.valueOf(batch.producerId()), String.valueOf(batch.producerEpoch()),
            String.valueOf(batch.baseSequence()), String.valueOf(batch.lastSequence()),
            String.valueOf(batch.isTransactional()), String.valueOf(batch.isControlBatch()),
            String.valueOf(batch.timestampType() == TimestampType.LOG_APPEND_TIME),
            batch.deleteHorizonMs().isPresent() ? String.valueOf(batch.deleteHorizonMs().getAsLong()) : "-"));
        for (Record record : batch)
            answer.append(' ').append(text(record));
        return answer.toString();
    }

    static String validate(String[] words) {
        ByteBuffer buffer = unhex(words[8]);
        MemoryRecords records = MemoryRecords.readableRecords(buffer);
        long now = Long.parseLong(words[6]);
        try {
            ProduceRequest.validateRecords(Short.parseShort(words[1]), records);
            DefaultRecordBatch batch = (DefaultRecordBatch) records.batches().iterator().next();
            batch.ensureValid();
            CompressionType codec = batch.compressionType();
            LogValidator validator = new LogValidator(records, new TopicPartition("t", 0), fixed(now), codec,
                Compression.of(codec).build(), Boolean.parseBoolean(words[2]), RecordBatch.MAGIC_VALUE_V2,
                TimestampType.forName(words[3]), Long.parseLong(words[4]), Long.parseLong(words[5]),
                Integer.parseInt(words[7]), AppendOrigin.CLIENT, MetadataVersion.latestProduction());
            return "ok " + hex(validator.validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(1000), new NoMetrics(),
                BufferSupplier.NO_CACHING).validatedRecords.buffer());
        } catch (RecordValidationException e) {
            return "error " + Errors.forException(e.invalidException()).code() + " " + e.recordErrors().stream()
                .map(error -> String.valueOf(error.batchIndex)).collect(Collectors.joining(" "));
        } catch (Throwable e) { // snappy-java throws Errors, and the broker catches those too
            return "error " + Errors.forException(e).code() + " # " + e.toString().replace('\n', ' ');
        }
    }

    static Compression compression(String name, String level) {
        if (level.equals("-"))
            return Compression.of(name).build();
        int number = Integer.parseInt(level);
        return switch (name) {
            case "gzip" -> Compression.gzip().level(number).build();
            case "lz4" -> Compression.lz4().level(number).build();
            case "zstd" -> Compression.zstd().level(number).build();
            default -> throw new IllegalArgumentException(name);
        };
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

    static String text(Record record) {
        StringBuilder headers = new StringBuilder();
        for (Header header : record.headers())
            headers.append(text(header.key().getBytes(StandardCharsets.UTF_8))).append(':').append(text(header.value()))
                .append(';');
        return record.offset() + "," + record.timestamp() + "," + text(array(record.key())) + ","
            + text(array(record.value())) + "," + headers;
    }

    static Header[] headers(String text) {
        List<Header> headers = new ArrayList<>();
        for (String header : text.split(";")) {
            if (header.isEmpty())
                continue;
            String[] pair = header.split(":");
            headers.add(new RecordHeader(new String(bytes(pair[0]), StandardCharsets.UTF_8), bytes(pair[1])));
        }
        return headers.toArray(new Header[0]);
    }

    static byte[] array(ByteBuffer buffer) {
        if (buffer == null)
            return null;
        byte[] content = new byte[buffer.remaining()];
        buffer.duplicate().get(content);
        return content;
    }

    static String text(byte[] content) {
        return content == null ? "-" : "x" + HexFormat.of().formatHex(content);
    }

    static byte[] bytes(String text) {
        return text.equals("-") ? null : HexFormat.of().parseHex(text.substring(1));
    }

    static String hex(ByteBuffer buffer) {
        return HexFormat.of().formatHex(array(buffer));
    }

    static ByteBuffer unhex(String text) {
        return ByteBuffer.wrap(HexFormat.of().parseHex(text));
    }
}
