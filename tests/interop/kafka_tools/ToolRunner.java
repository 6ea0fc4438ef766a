import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs Kafka's command-line tools in one JVM, one after another. The argument is the path of the jar with the tools. A line of
 * standard input is a JSON object with a main class, its arguments and its standard input; the line printed for it is a JSON
 * object with the exit status and what the tool printed.
 *
 * <p>A run has its own copy of the classes of the tools, so that no static field outlives it. What a tool prints after it asked
 * for the end of its process is dropped, as it would be with the process.
 */
public final class ToolRunner {
    private static final long LEFTOVER_MS_MAX = 10_000;
    private static final Map<Thread, Thread> JVM_HOOKS = jvmHooks();

    /** Thrown where a tool asks for the end of its process. */
    private static final class Ended extends Error {
        Ended() {
            super("the tool has ended", null, false, false);
        }
    }

    /** Loads the classes of the tools' jar itself, and all others as usual. */
    private static final class ToolLoader extends URLClassLoader {
        ToolLoader(URL jar) {
            super(new URL[] {jar}, ToolRunner.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            synchronized (getClassLoadingLock(name)) {
                Class<?> loaded = findLoadedClass(name);
                if (loaded == null && name.startsWith("org.apache.kafka.tools.")) {
                    try {
                        loaded = findClass(name);
                    } catch (ClassNotFoundException absent) {
                        // The package is split: interfaces of it are in another jar.
                    }
                }
                return loaded == null ? super.loadClass(name, resolve) : loaded;
            }
        }
    }

    /** One run of a tool. */
    private static final class Run {
        private final ByteArrayOutputStream printed = new ByteArrayOutputStream();
        private final ByteArrayOutputStream errors = new ByteArrayOutputStream();
        private final ByteArrayOutputStream terminal = new ByteArrayOutputStream();
        private final List<Runnable> hooks = new ArrayList<>();
        private final Set<Thread> known = Set.copyOf(JVM_HOOKS.keySet());
        private final CompletableFuture<Integer> status = new CompletableFuture<>();
        private boolean ended;

        private synchronized void write(ByteArrayOutputStream target, byte[] bytes, int start, int length) {
            if (!ended) {
                target.write(bytes, start, length);
                terminal.write(bytes, start, length);
            }
        }

        private PrintStream stream(ByteArrayOutputStream target) {
            OutputStream gate = new OutputStream() {
                @Override
                public void write(int single) {
                    write(new byte[] {(byte) single}, 0, 1);
                }

                @Override
                public void write(byte[] bytes, int start, int length) {
                    Run.this.write(target, bytes, start, length);
                }
            };
            return new PrintStream(gate, true, StandardCharsets.UTF_8);
        }

        /** Some tools add their hooks to the JVM, which goes on here. */
        private void addJvmHooks() {
            for (Thread hook : List.copyOf(JVM_HOOKS.keySet())) {
                if (!known.contains(hook) && Runtime.getRuntime().removeShutdownHook(hook)) {
                    addHook(hook);
                }
            }
        }

        private void addHook(Runnable hook) {
            synchronized (hooks) {
                hooks.add(hook);
            }
        }

        /** Runs the shutdown hooks, drops all further output, and settles the status. */
        private void end(int exitStatus) {
            addJvmHooks();
            List<Thread> running = new ArrayList<>();
            synchronized (hooks) {
                hooks.forEach(hook -> running.add(new Thread(hook, "shutdown-hook")));
                hooks.clear();
            }
            running.forEach(Thread::start);
            running.forEach(ToolRunner::join);
            synchronized (this) {
                ended = true;
            }
            status.complete(exitStatus);
        }

        private void exit(int exitStatus) {
            end(exitStatus);
            throw new Ended();
        }

        private synchronized Map<String, Object> outcome(int exitStatus) {
            return Map.of(
                "status", exitStatus,
                "printed", printed.toString(StandardCharsets.UTF_8),
                "errors", errors.toString(StandardCharsets.UTF_8),
                "terminal", terminal.toString(StandardCharsets.UTF_8));
        }
    }

    public static void main(String[] args) throws Exception {
        URL jar = Path.of(args[0]).toUri().toURL();
        ObjectMapper mapper = new ObjectMapper();
        PrintStream outcomes = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            outcomes.println(mapper.writeValueAsString(run(jar, mapper.readTree(line))));
            outcomes.flush();
        }
        System.exit(0);
    }

    @SuppressWarnings("unchecked")
    private static Map<Thread, Thread> jvmHooks() {
        try {
            Field hooks = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
            hooks.setAccessible(true);
            return (Map<Thread, Thread>) hooks.get(null);
        } catch (ReflectiveOperationException absent) {
            throw new IllegalStateException("this JVM does not show its shutdown hooks", absent);
        }
    }

    private static Map<String, Object> run(URL jar, JsonNode request) throws Exception {
        Run run = new Run();
        PrintStream out = System.out;
        PrintStream err = System.err;
        try (ToolLoader loader = new ToolLoader(jar)) {
            Exit.setExitProcedure((status, message) -> run.exit(status));
            Exit.setHaltProcedure((status, message) -> run.exit(status));
            Exit.setShutdownHookAdder((name, hook) -> run.addHook(hook));
            System.setIn(new ByteArrayInputStream(request.get("input").asText().getBytes(StandardCharsets.UTF_8)));
            System.setOut(run.stream(run.printed));
            System.setErr(run.stream(run.errors));
            Thread tool = new Thread(() -> call(run, loader, request), "tool");
            tool.setContextClassLoader(loader);
            tool.start();
            int status = run.status.get();
            tool.join(LEFTOVER_MS_MAX);
            return run.outcome(status);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
    }

    private static void call(Run run, ToolLoader loader, JsonNode request) {
        List<String> arguments = new ArrayList<>();
        request.get("arguments").forEach(argument -> arguments.add(argument.asText()));
        int status = 0;
        try {
            Class<?> tool = loader.loadClass(request.get("main").asText());
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments.toArray(String[]::new));
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Ended)) {
                thrown.getCause().printStackTrace();
                status = 1;
            }
        } catch (ReflectiveOperationException absent) {
            absent.printStackTrace();
            status = 1;
        }
        if (!run.status.isDone()) {
            run.end(status);
        }
    }

    private static void join(Thread thread) {
        try {
            thread.join(LEFTOVER_MS_MAX);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
