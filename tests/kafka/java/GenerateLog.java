// Writes a cleanly stopped log dir with the one partition bench-0, through Kafka's own log classes.
//
// A shape is a set of options by name (SHAPES); any option may be given besides. Keys are drawn evenly, or askew, and
// spread over the key space so that neighbours are not alike; a part of each value is random bytes. Everything but the
// last hundredth is cleanable.
package org.apache.kafka.storage.internals.log;

import java.io.File;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;

public final class GenerateLog {
    static final long START = 1_700_000_000_000L;
    static final String PARTITION = "bench-0";
    private static final long FIRST_PRODUCER_ID = 1000;
    private static final int POOL_BYTES = 1 << 22;

    /** Every option and what it is when nothing else is said: W1 with a codec, a size or a flag of one's own. */
    private static final Map<String, String> DEFAULTS = Map.ofEntries(
        Map.entry("scale", "1"), // of records and keys
        Map.entry("records", "4000000"), Map.entry("keys", "1000000"), Map.entry("skew", "0"), // 0: all keys alike
        Map.entry("key-bytes", "16"), Map.entry("value-bytes", "100"), // one number, or two: 1-5000
        Map.entry("entropy", "0.5"), // share of a value that is random
        Map.entry("tombstones", "0"), // share of records
        Map.entry("codec", "none"), // several with commas: drawn for each batch
        Map.entry("batch-bytes", "65536"), Map.entry("batch-records", "2147483647"),
        Map.entry("segment-bytes", "104857600"),
        Map.entry("headers", "0"), // of a record
        Map.entry("log-append-time", "false"),
        Map.entry("producers", "0"), // idempotent ones, taking turns at random
        Map.entry("transactions", "0"), // most batches of one; 0: the producers are idempotent only
        Map.entry("aborted", "0.2"), // share of transactions
        Map.entry("clean", "0"), // share of records below the cleaner's checkpoint, their keys all different
        Map.entry("new-keys", "false"), // records above it have keys of their own: they supersede nothing below it
        Map.entry("seed", "1"));

    private static final Map<String, Map<String, String>> SHAPES = Map.of(
        "W1", Map.of(),
        "W2", Map.of("records", "500000", "keys", "100000", "value-bytes", "1024"),
        "short", Map.of("key-bytes", "6", "value-bytes", "10"),
        "idempotent", Map.of("producers", "5", "batch-bytes", "16384"),
        "transactions", Map.of("producers", "5", "transactions", "20", "batch-bytes", "16384"),
        "headers", Map.of("headers", "2"),
        "logAppendTime", Map.of("log-append-time", "true"));

    /** A producer, and how many batches are left of its open transaction. */
    private static final class Producer {
        final long id;
        int sequence;
        int batchesLeft;

        Producer(long id) { this.id = id; }
    }

    private final Map<String, String> option;
    private final SplittableRandom random;
    private final byte[] pool = new byte[POOL_BYTES];
    private final List<Compression> codecs = new ArrayList<>();
    private final List<Producer> producers = new ArrayList<>();
    private final Header[] headers;
    private final long records, cleanTo, activeFrom, keys, firstKey;
    private final int keyBytes, leastValueBytes, mostValueBytes, batchBytes, batchRecords, longestTransaction;
    private final double skew, tombstones, aborted;
    private final TimestampType timestampType;
    private final ByteBuffer buffer;

    private GenerateLog(Map<String, String> option) {
        this.option = option;
        random = new SplittableRandom(Long.parseLong(option.get("seed")));
        double scale = number("scale");
        records = Math.round(number("records") * scale);
        cleanTo = Math.round(records * number("clean"));
        activeFrom = records - Math.max(1, records / 100);
        keys = Math.max(Math.max(1, Math.round(number("keys") * scale)), cleanTo);
        firstKey = Boolean.parseBoolean(option.get("new-keys")) ? cleanTo : 0;
        skew = number("skew");
        keyBytes = integer("key-bytes");
        String[] valueBytes = option.get("value-bytes").split("-");
        leastValueBytes = Integer.parseInt(valueBytes[0]);
        mostValueBytes = Integer.parseInt(valueBytes[valueBytes.length - 1]);
        tombstones = number("tombstones");
        batchBytes = integer("batch-bytes");
        batchRecords = integer("batch-records");
        longestTransaction = integer("transactions");
        aborted = number("aborted");
        timestampType = Boolean.parseBoolean(option.get("log-append-time")) ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
        for (String name : option.get("codec").split(",")) codecs.add(Compression.of(CompressionType.forName(name)).build());
        for (int i = 0; i < integer("producers"); i++) producers.add(new Producer(FIRST_PRODUCER_ID + i));
        headers = new Header[integer("headers")];
        for (int i = 0; i < headers.length; i++) headers[i] = new RecordHeader("header-" + i, new byte[] {'v', (byte) i, 0, 1});
        buffer = ByteBuffer.allocate(batchBytes + keyBytes + mostValueBytes + 1024);
        fillPool();
    }

    private double number(String name) { return Double.parseDouble(option.get(name)); }
    private int integer(String name) { return Integer.parseInt(option.get(name)); }

    private void fillPool() {
        byte[] noise = new byte[pool.length];
        random.nextBytes(noise);
        long noisy = Math.round(64 * number("entropy"));
        for (int i = 0; i < pool.length; i++) pool[i] = i % 64 < noisy ? noise[i] : (byte) ('a' + i % 16);
    }

    private ByteBuffer key(long offset) {
        long rank = offset < cleanTo ? offset : firstKey + (long) (keys * Math.pow(random.nextDouble(), 1 + skew));
        long spread = (rank + 1) * 0x9E3779B97F4A7C15L; // odd, so one-to-one
        ByteBuffer key = ByteBuffer.allocate(keyBytes);
        // Keys shorter than a long are the rank as it is: cutting off what is spread would not be one-to-one.
        for (long mixed = keyBytes < 8 ? rank : spread; key.hasRemaining(); mixed = Long.rotateLeft(mixed, 23) ^ rank)
            if (key.remaining() >= 8) key.putLong(mixed);
            else while (key.hasRemaining()) key.put((byte) (mixed >>> 8 * (key.remaining() - 1)));
        return key.flip();
    }

    private ByteBuffer value() {
        if (tombstones > 0 && random.nextDouble() < tombstones) return null;
        int bytes = random.nextInt(leastValueBytes, mostValueBytes + 1);
        return ByteBuffer.wrap(pool, random.nextInt(pool.length - bytes), bytes);
    }

    private static long timestamp(long offset) { return START + offset / 10; }

    /** One batch from `offset`, at most up to `stop` (exclusive). */
    private MemoryRecords batch(long offset, long stop, Producer producer) {
        buffer.clear();
        MemoryRecordsBuilder batch = new MemoryRecordsBuilder(new ByteBufferOutputStream(buffer), (byte) 2,
            codecs.get(random.nextInt(codecs.size())), timestampType, offset, timestamp(offset),
            producer == null ? -1L : producer.id, (short) (producer == null ? -1 : 0), producer == null ? -1 : producer.sequence,
            producer != null && longestTransaction > 0, false, 0, batchBytes);
        for (long next = offset; next < stop && next - offset < batchRecords; next++) {
            ByteBuffer key = key(next);
            ByteBuffer value = value();
            ByteBuffer valueView = value == null ? null : value.duplicate();
            if (next > offset && !batch.hasRoomFor(timestamp(next), key.duplicate(), valueView, headers)) break;
            batch.appendWithOffset(next, timestamp(next), key, value, headers);
        }
        if (producer != null) producer.sequence += batch.numRecords();
        return batch.build();
    }

    private void end(UnifiedLog log, Producer producer) throws Exception {
        producer.batchesLeft = 0;
        ControlRecordType how = random.nextDouble() < aborted ? ControlRecordType.ABORT : ControlRecordType.COMMIT;
        log.appendAsFollower(MemoryRecords.withEndTransactionMarker(log.logEndOffset(), timestamp(log.logEndOffset()), 0,
            producer.id, (short) 0, new EndTransactionMarker(how, 0)), 0);
    }

    /** Appends up to `stop`; no transaction is left open, and a new segment begins there. */
    private void fill(UnifiedLog log, long stop) throws Exception {
        while (log.logEndOffset() < stop) {
            Producer producer = producers.isEmpty() ? null : producers.get(random.nextInt(producers.size()));
            if (longestTransaction > 0 && producer.batchesLeft == 0) producer.batchesLeft = 1 + random.nextInt(longestTransaction);
            log.appendAsFollower(batch(log.logEndOffset(), stop, producer), 0);
            if (longestTransaction > 0 && --producer.batchesLeft == 0) end(log, producer);
        }
        for (Producer each : producers) if (each.batchesLeft > 0) end(log, each);
    }

    private void write(File logDir) throws Exception {
        File directory = new File(logDir, PARTITION);
        if (directory.exists()) throw new IllegalStateException(directory + " is already there");
        LogConfig config = new LogConfig(Map.of("cleanup.policy", "compact", "max.message.bytes", "104857600",
            CleaningRound.topicKey("segment.bytes", option.get("segment-bytes")), option.get("segment-bytes")));
        Rig.WaitingScheduler scheduler = new Rig.WaitingScheduler();
        UnifiedLog log = Rig.openNew(directory, config, START, scheduler);
        log.assignTopicId(new Uuid(1, 1));
        fill(log, cleanTo);
        Map<TopicPartition, Long> cleaned = cleanTo == 0 ? Map.of() : Map.of(log.topicPartition(), log.logEndOffset());
        if (cleanTo > 0) log.roll();
        fill(log, activeFrom);
        log.roll();
        fill(log, records);
        Rig.close(log, scheduler);
        finish(logDir, log.topicPartition(), log.logEndOffset(), cleaned);
        System.out.println("{\"records\":" + log.logEndOffset() + ",\"bytes\":" + log.size() + ",\"segments\":" + log.numberOfSegments() + "}");
    }

    /** What a clean stop leaves beside the partition. */
    private static void finish(File logDir, TopicPartition tp, long end, Map<TopicPartition, Long> cleaned) throws Exception {
        Rig.putCheckpoint(logDir, Rig.RECOVERY_POINTS, tp, end);
        Rig.putCheckpoint(logDir, Rig.HIGH_WATERMARKS, tp, end);
        new OffsetCheckpointFile(new File(logDir, Rig.CLEANER_OFFSETS), null).write(cleaned);
        new OffsetCheckpointFile(new File(logDir, Rig.LOG_STARTS), null).write(Map.of());
        Files.writeString(new File(logDir, "meta.properties").toPath(),
            "#\n#\ncluster.id=bGctY2xlYW5lci10ZXN0cw\ndirectory.id=bGctY2xlYW5lci1kaXItMQ\nnode.id=1\nversion=1\n");
        Rig.writeMarker(logDir);
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> option = new HashMap<>(DEFAULTS);
        boolean known = args.length >= 2 && args.length % 2 == 0 && SHAPES.containsKey(args[1]);
        if (known) option.putAll(SHAPES.get(args[1]));
        for (int i = 2; known && i < args.length; i += 2) known = option.replace(args[i], args[i + 1]) != null;
        if (!known) {
            System.err.println("usage: GenerateLog LOG_DIR SHAPE [OPTION VALUE]...\nshapes: " + SHAPES.keySet() + "\noptions: " + DEFAULTS);
            System.exit(64);
        }
        new GenerateLog(option).write(new File(args[0]).getAbsoluteFile());
        System.exit(0);
    }
}
