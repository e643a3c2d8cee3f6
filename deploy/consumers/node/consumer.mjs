// Ships on payhook's message order.paid, once for each order (Postgres, amqplib).
//
//   npm ci
//   AMQP_URL=amqp://user:password@host:5672/%2f QUEUE=fulfilment DATABASE_URL=postgres://… node consumer.mjs
//
// The queue is payhook's: `[broker] queues` declares it, with `bind = ["order.paid"]` and nothing else.
//
// Delivery is at least once: after a crash or a lost connection the same message comes again. What makes it
// count once is one transaction that holds both the note that the message was seen and the work itself; the
// message is acknowledged after that transaction's commit.
// Any number of these processes may share the queue and the database.
//
// With WORK=mirror and a queue that binds `order.*` it keeps a copy of how each order stands instead: that, and
// only that, drops lower versions.
//
// One line of JSON on stdout per delivery: handled, duplicate, stale, ignored, refused or failed.

import { setTimeout as sleep } from "node:timers/promises";
import amqplib from "amqplib";
import pg from "pg";

const PREFETCH = 32;

const SCHEMA = `
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
  )`;

// The message, if what the work needs is there; null when it is not one of payhook's.
function read(content) {
  try {
    const message = JSON.parse(content.toString("utf8"));
    const { id, type, data } = message;
    const order = type.startsWith("order.");
    const texts = order ? [id, data.merchant, data.order_id, data.status] : [id];
    const fits = texts.every((text) => typeof text === "string") && (!order || Number.isSafeInteger(data.version));
    return fits ? message : null;
  } catch {
    return null;
  }
}

// Your work, inside the transaction: what it writes through `db` is there once or not at all.
// By the message's type and never by version: order.paid is written once for each order, and it counts even if a
// later version came first. By `id` alone: what an operator replays is not shipped again.
// What cannot be rolled back (a call to another service) needs a key of its own there: use the message's id.
async function ship(db, { id, type, data }) {
  if (type !== "order.paid") return "ignored";
  // The insert decides; nothing looks first.
  const noted = await db.query("insert into taken (id) values ($1) on conflict do nothing", [id]);
  if (noted.rowCount === 0) return "duplicate";
  await db.query("insert into shipments (merchant, order_id) values ($1, $2) on conflict do nothing", [
    data.merchant,
    data.order_id,
  ]);
  return "handled";
}

// A copy of how each order stands: messages overtake each other, and the highest version is the truth.
async function mirror(db, { type, data }) {
  if (!type.startsWith("order.")) return "ignored";
  const changed = await db.query(
    `insert into mirrored_orders (merchant, order_id, status, version) values ($1, $2, $3, $4)
     on conflict (merchant, order_id) do update set status = excluded.status, version = excluded.version
     where excluded.version >= mirrored_orders.version`,
    [data.merchant, data.order_id, data.status, data.version],
  );
  return changed.rowCount === 0 ? "stale" : "handled";
}

const WORK = { ship, mirror }[process.env.WORK ?? "ship"];
if (!WORK) throw new Error("WORK is ship or mirror");

// Everything about one delivery, in one transaction. Throws if it could not be done now.
async function consumeOne(pool, message) {
  const db = await pool.connect();
  try {
    await db.query("begin");
    const verdict = await WORK(db, message);
    await db.query("commit");
    db.release();
    return verdict;
  } catch (error) {
    // The connection may be in any state: closing it rolls back.
    db.release(true);
    throw error;
  }
}

const say = (id, verdict) => console.log(JSON.stringify({ id, verdict }));

// One after the other. `live` says whether the channel that a delivery came on is still the open one: its tag
// means nothing on another.
async function onDelivery(pool, channel, live, delivery) {
  const message = read(delivery.content);
  if (message === null) {
    console.error("not one of payhook's messages");
    if (live()) channel.reject(delivery, false);
    say(null, "refused");
    return;
  }
  try {
    const verdict = await consumeOne(pool, message);
    // Committed. If this is lost the message comes again, and is a duplicate then.
    if (live()) channel.ack(delivery);
    say(message.id, verdict);
  } catch (error) {
    // Back to the queue after a pause: a database that is away is not asked a thousand times a second.
    // The queue counts, and after 20 deliveries moves the message to {queue}.dead.
    console.error("could not be done now:", error.message);
    const count = delivery.properties.headers?.["x-delivery-count"] ?? 0;
    await sleep(1000 * Math.min(30, 2 ** Math.min(count, 5)));
    if (live()) channel.nack(delivery, false, true);
    say(message.id, "failed");
  }
}

// Consumes until told to stop, or until the connection, the channel or the queue goes away.
async function serve(pool, url, queue, stopping) {
  const connection = await amqplib.connect(url, { heartbeat: 30, timeout: 10_000 });
  let open = true;
  let stopped = () => {};
  const ended = new Promise((resolve) => {
    stopped = resolve;
  });
  const gone = () => {
    open = false;
    stopped();
  };
  connection.on("error", (error) => console.error("connection:", error.message));
  connection.on("close", gone);
  try {
    const channel = await connection.createChannel();
    channel.on("error", (error) => console.error("channel:", error.message));
    channel.on("close", gone);
    await channel.prefetch(PREFETCH);
    let work = Promise.resolve();
    const { consumerTag } = await channel.consume(queue, (delivery) => {
      // Null: the broker cancelled the consumer, because the queue is gone.
      if (delivery === null) return stopped();
      work = work.then(() => (open && !stopping.aborted ? onDelivery(pool, channel, () => open, delivery) : undefined));
    });
    stopping.addEventListener("abort", stopped, { once: true });
    if (!stopping.aborted) await ended;
    if (open) await channel.cancel(consumerTag);
    await work;
  } finally {
    stopping.removeEventListener("abort", stopped);
    // What was delivered and not acknowledged goes back to the queue.
    await connection.close().catch(() => {});
  }
}

async function main() {
  const stop = new AbortController();
  for (const name of ["SIGTERM", "SIGINT"]) process.on(name, () => stop.abort());
  const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 2 });
  pool.on("error", (error) => console.error("database:", error.message));
  await pool.query(SCHEMA);

  let failures = 0;
  while (!stop.signal.aborted) {
    const started = Date.now();
    try {
      await serve(pool, process.env.AMQP_URL, process.env.QUEUE, stop.signal);
    } catch (error) {
      console.error("connection:", error.message);
    }
    if (Date.now() - started > 10_000) failures = 0;
    // Full jitter, so that a hundred consumers do not come back in the same second.
    const wait = Math.random() * Math.min(30_000, 500 * 2 ** Math.min(failures, 6));
    if (!stop.signal.aborted) await sleep(wait, undefined, { signal: stop.signal }).catch(() => {});
    failures += 1;
  }
  await pool.end();
}

await main();
