// Reads messages with Kafka's own generated classes and writes them again, for test_codec_jvm.py.
//
// A line of input is: class, version to read, version to write, bytes in hex. The line of output for it is the bytes
// that Kafka writes after reading, in hex, or "!" and the error of Kafka.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

public class Recode {
    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ", -1);
            short version = Short.parseShort(words[1]);
            ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(words[3]));
            String answer;
            try {
                Message message = (Message) Class.forName(words[0]).getDeclaredConstructor().newInstance();
                message.read(new ByteBufferAccessor(bytes), version);
                answer = bytes.hasRemaining()
                    ? "!" + bytes.remaining() + " bytes left over"
                    : write(message, Short.parseShort(words[2]));
            } catch (RuntimeException | ClassNotFoundException error) {
                answer = "!" + error;
            }
            output.append(answer.replace('\n', ' ')).append('\n');
        }
        System.out.print(output);
    }

    private static String write(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer bytes = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(bytes), cache, version);
        return HexFormat.of().formatHex(bytes.array(), 0, bytes.position());
    }
}
