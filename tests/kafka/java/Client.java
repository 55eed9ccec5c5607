// A client of a running broker: makes and alters topics, writes and reads records as JSON lines. Bytes are hex, null is
// null. A topic has one partition; where several topics may be given, commas part them.
package rig;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
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
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
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

    private static String hex(byte[] bytes) { return bytes == null ? null : HexFormat.of().formatHex(bytes); }
    private static byte[] bytes(JsonNode hex) { return hex == null || hex.isNull() ? null : HexFormat.of().parseHex(hex.asText()); }

    private static Map<String, String> pairs(List<String> settings) {
        Map<String, String> pairs = new HashMap<>();
        for (String setting : settings) {
            int equals = setting.indexOf('=');
            pairs.put(setting.substring(0, equals), setting.substring(equals + 1));
        }
        return pairs;
    }

    /** create BOOTSTRAP TOPIC[,TOPIC...] [key=value ...]: all with the same settings. */
    private static void create(String bootstrap, String[] topics, List<String> settings) throws Exception {
        List<NewTopic> wanted = new ArrayList<>();
        for (String topic : topics) wanted.add(new NewTopic(topic, 1, (short) 1).configs(pairs(settings)));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(wanted).all().get();
        }
    }

    /** alter BOOTSTRAP TOPIC[,TOPIC...] key=value ... */
    private static void alter(String bootstrap, String[] topics, List<String> settings) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        pairs(settings).forEach((key, value) -> changes.add(new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET)));
        Map<ConfigResource, Collection<AlterConfigOp>> wanted = new HashMap<>();
        for (String topic : topics) wanted.put(new ConfigResource(ConfigResource.Type.TOPIC, topic), changes);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.incrementalAlterConfigs(wanted).all().get();
        }
    }

    /**
     * write BOOTSTRAP TOPIC [key=value ...]: lines {"key":hex,"value":hex,"end":"commit"|"abort"} from stdin, in order.
     * With transactional.id among the settings a line with "end" ends the transaction after its record.
     */
    private static void write(String bootstrap, String topic, List<String> settings) throws Exception {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "acks", "all"));
        config.putAll(pairs(settings));
        boolean transactional = config.containsKey("transactional.id");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
             BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            if (transactional) producer.initTransactions();
            boolean open = false;
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                JsonNode node = JSON.readTree(line);
                if (transactional && !open) producer.beginTransaction();
                open = transactional;
                producer.send(new ProducerRecord<>(topic, 0, bytes(node.get("key")), bytes(node.get("value"))), (done, error) -> {
                    if (error != null) {
                        System.err.println("write: " + error);
                        System.exit(3);
                    }
                });
                if (!node.has("end")) continue;
                producer.flush();
                if (node.get("end").asText().equals("commit")) producer.commitTransaction();
                else producer.abortTransaction();
                open = false;
            }
            if (open) producer.commitTransaction();
        }
    }

    /** read BOOTSTRAP TOPIC[,TOPIC...] [key=value ...]: every record from the first to the end at the time of asking. */
    private static void read(String bootstrap, String[] topics, List<String> settings) throws Exception {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest",
            "enable.auto.commit", false, "allow.auto.create.topics", false, "check.crcs", true));
        config.putAll(pairs(settings));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            for (String topic : topics) {
                TopicPartition tp = new TopicPartition(topic, 0);
                long end = consumer.endOffsets(List.of(tp)).get(tp);
                consumer.assign(List.of(tp));
                consumer.seekToBeginning(List.of(tp));
                long deadline = System.nanoTime() + PATIENCE.toNanos();
                while (consumer.position(tp) < end) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) out.println(JSON.writeValueAsString(asMap(record)));
                    if (System.nanoTime() > deadline) {
                        System.err.println("read: " + tp + " stuck at " + consumer.position(tp) + " before its end " + end);
                        System.exit(3);
                    }
                }
            }
        }
        out.flush();
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

    public static void main(String[] args) throws Exception {
        if (args.length < 3) {
            System.err.println("usage: Client create|alter|write|read BOOTSTRAP TOPIC[,TOPIC...] [key=value ...]");
            System.exit(64);
        }
        List<String> settings = Arrays.asList(args).subList(3, args.length);
        switch (args[0]) {
            case "create" -> create(args[1], args[2].split(","), settings);
            case "alter" -> alter(args[1], args[2].split(","), settings);
            case "write" -> write(args[1], args[2], settings);
            case "read" -> read(args[1], args[2].split(","), settings);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }
}
