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
 * Takes payhook's messages from a queue, and does each thing once (Postgres, amqp-client).
 *
 * <p>Environment: AMQP_URL, QUEUE, DATABASE_URL (jdbc:postgresql://...).
 *
 * <p>Delivery is at least once: after a crash or a lost connection the same message comes again. What makes it
 * count once is one transaction that holds both the note that the message was seen and the work itself; the
 * message is acknowledged after that transaction's commit. The queue is payhook's: {@code [broker] queues}
 * declares it. Any number of these processes may share the queue and the database.
 */
public final class Consumer {
    private static final int PREFETCH = 32;

    private static final String SCHEMA =
            """
            create table if not exists seen (
              id text not null,
              replay text not null,
              seen_at timestamptz not null default now(),
              primary key (id, replay)
            );
            create table if not exists order_versions (
              merchant text not null,
              order_id text not null,
              version bigint not null,
              primary key (merchant, order_id)
            );
            create table if not exists shipments (
              merchant text not null,
              order_id text not null,
              primary key (merchant, order_id)
            )""";

    /**
     * An original is new if its id was never seen, not even in a replay. A replay is new if this id was not yet
     * seen in this replay. The insert decides; nothing looks first.
     */
    private static final String NOTE =
            """
            insert into seen (id, replay)
            select ?::text, ?::text
            where ?::text <> '' or not exists (select 1 from seen where id = ?::text)
            on conflict do nothing""";

    /** No row changes when a higher version of this order was seen before. */
    private static final String ADVANCE =
            """
            insert into order_versions (merchant, order_id, version) values (?, ?, ?)
            on conflict (merchant, order_id) do update set version = excluded.version
            where excluded.version >= order_versions.version""";

    private static final ObjectMapper JSON = new ObjectMapper();

    private enum Verdict { HANDLED, DUPLICATE, STALE }

    /** The parts that decide whether a message counts; {@code version} is null unless it is an order's. */
    private record Message(
            String id, String replay, String type, String merchant, String orderId, Long version, JsonNode data) {

        /** Null when it is not one of payhook's: no attempt will make it one. */
        static Message read(byte[] body) {
            JsonNode root;
            try {
                root = JSON.readTree(body);
            } catch (IOException notJson) {
                return null;
            }
            JsonNode data = root.path("data");
            String type = root.path("type").textValue();
            String id = root.path("id").textValue();
            if (id == null || type == null || !data.isObject()) {
                return null;
            }
            JsonNode replay = data.path("replay").path("id");
            boolean order = type.startsWith("order.");
            if (order
                    && !(data.path("version").isIntegralNumber()
                            && data.path("merchant").isTextual()
                            && data.path("order_id").isTextual())) {
                return null;
            }
            return new Message(
                    id,
                    replay.asText(""),
                    type,
                    data.path("merchant").textValue(),
                    data.path("order_id").textValue(),
                    order ? data.path("version").longValue() : null,
                    data);
        }
    }

    /**
     * Your work. It runs inside the transaction: what it writes through {@code db} is there once or not at all.
     * What cannot be rolled back (a call to another service) needs a key of its own there: use the message's id.
     */
    private static void handle(java.sql.Connection db, Message message) throws SQLException {
        // By the order's state, not by the message's type: when versions overtake each other, only the newest is seen.
        if (message.version() != null && "paid".equals(message.data().path("status").asText())) {
            String insert = "insert into shipments (merchant, order_id) values (?, ?) on conflict do nothing";
            try (PreparedStatement statement = db.prepareStatement(insert)) {
                statement.setString(1, message.merchant());
                statement.setString(2, message.orderId());
                statement.executeUpdate();
            }
        }
    }

    /** Everything about one delivery, in one transaction. Throws if it could not be done now. */
    private static Verdict consume(String databaseUrl, Message message) throws SQLException {
        // One connection per delivery keeps the example short; take a pool.
        try (java.sql.Connection db = DriverManager.getConnection(databaseUrl)) {
            db.setAutoCommit(false);
            Verdict verdict = Verdict.HANDLED;
            if (!note(db, message)) {
                verdict = Verdict.DUPLICATE;
            } else if (message.version() != null && !advance(db, message)) {
                verdict = Verdict.STALE;
            } else {
                handle(db, message);
            }
            db.commit();
            return verdict;
        }
    }

    private static boolean note(java.sql.Connection db, Message message) throws SQLException {
        try (PreparedStatement statement = db.prepareStatement(NOTE)) {
            statement.setString(1, message.id());
            statement.setString(2, message.replay());
            statement.setString(3, message.replay());
            statement.setString(4, message.id());
            return statement.executeUpdate() == 1;
        }
    }

    private static boolean advance(java.sql.Connection db, Message message) throws SQLException {
        try (PreparedStatement statement = db.prepareStatement(ADVANCE)) {
            statement.setString(1, message.merchant());
            statement.setString(2, message.orderId());
            statement.setLong(3, message.version());
            return statement.executeUpdate() == 1;
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
