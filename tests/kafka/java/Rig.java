// What every program of this directory shares: a clock that stands still, a scheduler that waits to be told, Kafka's
// checkpoint files, and a log opened and closed the way a broker does it around a clean stop.
// The package is Kafka's own because LogCleanerManager.cleanableOffsets and some others are visible only there.
package org.apache.kafka.storage.internals.log;

import java.io.File;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.nio.file.Files;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Delayed;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

final class Rig {
    static final String CLEANER_OFFSETS = "cleaner-offset-checkpoint";
    static final String RECOVERY_POINTS = "recovery-point-offset-checkpoint";
    static final String HIGH_WATERMARKS = "replication-offset-checkpoint";
    static final String LOG_STARTS = "log-start-offset-checkpoint";

    private Rig() { }

    /** Milliseconds stand still, nanoseconds run: durations stay real. */
    record StillTime(long now) implements Time {
        @Override public long milliseconds() { return now; }
        @Override public long nanoseconds() { return System.nanoTime(); }
        @Override public void sleep(long ms) { }
        @Override public void waitObject(Object lock, Supplier<Boolean> condition, long deadline) {
            throw new UnsupportedOperationException("time does not pass here");
        }
    }

    /** Keeps one-shot tasks (flushes, deletions of .deleted files) until asked for them; periodic tasks never run. */
    static final class WaitingScheduler implements Scheduler {
        private final Deque<Runnable> tasks = new ArrayDeque<>();

        @Override public void startup() { }
        @Override public void shutdown() { }
        @Override public void resizeThreadPool(int size) { }

        @Override public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs < 0) tasks.add(task);
            return new Promise();
        }

        void runAll() {
            while (!tasks.isEmpty()) tasks.remove().run();
        }
    }

    private static final class Promise extends CompletableFuture<Object> implements ScheduledFuture<Object> {
        @Override public long getDelay(TimeUnit unit) { return 0; }
        @Override public int compareTo(Delayed other) { return 0; }
    }

    static Map<TopicPartition, Long> readCheckpoint(File logDir, String name) throws IOException {
        File file = new File(logDir, name);
        return file.exists() ? new OffsetCheckpointFile(file, null).read() : Map.of();
    }

    /** Sets one entry, or drops it when `offset` is null; the file is rewritten only when that changes it. */
    static void putCheckpoint(File logDir, String name, TopicPartition tp, Long offset) throws IOException {
        Map<TopicPartition, Long> old = readCheckpoint(logDir, name);
        Map<TopicPartition, Long> entries = new HashMap<>(old);
        if (offset == null) entries.remove(tp);
        else entries.put(tp, offset);
        if (!entries.equals(old)) new OffsetCheckpointFile(new File(logDir, name), null).write(entries);
    }

    static UnifiedLog open(File directory, LogConfig config, long logStart, long recoveryPoint, long now,
                           int producerIdExpirationMs, WaitingScheduler scheduler) throws IOException {
        return open(directory, config, logStart, recoveryPoint, now, producerIdExpirationMs, true, scheduler);
    }

    /** Loads one partition, as after a clean stop or not. */
    static UnifiedLog open(File directory, LogConfig config, long logStart, long recoveryPoint, long now,
                           int producerIdExpirationMs, boolean isClean, WaitingScheduler scheduler) throws IOException {
        return UnifiedLog.create(directory, config, logStart, recoveryPoint, scheduler, new BrokerTopicStats(),
            new StillTime(now), 900_000, new ProducerStateManagerConfig(producerIdExpirationMs, true), 600_000,
            new LogDirFailureChannel(1), isClean, Optional.empty());
    }

    static UnifiedLog openNew(File directory, LogConfig config, long now, WaitingScheduler scheduler) throws IOException {
        Files.createDirectories(directory.toPath());
        return open(directory, config, 0, 0, now, 86_400_000, scheduler);
    }

    /** Waiting tasks done, all on disk, files closed. Since 4.4 a broker trims the active segment before; 4.3 in close(). */
    static void close(UnifiedLog log, WaitingScheduler scheduler) throws IOException {
        scheduler.runAll();
        try {
            UnifiedLog.class.getMethod("prepareActiveSegmentForClose").invoke(log);
        } catch (NoSuchMethodException before44) {
            // close() does it
        } catch (InvocationTargetException e) {
            throw new IOException("no clean stop: " + e.getCause(), e.getCause());
        } catch (IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
        log.flush(true);
        log.close();
    }

    static boolean hasMarker(File logDir) {
        return new CleanShutdownFileHandler(logDir.getPath()).exists();
    }

    static void writeMarker(File logDir) throws Exception {
        CleanShutdownFileHandler marker = new CleanShutdownFileHandler(logDir.getPath());
        if (!marker.exists()) marker.write(-1);
    }

    static void deleteIfThere(File logDir, String name) throws IOException {
        Files.deleteIfExists(new File(logDir, name).toPath());
    }
}
