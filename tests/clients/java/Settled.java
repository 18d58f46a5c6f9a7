// The topics in the metadata of one broker. A broker receives a topic, and its new partitions, a moment after the
// controller creates them, and the client chooses the broker: so each gets a Metadata request (version 4) over a
// connection of its own.
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

class Settled {
    private static final int METADATA = 3, VERSION = 4;

    // Returns when every broker has these topics with this many partitions.
    static void await(String bootstrap, Map<String, Integer> partitions) throws IOException {
        long limit = System.currentTimeMillis() + Walk.PATIENCE_MS;
        for (String address : bootstrap.split(",")) {
            int colon = address.lastIndexOf(':');
            try (Socket socket = new Socket(address.substring(0, colon), Integer.parseInt(address.substring(colon + 1)))) {
                while (!known(socket, partitions).equals(partitions)) {
                    if (System.currentTimeMillis() > limit) {
                        throw new IllegalStateException(address + " does not hear of " + partitions);
                    }
                }
            }
        }
    }

    private static Map<String, Integer> known(Socket socket, Map<String, Integer> asked) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream request = new DataOutputStream(bytes);
        request.writeShort(METADATA);
        request.writeShort(VERSION);
        request.writeInt(0);
        request.writeShort(-1); // no client id
        request.writeInt(asked.size());
        for (String name : asked.keySet()) {
            request.writeShort(name.length());
            request.writeBytes(name);
        }
        request.writeBoolean(false); // a request creates no topic
        DataOutputStream out = new DataOutputStream(socket.getOutputStream());
        out.writeInt(bytes.size());
        bytes.writeTo(out);
        DataInputStream in = new DataInputStream(socket.getInputStream());
        in.readInt(); // size
        in.readInt(); // correlation
        return topics(in);
    }

    private static Map<String, Integer> topics(DataInputStream in) throws IOException {
        in.readInt(); // throttle
        for (int left = in.readInt(); left > 0; left--) {
            in.readInt();
            text(in);
            in.readInt();
            text(in);
        }
        text(in); // the cluster
        in.readInt(); // the controller
        Map<String, Integer> found = new HashMap<>();
        for (int left = in.readInt(); left > 0; left--) {
            in.readShort();
            String name = text(in);
            in.readBoolean();
            int count = in.readInt();
            found.put(name, count);
            for (int partition = 0; partition < count; partition++) {
                in.readNBytes(2 + 4 + 4); // error, number, leader
                in.readNBytes(4 * in.readInt()); // replicas
                in.readNBytes(4 * in.readInt()); // in sync
            }
        }
        return found;
    }

    private static String text(DataInputStream in) throws IOException {
        short length = in.readShort();
        return length < 0 ? null : new String(in.readNBytes(length), StandardCharsets.UTF_8);
    }
}
