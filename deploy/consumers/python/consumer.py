"""Ships on payhook's message order.paid, once for each order (SQLite, pika).

    pip install -r requirements.txt
    AMQP_URL=amqp://user:password@host:5672/%2f QUEUE=fulfilment DATABASE=consumer.db python consumer.py

The queue is payhook's: `[broker] queues` declares it, with `bind = ["order.paid"]` and nothing else.

Delivery is at least once: after a crash or a lost connection the same message comes again. What makes it
count once is one transaction that holds both the note that the message was seen and the work itself; the
message is acknowledged after that transaction's commit.

With WORK=mirror and a queue that binds `order.*` it keeps a copy of how each order stands instead: that, and
only that, drops lower versions.

One line of JSON on stdout per delivery: handled, duplicate, stale, ignored, refused or failed.
"""

import json
import logging
import os
import random
import signal
import sqlite3
import time

import pika
from pika.exceptions import AMQPError

PREFETCH = 32

SCHEMA = """
create table if not exists taken (
    id text primary key,
    seen_at text not null default current_timestamp
) strict;
create table if not exists shipments (
    merchant text not null,
    order_id text not null,
    primary key (merchant, order_id)
) strict;
create table if not exists mirrored_orders (
    merchant text not null,
    order_id text not null,
    status text not null,
    version integer not null,
    primary key (merchant, order_id)
) strict;
"""


class Unreadable(Exception):
    """Not one of payhook's messages: no attempt will make it one."""


def read(body):
    """The message, if what the work needs is there."""
    try:
        message = json.loads(body)
        texts = [message["id"], message["type"]]
        if message["type"].startswith("order."):
            data = message["data"]
            texts += [data["merchant"], data["order_id"], data["status"]]
            if type(data["version"]) is not int:
                raise Unreadable("a version is no number")
        if not all(isinstance(text, str) for text in texts):
            raise Unreadable("what should be text is none")
        return message
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable(repr(error)) from error


def ship(db, message):
    """Your work, inside the transaction: what it writes to `db` is there once or not at all.

    By the message's type and never by version: order.paid is written once for each order, and it counts even if
    a later version came first. By `id` alone: what an operator replays is not shipped again.
    What cannot be rolled back (a call to another service) needs a key of its own there: use `message["id"]`.
    """
    if message["type"] != "order.paid":
        return "ignored"
    # The insert decides; nothing looks first.
    if db.execute("insert into taken (id) values (?) on conflict do nothing", (message["id"],)).rowcount == 0:
        return "duplicate"
    data = message["data"]
    db.execute(
        "insert into shipments (merchant, order_id) values (?, ?) on conflict do nothing",
        (data["merchant"], data["order_id"]),
    )
    return "handled"


def mirror(db, message):
    """A copy of how each order stands: messages overtake each other, and the highest version is the truth."""
    if not message["type"].startswith("order."):
        return "ignored"
    data = message["data"]
    changed = db.execute(
        """insert into mirrored_orders (merchant, order_id, status, version) values (?, ?, ?, ?)
        on conflict (merchant, order_id) do update set status = excluded.status, version = excluded.version
        where excluded.version >= mirrored_orders.version""",
        (data["merchant"], data["order_id"], data["status"], data["version"]),
    )
    return "handled" if changed.rowcount else "stale"


WORK = {"ship": ship, "mirror": mirror}[os.environ.get("WORK", "ship")]


def consume_one(db, body):
    """Everything about one delivery, in one transaction. Raises if it could not be done now."""
    try:
        message = read(body)
    except Unreadable as error:
        logging.error("not one of payhook's messages: %s", error)
        return None, "refused"
    db.execute("begin immediate")
    try:
        verdict = WORK(db, message)
        db.execute("commit")
        return message["id"], verdict
    except BaseException:
        if db.in_transaction:
            db.execute("rollback")
        raise


def serve(connection, queue, db, stopping):
    """Consumes until told to stop, or until the connection or the queue goes away."""
    channel = connection.channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    for method, properties, body in channel.consume(queue, inactivity_timeout=0.5):
        if stopping():
            break
        if method is None:
            continue
        try:
            name, verdict = consume_one(db, body)
        except Exception:
            # Back to the queue after a pause: a database that is away is not asked a thousand times a second.
            # The queue counts, and after 20 deliveries moves the message to {queue}.dead.
            logging.exception("could not be done now")
            count = (properties.headers or {}).get("x-delivery-count", 0)
            connection.sleep(min(30, 2 ** min(count, 5)))
            channel.basic_nack(method.delivery_tag, requeue=True)
            print(json.dumps({"id": None, "verdict": "failed"}), flush=True)
            continue
        if verdict == "refused":
            channel.basic_reject(method.delivery_tag, requeue=False)
        else:
            # Committed. If this is lost the message comes again, and is a duplicate then.
            channel.basic_ack(method.delivery_tag)
        print(json.dumps({"id": name, "verdict": verdict}), flush=True)
    if channel.is_open:
        channel.cancel()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    stop = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.append(True))

    db = sqlite3.connect(os.environ.get("DATABASE", "consumer.db"), timeout=30, isolation_level=None)
    db.execute("pragma journal_mode = wal")
    db.execute("pragma synchronous = full")
    db.executescript(SCHEMA)

    parameters = pika.URLParameters(os.environ["AMQP_URL"])
    parameters.heartbeat = 30
    parameters.blocked_connection_timeout = 60
    queue = os.environ["QUEUE"]

    failures = 0
    while not stop:
        try:
            connection = pika.BlockingConnection(parameters)
            try:
                started = time.monotonic()
                serve(connection, queue, db, lambda: bool(stop))
            finally:
                if time.monotonic() - started > 10:
                    failures = 0
                if connection.is_open:
                    connection.close()
        except (AMQPError, OSError) as error:
            logging.warning("connection: %r", error)
        if not stop:
            # Full jitter, so that a hundred consumers do not come back in the same second.
            time.sleep(random.uniform(0, min(30, 0.5 * 2 ** min(failures, 6))))
            failures += 1
    db.close()


if __name__ == "__main__":
    main()
