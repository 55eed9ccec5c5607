import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.Stores;

/**
 * A table of Kafka Streams, kept in memory with a changelog: runs until a key has a value, and prints what the store holds.
 *
 * Arguments: bootstrap, application.id, group.protocol (classic or streams), state directory, input topic, key, value.
 * Output: "restored N" (records read from the changelog), then a line "key<TAB>length of value" for each key.
 */
public class StreamsStore {
    private static final String STORE = "store";
    private static final long PATIENCE_MS = 90_000;

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("application.id", args[1]);
        settings.put("group.protocol", args[2]);
        settings.put("state.dir", args[3]);
        settings.put("commit.interval.ms", "200");
        settings.put("num.stream.threads", "1");
        // So that the changelog has several segments, and no broker cleans before the test says so.
        settings.put("topic.segment.bytes", "1048576");
        settings.put("topic.min.cleanable.dirty.ratio", "1.0");
        settings.put("consumer.auto.offset.reset", "earliest");

        StreamsBuilder builder = new StreamsBuilder();
        builder.table(
            args[4],
            Consumed.with(Serdes.String(), Serdes.String()),
            Materialized.<String, String>as(Stores.inMemoryKeyValueStore(STORE)));
        AtomicLong restored = new AtomicLong();
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.setGlobalStateRestoreListener(new StateRestoreListener() {
                public void onRestoreStart(TopicPartition partition, String store, long start, long end) { }
                public void onBatchRestored(TopicPartition partition, String store, long end, long count) { }
                public void onRestoreEnd(TopicPartition partition, String store, long total) {
                    restored.addAndGet(total);
                }
            });
            streams.start();
            Map<String, Integer> rows = await(streams, args[5], args[6]);
            Thread.sleep(1000);  // its offsets are committed
            System.out.println("restored " + restored.get());
            rows.forEach((key, length) -> System.out.println(key + "\t" + length));
        }
    }

    private static Map<String, Integer> await(KafkaStreams streams, String key, String value) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (System.currentTimeMillis() < deadline) {
            if (streams.state() == KafkaStreams.State.RUNNING) {
                var store = streams.store(
                    StoreQueryParameters.fromNameAndType(STORE, QueryableStoreTypes.<String, String>keyValueStore()));
                if (value.equals(store.get(key))) {
                    Map<String, Integer> rows = new TreeMap<>();
                    try (var all = store.all()) {
                        all.forEachRemaining(row -> rows.put(row.key, row.value.length()));
                    }
                    return rows;
                }
            }
            Thread.sleep(100);
        }
        throw new IllegalStateException("the store has no " + key + "=" + value + ", state " + streams.state());
    }
}
