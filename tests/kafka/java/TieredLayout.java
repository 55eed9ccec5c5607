// A remote storage manager that lays moved segments out in a directory as Aiven's tiered-storage plugin does in a bucket,
// by its public source: the broker's own segments, offsets, epochs and indexes in that layout. The plugin itself is in no
// package registry.
import com.fasterxml.jackson.databind.ObjectMapper;
import com.github.luben.zstd.Zstd;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

public final class TieredLayout implements RemoteStorageManager {
    private static final int CHUNK_BYTES = 100_000;
    private static final ObjectMapper JSON = new ObjectMapper();
    private Path root;

    @Override
    public void configure(Map<String, ?> settings) {
        root = Path.of((String) settings.get("dir"));
    }

    private Path object(RemoteLogSegmentMetadata about, String suffix) {
        var topic = about.remoteLogSegmentId().topicIdPartition();
        String name = String.format("%020d-%s%s", about.startOffset(), about.remoteLogSegmentId().id(), suffix);
        return root.resolve(topic.topicPartition().topic() + "-" + topic.topicId())
            .resolve(Integer.toString(topic.topicPartition().partition())).resolve(name);
    }

    @Override
    public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata about, LogSegmentData data)
            throws RemoteStorageException {
        try {
            Files.createDirectories(object(about, "").getParent());
            byte[] log = Files.readAllBytes(data.logSegment());
            var packed = new ByteArrayOutputStream();
            List<Integer> sizes = new ArrayList<>();
            for (int at = 0; at < log.length; at += CHUNK_BYTES) {
                byte[] chunk = Zstd.compress(Arrays.copyOfRange(log, at, Math.min(at + CHUNK_BYTES, log.length)));
                sizes.add(chunk.length);
                packed.write(chunk);
            }
            Files.write(object(about, ".log"), packed.toByteArray());

            byte[] epochs = new byte[data.leaderEpochIndex().remaining()];
            data.leaderEpochIndex().duplicate().get(epochs);
            var content = new LinkedHashMap<String, byte[]>();
            content.put("offset", Files.readAllBytes(data.offsetIndex()));
            content.put("timestamp", Files.readAllBytes(data.timeIndex()));
            content.put("producerSnapshot", Files.readAllBytes(data.producerSnapshotIndex()));
            content.put("leaderEpoch", epochs);
            if (data.transactionIndex().isPresent())
                content.put("transaction", Files.readAllBytes(data.transactionIndex().get()));
            var indexes = new LinkedHashMap<String, Object>();
            var joined = new ByteArrayOutputStream();
            for (var each : content.entrySet()) {
                indexes.put(each.getKey(), Map.of("position", joined.size(), "size", each.getValue().length));
                joined.write(each.getValue());
            }
            indexes.putIfAbsent("transaction", null);
            Files.write(object(about, ".indexes"), joined.toByteArray());

            var leaders = new TreeMap<String, Long>();
            about.segmentLeaderEpochs().forEach((epoch, start) -> leaders.put(epoch.toString(), start));
            Map<String, Object> manifest = Map.of(
                "version", "1",
                "chunkIndex", Map.of("type", "variable", "originalChunkSize", CHUNK_BYTES,
                    "originalFileSize", log.length, "transformedChunks", packedSizes(sizes)),
                "segmentIndexes", indexes,
                "compression", true,
                "remoteLogSegmentMetadata", Map.of("startOffset", about.startOffset(), "endOffset", about.endOffset(),
                    "segmentLeaderEpochs", leaders));
            Files.write(object(about, ".rsm-manifest"), JSON.writeValueAsBytes(manifest));
            return Optional.empty();
        } catch (IOException error) {
            throw new RemoteStorageException(error);
        }
    }

    /** All sizes with four bytes above zero. */
    private static String packedSizes(List<Integer> sizes) {
        var out = ByteBuffer.allocate(sizes.size() == 1 ? 8 : 9 + 4 * sizes.size());
        out.putInt(sizes.size());
        if (sizes.size() > 1) out.putInt(0).put((byte) 4);
        sizes.forEach(out::putInt);
        return Base64.getEncoder().encodeToString(Zstd.compress(out.array()));
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata about, int start) throws RemoteStorageException {
        throw new RemoteStorageException("only moves segments away");
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata about, int start, int end)
            throws RemoteStorageException {
        throw new RemoteStorageException("only moves segments away");
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata about, IndexType type) throws RemoteStorageException {
        throw new RemoteResourceNotFoundException("only moves segments away");
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata about) throws RemoteStorageException {
        try {
            for (String suffix : List.of(".log", ".indexes", ".rsm-manifest")) Files.deleteIfExists(object(about, suffix));
        } catch (IOException error) {
            throw new RemoteStorageException(error);
        }
    }

    @Override
    public void close() {}
}
