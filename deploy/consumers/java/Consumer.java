import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Delivery;
import java.io.IOException;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * Ships on payhook's message order.paid, once for each order (Postgres, amqp-client).
 *
 * <p>Environment: AMQP_URL, QUEUE, DATABASE_URL (jdbc:postgresql://...). The queue is payhook's: {@code [broker]
 * queues} declares it, with {@code bind = ["order.paid"]} and nothing else.
 *
 * <p>Delivery is at least once: after a crash or a lost connection the same message comes again. What makes it
 * count once is one transaction that holds both the note that the message was seen and the work itself; the
 * message is acknowledged after that transaction's commit. Any number of these processes may share the queue and
 * the database.
 *
 * <p>With WORK=mirror and a queue that binds {@code order.*} it keeps a copy of how each order stands instead:
 * that, and only that, drops lower versions.
 */
public final class Consumer {
    private static final int PREFETCH = 32;

    private static final String SCHEMA =
            """
            create table if not exists taken (
              id text primary key,
              seen_at timestamptz not null default now()
            );
            create table if not exists shipments (
              merchant text not null,
              order_id text not null,
              primary key (merchant, order_id)
            );
            create table if not exists mirrored_orders (
              merchant text not null,
              order_id text not null,
              status text not null,
              version bigint not null,
              primary key (merchant, order_id)
            )""";

    private static final String MIRROR =
            """
            insert into mirrored_orders (merchant, order_id, status, version) values (?, ?, ?, ?)
            on conflict (merchant, order_id) do update set status = excluded.status, version = excluded.version
            where excluded.version >= mirrored_orders.version""";

    private static final ObjectMapper JSON = new ObjectMapper();

    private enum Verdict { HANDLED, DUPLICATE, STALE, IGNORED }

    /** What the work needs; all but {@code id} and {@code type} only of an order. */
    private record Message(String id, String type, String merchant, String orderId, String status, long version) {

        /** Null when it is not one of payhook's: no attempt will make it one. */
        static Message read(byte[] body) {
            JsonNode root;
            try {
                root = JSON.readTree(body);
            } catch (IOException notJson) {
                return null;
            }
            JsonNode data = root.path("data");
            Message message = new Message(
                    root.path("id").textValue(),
                    root.path("type").textValue(),
                    data.path("merchant").textValue(),
                    data.path("order_id").textValue(),
                    data.path("status").textValue(),
                    data.path("version").longValue());
            if (message.id == null || message.type == null) {
                return null;
            }
            boolean whole = message.merchant != null
                    && message.orderId != null
                    && message.status != null
                    && data.path("version").isIntegralNumber();
            return whole || !message.isOrder() ? message : null;
        }

        boolean isOrder() {
            return type.startsWith("order.");
        }
    }

    /** Runs inside the transaction: what it writes through {@code db} is there once or not at all. */
    private interface Work {
        Verdict on(java.sql.Connection db, Message message) throws SQLException;
    }

    /**
     * Your work. By the message's type and never by version: order.paid is written once for each order, and it
     * counts even if a later version came first. By the id alone: what an operator replays is not shipped again.
     * What cannot be rolled back (a call to another service) needs a key of its own there: use the message's id.
     */
    private static Verdict ship(java.sql.Connection db, Message message) throws SQLException {
        if (!message.type().equals("order.paid")) {
            return Verdict.IGNORED;
        }
        // The insert decides; nothing looks first.
        if (run(db, "insert into taken (id) values (?) on conflict do nothing", message.id()) == 0) {
            return Verdict.DUPLICATE;
        }
        String shipment = "insert into shipments (merchant, order_id) values (?, ?) on conflict do nothing";
        run(db, shipment, message.merchant(), message.orderId());
        return Verdict.HANDLED;
    }

    /** A copy of how each order stands: messages overtake each other, and the highest version is the truth. */
    private static Verdict mirror(java.sql.Connection db, Message message) throws SQLException {
        if (!message.isOrder()) {
            return Verdict.IGNORED;
        }
        int changed =
                run(db, MIRROR, message.merchant(), message.orderId(), message.status(), message.version());
        return changed == 0 ? Verdict.STALE : Verdict.HANDLED;
    }

    private static final Work WORK =
            switch (System.getenv().getOrDefault("WORK", "ship")) {
                case "ship" -> Consumer::ship;
                case "mirror" -> Consumer::mirror;
                default -> throw new IllegalArgumentException("WORK is ship or mirror");
            };

    /** How many rows the statement changed. */
    private static int run(java.sql.Connection db, String sql, Object... values) throws SQLException {
        try (PreparedStatement statement = db.prepareStatement(sql)) {
            for (int n = 0; n < values.length; n++) {
                statement.setObject(n + 1, values[n]);
            }
            return statement.executeUpdate();
        }
    }

    /** Everything about one delivery, in one transaction. Throws if it could not be done now. */
    private static Verdict consume(String databaseUrl, Message message) throws SQLException {
        // One connection per delivery keeps the example short; take a pool.
        try (java.sql.Connection db = DriverManager.getConnection(databaseUrl)) {
            db.setAutoCommit(false);
            Verdict verdict = WORK.on(db, message);
            db.commit();
            return verdict;
        }
    }

    /** One delivery, acknowledged on the channel that it came on and on no other. */
    private static void onDelivery(Channel channel, String databaseUrl, Delivery delivery)
            throws IOException, InterruptedException {
        long tag = delivery.getEnvelope().getDeliveryTag();
        Message message = Message.read(delivery.getBody());
        if (message == null) {
            System.err.println("not one of payhook's messages");
            channel.basicReject(tag, false);
            return;
        }
        try {
            Verdict verdict = consume(databaseUrl, message);
            // Committed. If this is lost the message comes again, and is a duplicate then.
            channel.basicAck(tag, false);
            System.out.println(verdict.name().toLowerCase() + " " + message.id());
        } catch (SQLException | RuntimeException failure) {
            if (!channel.isOpen()) {
                return;
            }
            // Back to the queue after a pause: a database that is away is not asked a thousand times a second.
            // The queue counts, and after 20 deliveries moves the message to {queue}.dead.
            System.err.println("could not be done now: " + failure.getMessage());
            Thread.sleep(1000 * Math.min(30, 1L << Math.min(deliveries(delivery), 5)));
            channel.basicNack(tag, false, true);
        }
    }

    private static long deliveries(Delivery delivery) {
        var headers = delivery.getProperties().getHeaders();
        Object count = headers == null ? null : headers.get("x-delivery-count");
        return count instanceof Number number ? number.longValue() : 0;
    }

    /** Consumes until the thread is interrupted, or the connection, the channel or the queue goes away. */
    private static void serve(ConnectionFactory factory, String queue, String databaseUrl) throws Exception {
        try (Connection connection = factory.newConnection("payhook consumer")) {
            Channel channel = connection.createChannel();
            channel.basicQos(PREFETCH);
            // The library's threads only hand over; the work happens here, one delivery after the other.
            BlockingQueue<Delivery> arrived = new LinkedBlockingQueue<>();
            boolean[] cancelled = {false};
            channel.basicConsume(
                    queue,
                    false,
                    (tag, delivery) -> arrived.add(delivery),
                    tag -> {
                        synchronized (cancelled) {
                            cancelled[0] = true;
                        }
                    });
            while (channel.isOpen()) {
                synchronized (cancelled) {
                    if (cancelled[0]) {
                        return;
                    }
                }
                Delivery delivery = arrived.poll(500, TimeUnit.MILLISECONDS);
                if (delivery != null) {
                    onDelivery(channel, databaseUrl, delivery);
                }
            }
        }
        // Closing the connection gives back what was delivered and not acknowledged.
    }

    public static void main(String[] arguments) throws Exception {
        String databaseUrl = System.getenv("DATABASE_URL");
        String queue = System.getenv("QUEUE");
        try (java.sql.Connection db = DriverManager.getConnection(databaseUrl);
                var statement = db.createStatement()) {
            statement.execute(SCHEMA);
        }
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(System.getenv("AMQP_URL"));
        factory.setRequestedHeartbeat(30);
        // The loop below reconnects. The library's own recovery would hand over deliveries of the old channel.
        factory.setAutomaticRecoveryEnabled(false);

        Thread worker = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            worker.interrupt();
            try {
                worker.join(10_000);
            } catch (InterruptedException ignored) {
                Thread.currentThread().interrupt();
            }
        }));

        int failures = 0;
        while (!Thread.currentThread().isInterrupted()) {
            long started = System.nanoTime();
            try {
                serve(factory, queue, databaseUrl);
            } catch (InterruptedException stop) {
                return;
            } catch (Exception failure) {
                System.err.println("connection: " + failure);
            }
            if (System.nanoTime() - started > TimeUnit.SECONDS.toNanos(10)) {
                failures = 0;
            }
            // Full jitter, so that a hundred consumers do not come back in the same second.
            long longest = Math.min(30_000, 500L << Math.min(failures, 6));
            try {
                Thread.sleep(ThreadLocalRandom.current().nextLong(longest));
            } catch (InterruptedException stop) {
                return;
            }
            failures++;
        }
    }
}
