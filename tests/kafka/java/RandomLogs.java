// Random logs, written through Kafka's own log classes, and rounds of Kafka's own cleaner on them.
//
// OUT/s<seed>/ holds in<r>/ and out<r>/, the partition before and after round r, and round<r>.json: the settings of the
// round, what Kafka said of it, and the index files that were damaged before it. A log is small and odd on purpose:
// tiny maps, buffers and indexes, gaps, open and aborted transactions, empty batches, all codecs, both timestamp types,
// delete horizons around now, magic 0 and 1, high watermarks on segments' bases, limits for decompressed records, index
// entries that point into a batch. A seed's log is the same whatever the release, up to the first round that the
// releases clean differently.
package org.apache.kafka.storage.internals.log;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

public final class RandomLogs {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);
    private static final int PLAIN_PRODUCERS = 3; // ids 100..102 are idempotent, 103..105 transactional
    private static final int PRODUCERS = 6;
    private static final String LIMIT = "max.decompressed.message.bytes"; // since 4.4

    private final Random random;
    private final List<String> codecs;
    private final double legacyShare;
    private final File home, logDir, directory;
    private final Map<String, String> topic = new LinkedHashMap<>();
    private final short[] epochs = new short[PRODUCERS];
    private final int[] sequences = new int[PRODUCERS];
    private final boolean[] inTransaction = new boolean[PRODUCERS];
    private final int keys;
    private final boolean isLimited;
    private final Map<String, byte[]> damaged = new LinkedHashMap<>(); // index files, and what was written to them
    private long nextOffset;
    private long now = 1_800_000_000_000L;
    private int leaderEpoch;

    private RandomLogs(File home, long seed, List<String> codecs, double legacyShare) {
        this.random = new Random(seed * 0x9E3779B97F4A7C15L); // java.util.Random begins alike for neighbouring seeds
        this.home = home;
        this.logDir = new File(home, "logs");
        this.directory = new File(logDir, PARTITION.toString());
        this.codecs = codecs;
        this.legacyShare = chance(0.6) ? legacyShare : 0;
        this.keys = oneOf(3, 10, 50, 400);
        this.nextOffset = chance(0.1) ? random.nextInt(1000) : 0;
        this.isLimited = chance(0.2);
    }

    private boolean chance(double share) { return random.nextDouble() < share; }
    private int oneOf(int... values) { return values[random.nextInt(values.length)]; }

    private ByteBuffer key() {
        if (chance(0.03)) return null;
        return ByteBuffer.wrap((chance(0.01) ? "" : "k" + random.nextInt(keys)).getBytes(StandardCharsets.UTF_8));
    }

    private ByteBuffer value() {
        if (chance(0.15)) return null;
        byte[] value = new byte[chance(0.05) ? 0 : chance(0.05) ? 200 + random.nextInt(800) : random.nextInt(60)];
        for (int i = 0; i < value.length; i++) value[i] = (byte) (chance(0.5) ? random.nextInt(256) : 'a');
        return ByteBuffer.wrap(value);
    }

    private Header[] headers() {
        Header[] headers = new Header[chance(0.8) ? 0 : 1 + random.nextInt(3)];
        for (int i = 0; i < headers.length; i++)
            headers[i] = new RecordHeader(chance(0.2) ? "" : "h\u00e9" + random.nextInt(3), chance(0.2) ? null : new byte[random.nextInt(5)]);
        return headers;
    }

    private long timestamp() {
        if (chance(0.01)) return -1;
        return now - random.nextInt(chance(0.1) ? 200_000_000 : 100_000);
    }

    private String codec(int magic) {
        if (chance(0.7)) return "none";
        String codec = codecs.get(random.nextInt(codecs.size()));
        return magic < 2 && codec.equals("zstd") ? "gzip" : codec;
    }

    private MemoryRecords batch() {
        int magic = chance(legacyShare) ? random.nextInt(2) : 2;
        String codec = codec(magic);
        TimestampType type = magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE
            : chance(0.15) ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
        long appendTime = type == TimestampType.LOG_APPEND_TIME ? now - random.nextInt(100_000) : -1;
        int producer = magic < 2 || chance(0.5) ? -1 : random.nextInt(PRODUCERS);
        boolean known = producer >= 0;
        boolean transactional = producer >= PLAIN_PRODUCERS;
        long horizon = magic == 2 && chance(0.08) ? now + oneOf(-100_000, -1, 0, 1, 100_000) : -1;
        long first = nextOffset;
        MemoryRecordsBuilder batch = new MemoryRecordsBuilder(new ByteBufferOutputStream(512), (byte) magic,
            Compression.of(CompressionType.forName(codec)).build(), type, first, appendTime,
            known ? 100 + producer : -1, known ? epochs[producer] : -1, known ? sequences[producer] : -1,
            transactional, false, magic == 2 ? leaderEpoch : -1, 1 << 20, horizon);
        int count = chance(0.4) ? 1 : 1 + random.nextInt(chance(0.1) ? 60 : 8);
        for (int i = 0; i < count; i++) {
            if (magic == 2) batch.appendWithOffset(nextOffset++, timestamp(), key(), value(), headers());
            else batch.appendWithOffset(nextOffset++, magic == 0 ? -1 : timestamp(), key(), value());
            // Relative offsets inside a compressed legacy batch leave no room for gaps.
            if (chance(0.02) && (magic == 2 || codec.equals("none"))) nextOffset += random.nextInt(5);
        }
        if (magic == 2 && chance(0.1)) {
            nextOffset += random.nextInt(4);
            batch.overrideLastOffset(nextOffset - 1);
        }
        if (known) sequences[producer] += (int) (nextOffset - first);
        if (transactional) inTransaction[producer] = true;
        return batch.build();
    }

    private MemoryRecords marker() {
        int producer = PLAIN_PRODUCERS + random.nextInt(PRODUCERS - PLAIN_PRODUCERS);
        for (int i = PLAIN_PRODUCERS; i < PRODUCERS; i++) if (inTransaction[i] && chance(0.7)) producer = i;
        if (chance(0.3)) {
            epochs[producer]++;
            sequences[producer] = 0;
        }
        inTransaction[producer] = false;
        ControlRecordType end = chance(0.5) ? ControlRecordType.ABORT : ControlRecordType.COMMIT;
        return MemoryRecords.withEndTransactionMarker(nextOffset++, Math.max(0, timestamp()), leaderEpoch, 100 + producer,
            epochs[producer], new EndTransactionMarker(end, 0));
    }

    private MemoryRecords emptyBatch() {
        int producer = chance(0.5) ? -1 : random.nextInt(PLAIN_PRODUCERS);
        boolean known = producer >= 0;
        long last = nextOffset + random.nextInt(3);
        ByteBuffer header = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(header, (byte) 2, known ? 100 + producer : -1, known ? epochs[producer] : -1,
            known ? sequences[producer] : -1, nextOffset, last, leaderEpoch, TimestampType.CREATE_TIME, Math.max(0, timestamp()), false, false);
        nextOffset = last + 1;
        return MemoryRecords.readableRecords(header.flip());
    }

    private void append(UnifiedLog log, MemoryRecords records) throws IOException {
        if (records.sizeInBytes() > log.config().segmentSize()) return;
        // A batch at a time: an index that is full then rolls the segment, as it does on a broker.
        for (MutableRecordBatch batch : records.batches()) {
            ByteBufferOutputStream bytes = new ByteBufferOutputStream(batch.sizeInBytes());
            batch.writeTo(bytes);
            log.appendAsFollower(MemoryRecords.readableRecords(bytes.buffer().flip()), leaderEpoch);
        }
    }

    private void fill() throws IOException {
        Rig.WaitingScheduler scheduler = new Rig.WaitingScheduler();
        UnifiedLog log = Rig.openNew(directory, new LogConfig(topic), now, scheduler);
        nextOffset = Math.max(nextOffset, log.logEndOffset());
        int steps = 3 + random.nextInt(chance(0.2) ? 200 : 40);
        double rolls = chance(0.5) ? 0.1 : 0.03;
        for (int i = 0; i < steps; i++) {
            double what = random.nextDouble();
            if (what < rolls) {
                // What ends here may be the round's end: the fate of an emptied batch depends on the high watermark then.
                if (chance(0.2)) append(log, emptyBatch());
                if (log.activeSegment().size() > 0) log.roll();
                nextOffset = log.logEndOffset();
                continue;
            }
            if (chance(0.03)) nextOffset += random.nextInt(20);
            if (chance(0.02)) leaderEpoch++;
            append(log, what < 0.25 ? marker() : what < 0.27 ? emptyBatch() : batch());
            nextOffset = log.logEndOffset();
        }
        if (chance(0.9)) log.roll();
        Rig.close(log, scheduler);
        for (File segment : segments()) segment.setLastModified(now - random.nextInt(200_000_000));
    }

    private File[] segments() {
        File[] segments = directory.listFiles((d, name) -> name.endsWith(".log"));
        Arrays.sort(segments); // the listing's order is not the same everywhere, a seed's log has to be
        return segments;
    }

    /** Lets the last entry of an inactive segment's offset index point into the middle of a batch. */
    private void damageIndex() throws IOException {
        File[] segments = segments();
        if (segments.length < 3) return;
        File segment = segments[random.nextInt(segments.length - 2)];
        int within = 1 + random.nextInt(60);
        File index = new File(segment.getPath().replace(".log", ".index"));
        if (index.length() < 8) return;
        try (RandomAccessFile file = new RandomAccessFile(index, "rw")) {
            file.seek(file.length() - 4);
            int position = file.readInt() + within;
            if (position >= segment.length()) return;
            file.seek(file.length() - 4);
            file.writeInt(position);
        }
        damaged.put(index.getName(), Files.readAllBytes(index.toPath()));
    }

    /** Forgets the damaged indexes that a round has replaced or deleted. */
    private void forgetReplacedIndexes() throws IOException {
        for (String name : List.copyOf(damaged.keySet())) {
            Path index = directory.toPath().resolve(name);
            if (!Files.exists(index) || !Arrays.equals(Files.readAllBytes(index), damaged.get(name))) damaged.remove(name);
        }
    }

    private void copyTo(String stage) throws IOException {
        File target = new File(home, stage);
        Files.createDirectories(target.toPath());
        for (File file : directory.listFiles())
            Files.copy(file.toPath(), target.toPath().resolve(file.getName()), StandardCopyOption.COPY_ATTRIBUTES);
    }

    private void chooseTopicSettings() {
        topic.put("cleanup.policy", "compact");
        topic.put("index.interval.bytes", "" + oneOf(0, 10, 100, 500, 4096));
        topic.put("segment.index.bytes", "" + oneOf(60, 120, 400, 10485760, 10485760));
        topic.put(LogConfig.INTERNAL_SEGMENT_BYTES_CONFIG, "" + oneOf(1500, 4000, 20000, 1 << 20));
        topic.put("max.message.bytes", "" + oneOf(100, 700, 5000, 1048588));
        topic.put("delete.retention.ms", "" + oneOf(0, 1, 1000, 60000, 86400000));
        if (chance(0.1)) topic.put("min.compaction.lag.ms", "" + oneOf(1000, 50000));
        if (chance(0.2)) topic.put("preallocate", "true");
    }

    private CleaningRound.Settings chooseCleanerSettings() {
        CleaningRound.Settings settings = new CleaningRound.Settings();
        settings.now = now;
        settings.topic.putAll(topic);
        settings.ioBufferSize = 2 * oneOf(100, 400, 3000, 50000, 262144);
        settings.messageMaxBytes = oneOf(100, 1000, 1048588);
        settings.dedupeBufferSize = 24L * oneOf(3, 8, 30, 200, 5000);
        settings.loadFactor = oneOf(5, 9, 10) / 10.0;
        settings.producerIdExpirationMs = oneOf(1000, 100_000, 86400000, 86400000);
        int limit = oneOf(1 + random.nextInt(60), 30 + random.nextInt(100), 500 + random.nextInt(501));
        if (isLimited && LogConfig.configNames().contains(LIMIT)) settings.topic.put(LIMIT, "" + limit);
        return settings;
    }

    /**
     * A high watermark anywhere in the log or around a segment's base, which may be the round's end; a cleaner
     * checkpoint anywhere. Without one Kafka takes the log's end, or the checkpoint it wrote.
     */
    private void choosePoints(boolean first) throws IOException {
        File[] segments = segments();
        long base = Long.parseLong(segments[random.nextInt(segments.length)].getName().substring(0, 20));
        double what = random.nextDouble();
        if (what < 0.1) Rig.putCheckpoint(logDir, Rig.HIGH_WATERMARKS, PARTITION, (long) (nextOffset * random.nextDouble()));
        else if (what < 0.4) Rig.putCheckpoint(logDir, Rig.HIGH_WATERMARKS, PARTITION, Math.max(0, base + oneOf(0, 0, 0, 1, -1)));
        else Rig.deleteIfThere(logDir, Rig.HIGH_WATERMARKS);
        if (chance(first ? 0.1 : 0.4)) Rig.putCheckpoint(logDir, Rig.CLEANER_OFFSETS, PARTITION, (long) (nextOffset * random.nextDouble()));
    }

    private void run(ObjectMapper json) throws Exception {
        chooseTopicSettings();
        int rounds = 1 + random.nextInt(4);
        for (int round = 0; round < rounds; round++) {
            if (round == 0 || chance(0.7)) fill();
            CleaningRound.Settings settings = chooseCleanerSettings();
            choosePoints(round == 0);
            if (chance(0.05)) damageIndex();
            copyTo("in" + round);
            Map<String, Object> got = CleaningRound.run(logDir, PARTITION.toString(), settings, false);
            copyTo("out" + round);
            Map<String, String> all = new LinkedHashMap<>(settings.topic);
            all.put("log.cleaner.dedupe.buffer.size", "" + settings.dedupeBufferSize);
            all.put("log.cleaner.io.buffer.size", "" + settings.ioBufferSize);
            all.put("log.cleaner.io.buffer.load.factor", "" + settings.loadFactor);
            all.put("message.max.bytes", "" + settings.messageMaxBytes);
            all.put("producer.id.expiration.ms", "" + settings.producerIdExpirationMs);
            json.writeValue(new File(home, "round" + round + ".json"), Map.of("settings", all, "got", got, "damaged", damaged.keySet()));
            forgetReplacedIndexes();
            if (got.containsKey("error")) break;
            now += oneOf(0, 1, 1000, 60_001, 100_000_000);
        }
    }

    public static void main(String[] args) throws Exception {
        if (args.length != 5) {
            System.err.println("usage: RandomLogs OUT N SEED CODEC[,CODEC...] SHARE_OF_MAGIC_0_AND_1");
            System.exit(64);
        }
        long seed = Long.parseLong(args[2]);
        ObjectMapper json = new ObjectMapper();
        int unwritten = 0;
        for (long s = seed; s < seed + Integer.parseInt(args[1]); s++) {
            File home = new File(args[0], "s" + s);
            Files.createDirectories(home.toPath());
            try {
                new RandomLogs(home, s, List.of(args[3].split(",")), Double.parseDouble(args[4])).run(json);
            } catch (Exception e) {
                unwritten++;
                System.err.println("seed " + s + ": Kafka could not write this log: " + e);
            }
        }
        System.exit(unwritten * 10 > Integer.parseInt(args[1]) ? 1 : 0);
    }
}
