import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.ShellBolt;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.BasicOutputCollector;
import org.apache.storm.topology.BoltDeclarer;
import org.apache.storm.topology.IRichBolt;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseBasicBolt;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/**
 * Apache Storm's word count in a LocalCluster with one worker. Run by {@code benchmarks/storm.py}.
 *
 * <p>{@code StormWords words DIRECTORY SECS [NAME=VALUE ...]} reads the files of a directory over and over for SECS
 * seconds, as fast as the bolts allow. Prints {@code mark SECONDS WORDS} ten times a second, and at the end
 * {@code ended WORDS_EMITTED WORDS_COUNTED LINES_FAILED}.
 *
 * <p>{@code StormWords latency DIRECTORY RATE SECS [NAME=VALUE ...]} emits RATE lines a second for WARM_SECS + SECS
 * seconds, and measures those that are due after WARM_SECS. Prints milliseconds: {@code latency P50 P99 P99.9 MAX}
 * from the emit of a line to the ack at its spout, {@code since_due P50 P99 P99.9 MAX} from the moment at which the
 * line should have been emitted, and {@code ended LINES_ACKED LINES_FAILED}.
 *
 * <p>Spout, bolts and this program share one JVM, and with it the static fields. A failed line is not emitted again.
 */
public final class StormWords {
    static final int WORDS_A_LINE = 10;
    static final int WARM_SECS = 10;
    static final int WAIT_SECS_MAX = 60;
    static final LongAdder EMITTED_LINES = new LongAdder();
    static final LongAdder ACKED_LINES = new LongAdder();
    static final LongAdder FAILED_LINES = new LongAdder();
    static final LongAdder COUNTED_WORDS = new LongAdder();
    static volatile boolean open = true;
    static volatile PacedLines paced;

    private StormWords() {}

    public static void main(String[] arguments) throws Exception {
        boolean isLatency = arguments[0].equals("latency");
        Path directory = Path.of(arguments[1]);
        int rate = isLatency ? Integer.parseInt(arguments[2]) : 0;
        int secs = Integer.parseInt(arguments[isLatency ? 3 : 2]);
        Settings settings = Settings.parse(arguments, isLatency ? 4 : 3);
        LocalCluster cluster = new LocalCluster();
        TopologyBuilder builder = topology(settings, isLatency ? new PacedLines(directory, rate) : new Lines(directory));
        cluster.submitTopology("words", settings.config(), builder.createTopology());
        waitUntil("the topology emits", () -> EMITTED_LINES.sum() > 0);
        if (isLatency) {
            measureLatency(secs);
        } else {
            measureWords(secs);
        }
        System.out.flush();
        // The orderly end of a cluster takes many seconds, and nothing of it is kept.
        Runtime.getRuntime().halt(0);
    }

    static TopologyBuilder topology(Settings settings, BaseRichSpout spout) {
        TopologyBuilder builder = new TopologyBuilder();
        builder.setSpout("lines", spout, settings.executors("lines"));
        addBolt(builder, settings, "split", new Split()).localOrShuffleGrouping("lines");
        addBolt(builder, settings, "count", new Count()).fieldsGrouping("split", new Fields("word"));
        return builder;
    }

    /** Adds a bolt: the given one, or with the setting {@code program} the one of that Python program. */
    static BoltDeclarer addBolt(TopologyBuilder builder, Settings settings, String name, BaseBasicBolt bolt) {
        int executors = settings.executors(name);
        if (settings.has("program")) {
            IRichBolt python = new PythonBolt(settings.text("python"), settings.text("program"), name);
            return builder.setBolt(name, python, executors);
        }
        return builder.setBolt(name, bolt, executors);
    }

    static void measureWords(int secs) throws InterruptedException {
        long end = System.nanoTime() + secs * 1_000_000_000L;
        while (System.nanoTime() < end) {
            say("mark %.3f %d", System.nanoTime() / 1e9, COUNTED_WORDS.sum());
            Thread.sleep(100);
        }
        open = false;
        waitUntil("every word is counted", () -> COUNTED_WORDS.sum() >= EMITTED_LINES.sum() * WORDS_A_LINE);
        say("ended %d %d %d", EMITTED_LINES.sum() * WORDS_A_LINE, COUNTED_WORDS.sum(), FAILED_LINES.sum());
    }

    static void measureLatency(int secs) throws InterruptedException {
        Thread.sleep((WARM_SECS + secs) * 1000L);
        open = false;
        waitUntil("every line is acked", () -> ACKED_LINES.sum() + FAILED_LINES.sum() >= EMITTED_LINES.sum());
        sayShares("latency", paced.sinceEmit);
        sayShares("since_due", paced.sinceDue);
        say("ended %d %d", paced.sinceEmit.size(), FAILED_LINES.sum());
    }

    static void sayShares(String name, List<Long> nanos) {
        long[] sorted = nanos.stream().mapToLong(Long::longValue).sorted().toArray();
        say("%s %.3f %.3f %.3f %.3f", name, at(sorted, 0.5), at(sorted, 0.99), at(sorted, 0.999), at(sorted, 1));
    }

    /** The smallest value, in milliseconds, that this share of all values does not exceed. */
    static double at(long[] ascendingNanos, double share) {
        return ascendingNanos[(int) Math.ceil(share * ascendingNanos.length) - 1] / 1e6;
    }

    static void say(String format, Object... values) {
        System.out.println(String.format(Locale.ROOT, format, values));
    }

    static void waitUntil(String what, BooleanSupplier isDone) throws InterruptedException {
        long end = System.nanoTime() + WAIT_SECS_MAX * 1_000_000_000L;
        while (!isDone.getAsBoolean()) {
            if (System.nanoTime() > end) {
                System.err.printf("waited %d s until %s, in vain%n", WAIT_SECS_MAX, what);
                System.err.flush();
                Runtime.getRuntime().halt(1);
            }
            Thread.sleep(10);
        }
    }

    /**
     * What stands behind the positional arguments: executors by component, a Python program instead of the Java bolts,
     * and what begins with {@code topology.}, which goes into Storm's configuration.
     */
    record Settings(Map<String, String> values) {
        static Settings parse(String[] arguments, int first) {
            Map<String, String> values = new HashMap<>();
            for (String argument : Arrays.asList(arguments).subList(first, arguments.length)) {
                String[] parts = argument.split("=", 2);
                values.put(parts[0], parts[1]);
            }
            return new Settings(values);
        }

        boolean has(String name) {
            return values.containsKey(name);
        }

        String text(String name) {
            return values.get(name);
        }

        int executors(String component) {
            return Integer.parseInt(values.getOrDefault(component, "1"));
        }

        Config config() {
            Config config = new Config();
            config.setNumWorkers(1);
            config.setNumAckers(executors("ackers"));
            values.forEach((name, value) -> {
                if (name.startsWith("topology.")) {
                    config.put(name, typed(value));
                }
            });
            return config;
        }

        private static Object typed(String value) {
            if (value.matches("[0-9]+")) {
                return Integer.valueOf(value);
            }
            return value.equals("true") || value.equals("false") ? Boolean.valueOf(value) : value;
        }
    }

    /** Emits the lines of its share of the files, again and again, with a message id if there are ackers. */
    static class Lines extends BaseRichSpout {
        private final String directory;
        private transient SpoutOutputCollector collector;
        private transient Endless lines;
        private transient boolean hasAckers;
        private transient long emitted;

        Lines(Path directory) {
            this.directory = directory.toString();
        }

        @Override
        public void open(Map<String, Object> conf, TopologyContext context, SpoutOutputCollector collector) {
            int tasks = context.getComponentTasks(context.getThisComponentId()).size();
            this.collector = collector;
            lines = new Endless(Path.of(directory), context.getThisTaskIndex(), tasks);
            hasAckers = ((Number) conf.get(Config.TOPOLOGY_ACKER_EXECUTORS)).intValue() > 0;
        }

        @Override
        public void nextTuple() {
            if (open) {
                emit(emitted++);
            }
        }

        /** Emits the next line, with a message id if there is somebody who acks. */
        final void emit(Object messageId) {
            EMITTED_LINES.increment();
            if (hasAckers) {
                collector.emit(new Values(lines.next()), messageId);
            } else {
                collector.emit(new Values(lines.next()));
            }
        }

        @Override
        public void ack(Object messageId) {
            ACKED_LINES.increment();
        }

        @Override
        public void fail(Object messageId) {
            FAILED_LINES.increment();
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("line"));
        }
    }

    /** Emits so many lines a second and keeps how long each of them took. It has one task. */
    static final class PacedLines extends Lines {
        private final long intervalNanos;
        private transient long began;
        private transient long planned;
        private transient List<Long> sinceEmit;
        private transient List<Long> sinceDue;

        private record Sent(long due, long emitted) {}

        PacedLines(Path directory, int rate) {
            super(directory);
            intervalNanos = 1_000_000_000L / rate;
        }

        @Override
        public void open(Map<String, Object> conf, TopologyContext context, SpoutOutputCollector collector) {
            super.open(conf, context, collector);
            sinceEmit = new ArrayList<>();
            sinceDue = new ArrayList<>();
            paced = this;
        }

        @Override
        public void nextTuple() {
            long now = System.nanoTime();
            if (planned == 0) {
                began = now;
            }
            long due = began + planned * intervalNanos;
            if (open && now >= due) {
                planned++;
                emit(new Sent(due, now));
            }
        }

        @Override
        public void ack(Object messageId) {
            Sent sent = (Sent) messageId;
            if (sent.due - began >= WARM_SECS * 1_000_000_000L) {
                long now = System.nanoTime();
                sinceEmit.add(now - sent.emitted);
                sinceDue.add(now - sent.due);
            }
            super.ack(messageId);
        }
    }

    /** The lines of each files whose number has this remainder; after the last of them the first again. */
    static final class Endless {
        private final List<Path> files;
        private int file;
        private BufferedReader reader;

        Endless(Path directory, int remainder, int divisor) {
            try (Stream<Path> listed = Files.list(directory)) {
                List<Path> all = listed.sorted().toList();
                files = all.stream().filter(path -> all.indexOf(path) % divisor == remainder).toList();
                reader = Files.newBufferedReader(files.get(0));
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        String next() {
            try {
                String line = reader.readLine();
                while (line == null) {
                    reader.close();
                    file = (file + 1) % files.size();
                    reader = Files.newBufferedReader(files.get(file));
                    line = reader.readLine();
                }
                return line;
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }

    static final class Split extends BaseBasicBolt {
        @Override
        public void execute(Tuple tuple, BasicOutputCollector collector) {
            for (String word : tuple.getString(0).split(" ")) {
                collector.emit(new Values(word));
            }
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("word"));
        }
    }

    static final class Count extends BaseBasicBolt {
        private transient Map<String, Integer> counts;

        @Override
        public void prepare(Map<String, Object> conf, TopologyContext context) {
            counts = new HashMap<>();
        }

        @Override
        public void execute(Tuple tuple, BasicOutputCollector collector) {
            counts.merge(tuple.getString(0), 1, Integer::sum);
            COUNTED_WORDS.increment();
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {}
    }

    /** A bolt of a Python program, by Storm's multilang protocol. What the program acks as "count" is counted. */
    static final class PythonBolt extends ShellBolt implements IRichBolt {
        private final boolean counts;

        PythonBolt(String python, String program, String bolt) {
            super(python, program, bolt);
            changeChildCWD(false);
            counts = bolt.equals("count");
        }

        @Override
        public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector collector) {
            super.prepare(conf, context, counts ? new CountAcks(collector) : collector);
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            if (!counts) {
                declarer.declare(new Fields("word"));
            }
        }

        @Override
        public Map<String, Object> getComponentConfiguration() {
            return Map.of();
        }
    }

    /** Counts a word when its tuple is acked. */
    static final class CountAcks extends OutputCollector {
        CountAcks(OutputCollector collector) {
            super(collector);
        }

        @Override
        public void ack(Tuple tuple) {
            super.ack(tuple);
            COUNTED_WORDS.increment();
        }
    }
}
