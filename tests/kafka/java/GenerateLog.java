// Writes a cleanly stopped log dir with the one partition bench-0, through Kafka's own log classes.
//
// W1: 4 million records of 100 bytes over a million keys; W2: 500 000 records of 1 KiB over 100 000 keys. Keys are 16
// bytes, drawn evenly, spread over the key space so that neighbours are not alike; half of each value is random bytes.
package org.apache.kafka.storage.internals.log;

import java.io.File;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.HashMap;
import java.util.Map;
import java.util.SplittableRandom;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;

public final class GenerateLog {
    static final long START = 1_700_000_000_000L;
    static final String PARTITION = "bench-0";
    private static final Header[] NO_HEADERS = new Header[0];
    private static final int BATCH_BYTES = 65_536;
    private static final int KEY_BYTES = 16;

    private final SplittableRandom random;
    private final byte[] pool = new byte[1 << 22];
    private final int valueBytes;
    private final long distinctKeys;
    private final double tombstones;

    private GenerateLog(long seed, int valueBytes, long distinctKeys, double tombstones) {
        this.random = new SplittableRandom(seed);
        this.valueBytes = valueBytes;
        this.distinctKeys = distinctKeys;
        this.tombstones = tombstones;
        byte[] noise = new byte[pool.length];
        random.nextBytes(noise);
        for (int i = 0; i < pool.length; i++) pool[i] = i % 64 < 32 ? noise[i] : (byte) ('a' + i % 16);
    }

    private ByteBuffer key() {
        long rank = random.nextLong(distinctKeys);
        long spread = (rank + 1) * 0x9E3779B97F4A7C15L; // odd, so one-to-one
        return ByteBuffer.allocate(KEY_BYTES).putLong(spread).putLong(Long.rotateLeft(spread, 23) ^ rank).flip();
    }

    private ByteBuffer value() {
        if (tombstones > 0 && random.nextDouble() < tombstones) return null;
        return ByteBuffer.wrap(pool, random.nextInt(pool.length - valueBytes), valueBytes);
    }

    /** One batch from `offset`, at most up to `stop` (exclusive). */
    private MemoryRecordsBuilder batch(long offset, long stop, Compression codec, ByteBuffer buffer) {
        buffer.clear();
        MemoryRecordsBuilder batch = new MemoryRecordsBuilder(new ByteBufferOutputStream(buffer), (byte) 2, codec,
            TimestampType.CREATE_TIME, offset, -1L, -1L, (short) -1, -1, false, false, 0, BATCH_BYTES);
        for (long next = offset; next < stop; next++) {
            long timestamp = START + next / 10;
            ByteBuffer key = key();
            ByteBuffer value = value();
            ByteBuffer valueView = value == null ? null : value.duplicate();
            if (next > offset && !batch.hasRoomFor(timestamp, key.duplicate(), valueView, NO_HEADERS)) break;
            batch.appendWithOffset(next, timestamp, key, value);
        }
        return batch;
    }

    public static void main(String[] args) throws Exception {
        if (args.length < 2 || args.length % 2 != 0) {
            System.err.println("usage: GenerateLog LOG_DIR W1|W2 [scale 1] [codec none] [seed 1] [tombstones 0] [segment-bytes 104857600]");
            System.exit(64);
        }
        Map<String, String> option = new HashMap<>(Map.of("scale", "1", "codec", "none", "seed", "1", "tombstones", "0",
            "segment-bytes", "104857600"));
        for (int i = 2; i < args.length; i += 2) option.put(args[i], args[i + 1]);
        boolean small = args[1].equals("W1");
        double scale = Double.parseDouble(option.get("scale"));
        long records = Math.round((small ? 4_000_000 : 500_000) * scale);
        long keys = Math.max(1, Math.round((small ? 1_000_000 : 100_000) * scale));
        int valueBytes = small ? 100 : 1024;
        GenerateLog generator = new GenerateLog(Long.parseLong(option.get("seed")), valueBytes, keys,
            Double.parseDouble(option.get("tombstones")));

        File logDir = new File(args[0]).getAbsoluteFile();
        File directory = new File(logDir, PARTITION);
        if (directory.exists()) throw new IllegalStateException(directory + " is already there");
        LogConfig config = new LogConfig(Map.of("cleanup.policy", "compact",
            CleaningRound.topicKey("segment.bytes", option.get("segment-bytes")), option.get("segment-bytes")));
        Rig.WaitingScheduler scheduler = new Rig.WaitingScheduler();
        UnifiedLog log = Rig.openNew(directory, config, START, scheduler);
        log.assignTopicId(new Uuid(1, 1));
        Compression codec = Compression.of(CompressionType.forName(option.get("codec"))).build();
        ByteBuffer buffer = ByteBuffer.allocate(BATCH_BYTES + valueBytes + 512);
        long activeFrom = records - Math.max(1, records / 100);
        long next = 0;
        while (next < records) {
            if (next == activeFrom) log.roll();
            log.appendAsFollower(generator.batch(next, next < activeFrom ? activeFrom : records, codec, buffer).build(), 0);
            next = log.logEndOffset();
        }
        Rig.close(log, scheduler);
        finish(logDir, UnifiedLog.parseTopicPartitionName(directory), next);
        System.out.println("{\"records\":" + records + ",\"bytes\":" + log.size() + ",\"segments\":" + log.numberOfSegments() + "}");
        System.exit(0);
    }

    /** What a clean stop leaves beside the partition. */
    private static void finish(File logDir, TopicPartition tp, long end) throws Exception {
        Rig.putCheckpoint(logDir, Rig.RECOVERY_POINTS, tp, end);
        Rig.putCheckpoint(logDir, Rig.HIGH_WATERMARKS, tp, end);
        for (String name : new String[] {Rig.CLEANER_OFFSETS, Rig.LOG_STARTS})
            new OffsetCheckpointFile(new File(logDir, name), null).write(Map.of());
        Files.writeString(new File(logDir, "meta.properties").toPath(),
            "#\n#\ncluster.id=bGctY2xlYW5lci10ZXN0cw\ndirectory.id=bGctY2xlYW5lci1kaXItMQ\nnode.id=1\nversion=1\n");
        Rig.writeMarker(logDir);
    }
}
