import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Hands one SMS and one e-mail to Hongyan; prints their ids. Plain kafka-clients, Java 17.
 *
 * <pre>
 * mvn -q compile dependency:copy-dependencies
 * java -cp 'target/classes:target/dependency/*' Send +8613800000001 ann@example.com
 * </pre>
 *
 * The topics must exist (hongyan topics apply), and the templates too (../templates.toml).
 * docs/producing.md has the reasons for each setting.
 */
public final class Send {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final SecureRandom RANDOM = new SecureRandom();
    private static final String PREFIX = setting("HONGYAN_KAFKA__TOPIC_PREFIX", "hongyan");

    private Send() {}

    public static void main(String[] args) throws Exception {
        if (args.length != 2) {
            System.err.println("usage: Send PHONE MAIL");
            System.exit(2);
        }
        Map<String, Object> sms = envelope("sms", "verification", args[0],
                Map.of("id", "login-code", "params", Map.of("code", "4711")));
        sms.put("ttl_ms", 300_000);
        Map<String, Object> mail = envelope("email", "notice", args[1],
                Map.of("id", "order-paid", "params", Map.of("order", "1001", "total", 1299.5)));
        mail.put("ordering_key", "order-1001");
        System.exit(send(List.of(sms, mail)));
    }

    /** Sends all and waits for Kafka's acknowledgements. Returns the exit code. */
    private static int send(List<Map<String, Object>> notifications) throws Exception {
        try (KafkaProducer<String, byte[]> producer = new KafkaProducer<>(settings())) {
            Map<String, Future<RecordMetadata>> sent = new LinkedHashMap<>();
            for (Map<String, Object> one : notifications) {
                sent.put((String) one.get("id"), producer.send(record(one)));
            }
            for (Map.Entry<String, Future<RecordMetadata>> one : sent.entrySet()) {
                one.getValue().get();
                System.out.println(one.getKey());
            }
            return 0;
        } catch (ExecutionException e) {
            System.err.println("not taken by Kafka: " + e.getCause());
            System.err.println("not everything was acknowledged; send it again under the same ids");
            return 1;
        }
    }

    private static Properties settings() {
        Properties settings = new Properties();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG,
                setting("HONGYAN_KAFKA__BOOTSTRAP", "127.0.0.1:19092"));
        settings.put(ProducerConfig.CLIENT_ID_CONFIG, "shop");
        settings.put(ProducerConfig.ACKS_CONFIG, "all");
        settings.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, true);
        settings.put(ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG, 30_000);
        settings.put(ProducerConfig.REQUEST_TIMEOUT_MS_CONFIG, 10_000);
        // No partitioner is set: Kafka's own hashes the key with murmur2, as all producers here do.
        settings.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, StringSerializer.class);
        settings.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        return settings;
    }

    private static ProducerRecord<String, byte[]> record(Map<String, Object> one) throws Exception {
        String topic = PREFIX + ".dispatch." + one.get("channel") + "." + one.get("kind");
        String id = (String) one.get("id");
        String key = (String) one.getOrDefault("ordering_key", id);
        var record = new ProducerRecord<>(topic, key, JSON.writeValueAsBytes(one));
        record.headers().add("hongyan-id", id.getBytes(StandardCharsets.UTF_8));
        return record;
    }

    private static Map<String, Object> envelope(
            String channel, String kind, String receiver, Map<String, Object> template) {
        long now = System.currentTimeMillis();
        Map<String, Object> made = new LinkedHashMap<>();
        made.put("v", 1);
        made.put("id", newId(now));
        made.put("biz_id", "order-1001");
        made.put("channel", channel);
        made.put("kind", kind);
        made.put("receivers", List.of(receiver));
        made.put("template", template);
        made.put("created_at", now);
        return made;
    }

    /**
     * Returns an id that sorts by time. Make it once, and keep it with the order: a repeat under the
     * same id doubles nothing.
     */
    private static String newId(long now) {
        byte[] random = new byte[10];
        RANDOM.nextBytes(random);
        return "%012x".formatted(now) + HexFormat.of().formatHex(random);
    }

    private static String setting(String name, String otherwise) {
        String found = System.getenv(name);
        return found == null || found.isEmpty() ? otherwise : found;
    }
}
