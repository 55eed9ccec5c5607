// One round of Kafka's own cleaner, in place, on one partition, at a moment that stands still. Without a
// clean-shutdown marker the log is recovered first.
package org.apache.kafka.storage.internals.log;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.utils.Throttler;

public final class CleaningRound {
    /** What a broker's configuration says to its cleaner and to the topic, and the moment of the round. */
    static final class Settings {
        final Map<String, String> topic = new HashMap<>(Map.of("cleanup.policy", "compact"));
        long now;
        int threads = 1;
        long dedupeBufferSize = 128L << 20;
        int ioBufferSize = 512 << 10;
        double loadFactor = 0.9;
        int messageMaxBytes = 1_048_588;
        int producerIdExpirationMs = 86_400_000;

        void put(String key, String value) {
            switch (key) {
                case "log.cleaner.threads" -> threads = Integer.parseInt(value);
                case "log.cleaner.dedupe.buffer.size" -> dedupeBufferSize = Long.parseLong(value);
                case "log.cleaner.io.buffer.size" -> ioBufferSize = Integer.parseInt(value);
                case "log.cleaner.io.buffer.load.factor" -> loadFactor = Double.parseDouble(value);
                case "message.max.bytes" -> messageMaxBytes = Integer.parseInt(value);
                case "producer.id.expiration.ms" -> producerIdExpirationMs = Integer.parseInt(value);
                default -> putTopic(key, value);
            }
        }

        private void putTopic(String key, String value) {
            if (!LogConfig.configNames().contains(key) && !key.equals(LogConfig.INTERNAL_SEGMENT_BYTES_CONFIG))
                throw new IllegalArgumentException(key + " is no setting of a topic or of the cleaner");
            topic.put(topicKey(key, value), value);
        }

        void read(Path file) throws IOException {
            Properties all = new Properties();
            try (Reader in = Files.newBufferedReader(file)) { all.load(in); }
            all.forEach((key, value) -> put((String) key, ((String) value).trim()));
        }

        int mapBytes() { return (int) Math.min(dedupeBufferSize / threads, Integer.MAX_VALUE); }
        int bufferBytes() { return ioBufferSize / threads / 2; }
    }

    /** Kafka 4 refuses segments under 1 MiB, except by its internal name. */
    static String topicKey(String key, String value) {
        boolean small = key.equals("segment.bytes") && Long.parseLong(value) < 1 << 20;
        return small ? LogConfig.INTERNAL_SEGMENT_BYTES_CONFIG : key;
    }

    /** Every partition with a directory counts as known, so that its checkpoint lines stay. */
    private static ConcurrentHashMap<TopicPartition, UnifiedLog> poolOf(File logDir, TopicPartition tp, UnifiedLog log) {
        ConcurrentHashMap<TopicPartition, UnifiedLog> pool = new ConcurrentHashMap<>() {
            @Override public boolean containsKey(Object partition) { return new File(logDir, partition.toString()).isDirectory(); }
        };
        pool.put(tp, log);
        return pool;
    }

    private static long bytes(UnifiedLog log) {
        return log.logSegments().stream().mapToLong(LogSegment::size).sum();
    }

    /** Loads, cleans what is cleanable, runs retention if asked, and stops cleanly; the result is what was seen on the way. */
    static Map<String, Object> run(File logDirectory, String partition, Settings settings, boolean retention) throws Exception {
        return run(logDirectory, partition, settings, retention, true);
    }

    static Map<String, Object> run(File logDirectory, String partition, Settings settings, boolean retention,
                                   boolean isClean) throws Exception {
        File logDir = logDirectory.getAbsoluteFile();
        File directory = new File(logDir, partition);
        TopicPartition tp = UnifiedLog.parseTopicPartitionName(directory);
        Time time = new Rig.StillTime(settings.now);
        Rig.WaitingScheduler scheduler = new Rig.WaitingScheduler();
        Map<String, Object> result = new LinkedHashMap<>();

        long began = System.nanoTime();
        UnifiedLog log = Rig.open(directory, new LogConfig(settings.topic),
            Rig.readCheckpoint(logDir, Rig.LOG_STARTS).getOrDefault(tp, 0L),
            Rig.readCheckpoint(logDir, Rig.RECOVERY_POINTS).getOrDefault(tp, 0L),
            settings.now, settings.producerIdExpirationMs, isClean, scheduler);
        log.updateHighWatermark(Rig.readCheckpoint(logDir, Rig.HIGH_WATERMARKS).getOrDefault(tp, log.logEndOffset()));
        result.put("load_seconds", (System.nanoTime() - began) / 1e9);

        LogCleanerManager manager = new LogCleanerManager(List.of(logDir), poolOf(logDir, tp, log), new LogDirFailureChannel(1));
        try {
            Optional<Long> checkpoint = Optional.ofNullable(manager.allCleanerCheckpoints().get(tp));
            // Not for its answer: like a broker it may set a checkpoint outside the log right before the round.
            boolean due = manager.grabFilthiestCompactedLog(time, new PreCleanStats()).isPresent();
            LogCleanerManager.OffsetsToClean range = LogCleanerManager.cleanableOffsets(log, checkpoint, settings.now);
            long first = range.firstDirtyOffset();
            LogToClean work = new LogToClean(log, first, Math.max(first, range.firstUncleanableDirtyOffset()), false);
            result.put("partition", partition);
            result.put("now", settings.now);
            result.put("log_start", log.logStartOffset());
            result.put("high_watermark", log.highWatermark());
            result.put("last_stable", log.lastStableOffset());
            result.put("log_end", log.logEndOffset());
            result.put("checkpoint", checkpoint.orElse(null));
            result.put("first_dirty", first);
            result.put("upper", work.firstUncleanableOffset());
            result.put("due", due);
            result.put("bytes_before", bytes(log));
            result.put("cleaned", false);
            if (work.cleanableBytes() > 0) {
                long end = clean(work, settings, time, result);
                long writing = System.nanoTime();
                manager.updateCheckpoints(logDir, Optional.of(Map.entry(tp, end)), Optional.empty());
                result.put("checkpoint_seconds", (System.nanoTime() - writing) / 1e9);
            }
            if (retention) result.put("retention_deleted", log.deleteOldSegments());
        } finally {
            manager.removeMetrics();
        }
        result.put("bytes_after", bytes(log));
        result.put("segments_after", log.numberOfSegments());

        long stopping = System.nanoTime();
        boolean raised = log.logStartOffset() > log.logSegments().iterator().next().baseOffset();
        Rig.close(log, scheduler);
        Rig.putCheckpoint(logDir, Rig.RECOVERY_POINTS, tp, log.recoveryPoint());
        Rig.putCheckpoint(logDir, Rig.LOG_STARTS, tp, raised ? log.logStartOffset() : null);
        Rig.writeMarker(logDir);
        result.put("close_seconds", (System.nanoTime() - stopping) / 1e9);
        result.put("kafka", AppInfoParser.getVersion());
        return result;
    }

    /** The round itself. A failure is part of the result: Kafka keeps the groups it has swapped and the old checkpoint. */
    private static long clean(LogToClean work, Settings settings, Time time, Map<String, Object> result) {
        try {
            SkimpyOffsetMap map = new SkimpyOffsetMap(settings.mapBytes(), CleanerConfig.HASH_ALGORITHM);
            Cleaner cleaner = new Cleaner(0, map, settings.bufferBytes(), settings.messageMaxBytes, settings.loadFactor,
                new Throttler(Double.MAX_VALUE, 300, "rig", "bytes", time), time, partition -> { });
            long began = System.nanoTime();
            Map.Entry<Long, CleanerStats> done = cleaner.clean(work);
            result.put("total_seconds", (System.nanoTime() - began) / 1e9);
            CleanerStats stats = done.getValue();
            result.put("cleaned", true);
            result.put("end", done.getKey());
            result.put("map_seconds", stats.elapsedIndexSecs());
            result.put("map_messages_read", stats.mapMessagesRead());
            result.put("bytes_read", stats.bytesRead());
            result.put("bytes_written", stats.bytesWritten());
            result.put("messages_read", stats.messagesRead());
            result.put("messages_written", stats.messagesWritten());
            result.put("invalid_messages", stats.invalidMessagesRead());
            return done.getKey();
        } catch (Throwable e) {
            result.put("error", e.toString());
            return work.firstDirtyOffset();
        }
    }

    /** Rounds in one process: stdin has lines of LOG_DIR TOPIC-PARTITION NOW_MS SETTINGS, stdout an answer for each. */
    private static void runEach(BufferedReader lines) throws IOException {
        ObjectMapper json = new ObjectMapper();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            Map<String, Object> result;
            try {
                Settings settings = new Settings();
                settings.now = Long.parseLong(words[2]);
                settings.read(Path.of(words[3]));
                result = run(new File(words[0]), words[1], settings, false, Rig.hasMarker(new File(words[0])));
            } catch (Throwable e) {
                result = Map.of("failed", e.toString());
            }
            System.out.println(json.writeValueAsString(result));
        }
    }

    public static void main(String[] args) throws Exception {
        if (args.length == 1 && args[0].equals("-")) {
            runEach(new BufferedReader(new InputStreamReader(System.in)));
            return;
        }
        if (args.length < 4 || args.length > 5) {
            System.err.println("usage: CleaningRound LOG_DIR TOPIC-PARTITION NOW_MS SETTINGS.properties [retention], or -");
            System.exit(64);
        }
        Settings settings = new Settings();
        settings.now = Long.parseLong(args[2]);
        settings.read(Path.of(args[3]));
        Map<String, Object> result = run(new File(args[0]), args[1], settings, args.length == 5,
            Rig.hasMarker(new File(args[0])));
        System.out.println(new ObjectMapper().writeValueAsString(result));
        System.exit(result.containsKey("error") ? 2 : 0);
    }
}
