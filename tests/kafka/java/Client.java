// A client of running brokers: makes and alters topics, writes and reads records, joins share groups, describes and
// deletes groups. Each line of stdin is an order, a JSON object with "verb", "bootstrap", "topics", "settings" and, for
// "write", "records", for "share" "count" and "stays"; its answer is lines of JSON, the last of which has "failed": null
// or what went wrong. Bytes are hex, null is null. A topic has one partition.
package rig;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.StreamsGroupDescription;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class Client {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final List<KafkaShareConsumer<byte[], byte[]>> STAYING = new ArrayList<>();

    private static String hex(byte[] bytes) { return bytes == null ? null : HexFormat.of().formatHex(bytes); }
    private static byte[] bytes(JsonNode hex) { return hex == null || hex.isNull() ? null : HexFormat.of().parseHex(hex.asText()); }

    /** All topics with the same settings. */
    private static void create(String bootstrap, List<String> topics, Map<String, String> settings) throws Exception {
        List<NewTopic> wanted = new ArrayList<>();
        for (String topic : topics) wanted.add(new NewTopic(topic, 1, (short) 1).configs(settings));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(wanted).all().get();
        }
    }

    private static void alter(String bootstrap, List<String> topics, Map<String, String> settings) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        settings.forEach((key, value) -> changes.add(new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET)));
        Map<ConfigResource, Collection<AlterConfigOp>> wanted = new HashMap<>();
        for (String topic : topics) wanted.put(new ConfigResource(ConfigResource.Type.TOPIC, topic), changes);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.incrementalAlterConfigs(wanted).all().get();
        }
    }

    /**
     * Records {"key":hex,"value":hex,"end":"commit"|"abort"}, in order. With transactional.id among the settings a record
     * with "end" is the last of its transaction.
     */
    private static void write(String bootstrap, String topic, Map<String, String> settings, JsonNode records) throws Exception {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "acks", "all"));
        config.putAll(settings);
        boolean transactional = config.containsKey("transactional.id");
        AtomicReference<Exception> failed = new AtomicReference<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            if (transactional) producer.initTransactions();
            boolean open = false;
            for (JsonNode node : records) {
                if (transactional && !open) producer.beginTransaction();
                open = transactional;
                producer.send(new ProducerRecord<>(topic, 0, bytes(node.get("key")), bytes(node.get("value"))), (done, error) -> {
                    if (error != null) failed.compareAndSet(null, error);
                });
                if (!node.has("end")) continue;
                producer.flush();
                if (node.get("end").asText().equals("commit")) producer.commitTransaction();
                else producer.abortTransaction();
                open = false;
            }
            if (open) producer.commitTransaction();
        }
        if (failed.get() != null) throw failed.get();
    }

    /** Every record from the first to the end at the time of asking. No request waits for more behind the end of a topic. */
    private static void read(String bootstrap, List<String> topics, Map<String, String> settings, PrintStream out) throws Exception {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest",
            "enable.auto.commit", false, "allow.auto.create.topics", false, "check.crcs", true, "fetch.max.wait.ms", 1));
        config.putAll(settings);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            for (String topic : topics) {
                TopicPartition tp = new TopicPartition(topic, 0);
                long end = consumer.endOffsets(List.of(tp)).get(tp);
                consumer.assign(List.of(tp));
                consumer.seekToBeginning(List.of(tp));
                long deadline = System.nanoTime() + PATIENCE.toNanos();
                while (consumer.position(tp) < end) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) out.println(JSON.writeValueAsString(asMap(record)));
                    if (System.nanoTime() > deadline) throw new IllegalStateException(tp + " stuck at " + consumer.position(tp) + " before its end " + end);
                }
            }
        }
    }

    /**
     * Takes records in a share group, in several polls, and acknowledges them: of five one is rejected, one given back, and
     * three accepted. Then it leaves, or stays a member as long as this process lives.
     */
    private static void share(String bootstrap, String topic, Map<String, String> settings, int count, boolean stays) throws Exception {
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, settings.get("group.id"));
        AlterConfigOp earliest = new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.incrementalAlterConfigs(Map.of(group, List.of(earliest))).all().get();
        }
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap,
            "share.acknowledgement.mode", "explicit", "max.poll.records", 7));
        config.putAll(settings);
        KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(topic));
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        for (int taken = 0; taken < count;) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                int turn = taken++ % 5;
                consumer.acknowledge(record, turn == 0 ? AcknowledgeType.REJECT : turn == 1 ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
            }
            consumer.commitSync();
            if (System.nanoTime() > deadline) throw new IllegalStateException("a share group was given " + taken + " records of " + count);
        }
        if (stays) STAYING.add(consumer);
        else consumer.close();
    }

    /** A line for each group: type, state, and for all but classic ones epochs and members; "error" where it has none. */
    private static void groups(String bootstrap, PrintStream out) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            for (GroupListing listed : admin.listGroups().all().get()) {
                String name = listed.groupId();
                Map<String, Object> row = new LinkedHashMap<>();
                Map<String, Object> members = new LinkedHashMap<>();
                row.put("group", name);
                row.put("type", listed.type().map(Object::toString).orElse(""));
                row.put("state", listed.groupState().map(Object::toString).orElse(""));
                try {
                    switch (listed.type().orElseThrow()) {
                        case SHARE -> {
                            ShareGroupDescription found = admin.describeShareGroups(List.of(name)).all().get().get(name);
                            row.put("epoch", found.groupEpoch());
                            row.put("target_epoch", found.targetAssignmentEpoch());
                            found.members().forEach(member -> members.put(member.consumerId(), member.memberEpoch()));
                            Map<String, Long> starts = new LinkedHashMap<>();
                            admin.listShareGroupOffsets(Map.of(name, new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo(name).get()
                                .forEach((partition, offset) -> { if (offset != null) starts.put(partition.toString(), offset.startOffset()); });
                            row.put("start_offsets", starts);
                        }
                        case STREAMS -> {
                            StreamsGroupDescription found = admin.describeStreamsGroups(List.of(name)).all().get().get(name);
                            row.put("epoch", found.groupEpoch());
                            row.put("target_epoch", found.targetAssignmentEpoch());
                            row.put("topology_epoch", found.topologyEpoch());
                            found.members().forEach(member -> members.put(member.memberId(), member.memberEpoch()));
                        }
                        case CONSUMER -> {
                            ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(name)).all().get().get(name);
                            row.put("epoch", found.groupEpoch().orElseThrow());
                            row.put("target_epoch", found.targetAssignmentEpoch().orElseThrow());
                            found.members().forEach(member -> members.put(member.consumerId(), member.memberEpoch().orElseThrow()));
                        }
                        default -> { }
                    }
                    row.put("members", members);
                } catch (ExecutionException error) {
                    row.put("error", error.getCause().toString());
                }
                out.println(JSON.writeValueAsString(row));
            }
        }
    }

    /** Deletes share groups or streams groups by their names. */
    private static void delete(String bootstrap, List<String> names, String type) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            if (type.equals("share")) admin.deleteShareGroups(names).all().get();
            else admin.deleteStreamsGroups(names).all().get();
        }
    }

    private static Map<String, Object> asMap(ConsumerRecord<byte[], byte[]> record) {
        List<List<String>> headers = new ArrayList<>();
        for (Header header : record.headers()) headers.add(Arrays.asList(header.key(), hex(header.value())));
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("topic", record.topic());
        map.put("offset", record.offset());
        map.put("timestamp", record.timestamp());
        map.put("timestamp_type", record.timestampType().toString());
        map.put("key", hex(record.key()));
        map.put("value", hex(record.value()));
        map.put("headers", headers);
        return map;
    }

    private static void answer(JsonNode order, PrintStream out) throws Exception {
        String bootstrap = order.get("bootstrap").asText();
        List<String> topics = new ArrayList<>();
        for (JsonNode topic : order.get("topics")) topics.add(topic.asText());
        Map<String, String> settings = new HashMap<>();
        order.get("settings").properties().forEach(entry -> settings.put(entry.getKey(), entry.getValue().asText()));
        switch (order.get("verb").asText()) {
            case "create" -> create(bootstrap, topics, settings);
            case "alter" -> alter(bootstrap, topics, settings);
            case "write" -> write(bootstrap, topics.get(0), settings, order.get("records"));
            case "read" -> read(bootstrap, topics, settings, out);
            case "share" -> share(bootstrap, topics.get(0), settings, order.get("count").asInt(), order.get("stays").asBoolean());
            case "groups" -> groups(bootstrap, out);
            case "delete" -> delete(bootstrap, topics, settings.get("type"));
            default -> throw new IllegalArgumentException(order.get("verb").asText());
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)), false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String failed = null;
            try {
                answer(JSON.readTree(line), out);
            } catch (Exception error) {
                failed = error.toString();
            }
            Map<String, String> last = new HashMap<>();
            last.put("failed", failed);
            out.println(JSON.writeValueAsString(last));
            out.flush();
        }
    }
}
