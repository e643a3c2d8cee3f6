"""Worker: takes one message, one transaction (dedup, order), publishes order.paid with a confirm, acks."""
import asyncio
import json
import os

import aio_pika
import asyncpg

DSN = os.environ["DATABASE_URL"]
POOL = int(os.environ.get("POOL_SIZE", "10"))

SEEN = "INSERT INTO processed_events(event_key) VALUES ($1) ON CONFLICT DO NOTHING RETURNING event_key"
PAID = """
INSERT INTO orders(order_id, status, paid, currency) VALUES ($1, 'paid', $2, $3)
ON CONFLICT (order_id) DO UPDATE SET status = 'paid', paid = excluded.paid, updated_at = now()
WHERE orders.status IN ('pending', 'processing', 'failed') RETURNING order_id
"""


async def handle(pool: asyncpg.Pool, channel: aio_pika.abc.AbstractChannel, message: aio_pika.abc.AbstractIncomingMessage) -> None:
    intent = json.loads(message.body)["data"]["object"]
    order_id = intent["metadata"]["order_id"]
    paid = None
    async with pool.acquire() as conn, conn.transaction():
        if await conn.fetchval(SEEN, message.message_id) and message.type == "payment_intent.succeeded":
            paid = await conn.fetchval(PAID, order_id, intent["amount_received"], intent["currency"])
    if paid:
        body = json.dumps({"order_id": order_id, "status": "paid", "paid": intent["amount_received"]}).encode()
        await channel.default_exchange.publish(
            aio_pika.Message(body, message_id=f"order.paid:{order_id}", delivery_mode=aio_pika.DeliveryMode.PERSISTENT),
            routing_key="fulfilment")
    await message.ack()


async def main() -> None:
    pool = await asyncpg.create_pool(DSN, min_size=POOL, max_size=POOL)
    connection = await aio_pika.connect_robust(os.environ["AMQP_URL"])
    channel = await connection.channel(publisher_confirms=True)
    await channel.set_qos(prefetch_count=64)
    queue = await channel.get_queue("apply")
    await queue.consume(lambda message: handle(pool, channel, message))
    await asyncio.Future()


asyncio.run(main())
