// Runs stock tools one after the other in a JVM that stays: each run costs only the tool, not the start of Java and the
// loading of a thousand classes.
//
// A line on stdin requests one run: main class, file of its standard input, file for its output, file for its errors,
// arguments; all in hex, apart from each other by a space. The answer is a line with the exit status on stdout, and "busy"
// behind it where an admin client of the tool is still at work. A tool that ends by Exit.exit or by returning, and whose
// threads have ended, has ended; one that ends the JVM ends its host.
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.utils.Exit;

public class ToolHost {
    /** Unwinds the thread that called exit. */
    static class Exited extends Error {
        Exited() {
            super("the tool has ended", null, false, false);
        }
    }

    /** System.in for as long as the JVM lives; Scala keeps the first one that it gets. */
    static class Input extends InputStream {
        volatile InputStream target = new ByteArrayInputStream(new byte[0]);

        @Override
        public int read() throws IOException {
            return target.read();
        }

        @Override
        public int read(byte[] bytes, int from, int most) throws IOException {
            return target.read(bytes, from, most);
        }

        @Override
        public int available() throws IOException {
            return target.available();
        }
    }

    /** Likewise for System.out and System.err. Output of a tool's threads after its exit is discarded. */
    static class Output extends OutputStream {
        volatile OutputStream target = OutputStream.nullOutputStream();

        @Override
        public void write(int value) throws IOException {
            write(new byte[] {(byte) value}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int from, int size) throws IOException {
            Run run = Threads.current();
            if (run == null || !run.ended) {
                target.write(bytes, from, size);
            }
        }

        @Override
        public void flush() throws IOException {
            target.flush();
        }
    }

    static final long PATIENCE_MS = 2000;
    static final long CLOSING_MS = 100;
    static final Input IN = new Input();
    static final Output OUT = new Output();
    static final Output ERR = new Output();

    /** The threads of one run, by which their calls are assigned to it. */
    static class Threads extends ThreadGroup {
        final Run run;

        Threads(Run run) {
            super("tool");
            this.run = run;
        }

        static Run current() {
            ThreadGroup group = Thread.currentThread().getThreadGroup();
            while (group != null && !(group instanceof Threads)) {
                group = group.getParent();
            }
            return group == null ? null : ((Threads) group).run;
        }
    }

    /** Loads the tools' own classes anew for each run, since they keep counts and options in static fields. */
    static class Tools extends URLClassLoader {
        static final URL[] JARS = Stream.of(System.getProperty("java.class.path").split(File.pathSeparator))
                .map(Tools::url)
                .toArray(URL[]::new);

        Tools() {
            super(JARS, ClassLoader.getSystemClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith("kafka.") && !name.startsWith("org.apache.kafka.tools.")) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class<?> found = findLoadedClass(name);
                return found == null ? findClass(name) : found;
            }
        }

        static URL url(String jar) {
            try {
                return new File(jar).toURI().toURL();
            } catch (MalformedURLException e) {
                throw new IllegalArgumentException(jar, e);
            }
        }
    }

    /** One run of one tool. */
    static class Run {
        final Threads threads = new Threads(this);
        final Tools tools = new Tools();
        final List<Runnable> hooks = new CopyOnWriteArrayList<>();
        volatile boolean ended;
        private Integer status;

        /** The first exit counts, as it does in a process. */
        synchronized void exit(int asked) {
            if (status == null) {
                status = asked;
                ended = hooks.isEmpty();
                notifyAll();
            }
            throw new Exited();
        }

        synchronized int status() throws InterruptedException {
            while (status == null && alive()) {
                wait(20);
            }
            return status == null ? 0 : status;
        }

        /** A process lives until its last thread that is no daemon ends. */
        private boolean alive() {
            Thread[] found = new Thread[threads.activeCount() + 16];
            int count = threads.enumerate(found);
            return Stream.of(found).limit(count).anyMatch(thread -> thread.isAlive() && !thread.isDaemon());
        }

        int main(String className, String[] arguments) throws Exception {
            Thread main = new Thread(threads, () -> call(className, arguments), "main");
            main.setContextClassLoader(tools);
            main.start();
            int asked = status();
            for (Runnable hook : hooks) {
                Thread thread = new Thread(threads, hook, "shutdown hook");
                thread.start();
                thread.join();
            }
            ended = true;
            main.join(PATIENCE_MS); // its shutdown is complete before the next run
            threads.interrupt();
            return asked;
        }

        /** An admin client of 4.3 that was not closed reconnects to its broker without a pause when that is gone. */
        boolean busy() throws InterruptedException {
            Thread[] found = new Thread[threads.activeCount() + 16];
            int count = threads.enumerate(found);
            for (Thread thread : Stream.of(found).limit(count).toList()) {
                if (thread.getName().startsWith("kafka-admin-client-thread")) {
                    close(thread);
                    thread.join(CLOSING_MS);
                    if (thread.isAlive()) {
                        return true;
                    }
                }
            }
            return false;
        }

        /** Closes the admin client of a thread, where this Java has the field that leads to it. */
        private static void close(Thread thread) {
            try {
                Object runnable = value(Thread.class, "target", thread);
                ((Admin) value(runnable.getClass(), "this$0", runnable)).close(Duration.ZERO);
            } catch (Exception e) {
                return; // the client goes on, and its JVM runs no other tool
            }
        }

        private static Object value(Class<?> owner, String name, Object of) throws ReflectiveOperationException {
            Field field = owner.getDeclaredField(name);
            field.setAccessible(true);
            return field.get(of);
        }

        private void call(String className, String[] arguments) {
            try {
                Class.forName(className, true, tools).getMethod("main", String[].class).invoke(null, (Object) arguments);
            } catch (InvocationTargetException e) {
                if (!(e.getCause() instanceof Exited)) {
                    fail(e.getCause());
                }
            } catch (ReflectiveOperationException e) {
                fail(e);
            }
        }

        /** As Java reports an exception that leaves main. */
        private void fail(Throwable thrown) {
            System.err.print("Exception in thread \"main\" ");
            thrown.printStackTrace();
            try {
                exit(1);
            } catch (Exited expected) {
                return;
            }
        }
    }

    public static void main(String[] unused) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream answers = System.out;
        System.setIn(IN);
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((asked, message) -> Threads.current().exit(asked));
        Exit.setHaltProcedure((asked, message) -> Threads.current().exit(asked));
        Exit.setShutdownHookAdder((name, hook) -> Threads.current().hooks.add(hook));
        Thread.setDefaultUncaughtExceptionHandler((thread, thrown) -> {
            if (!(thrown instanceof Exited)) {
                System.err.print("Exception in thread \"" + thread.getName() + "\" ");
                thrown.printStackTrace();
            }
        });
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] words = Stream.of(line.split(" ")).map(ToolHost::text).toArray(String[]::new);
            int status;
            boolean busy;
            try (InputStream in = new FileInputStream(words[1]);
                    OutputStream out = new FileOutputStream(words[2]);
                    OutputStream err = new FileOutputStream(words[3])) {
                IN.target = in;
                OUT.target = out;
                ERR.target = err;
                Run run = new Run();
                status = run.main(words[0], Stream.of(words).skip(4).toArray(String[]::new));
                busy = run.busy();
                System.out.flush();
                System.err.flush();
                OUT.target = ERR.target = OutputStream.nullOutputStream();
            }
            answers.println(busy ? status + " busy" : status);
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex.substring(1)), StandardCharsets.UTF_8);
    }
}
