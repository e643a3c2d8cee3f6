'use strict';
// Worker: takes one message, one transaction (dedup, order), publishes order.paid with a confirm, acks.
const amqp = require('amqplib');
const { Pool } = require('pg');

const pool = new Pool({ connectionString: process.env.DATABASE_URL, max: Number(process.env.POOL_SIZE || 10) });
const SEEN = {
  name: 'seen',
  text: 'INSERT INTO processed_events(event_key) VALUES ($1) ON CONFLICT DO NOTHING RETURNING event_key',
};
const PAID = {
  name: 'paid',
  text: `INSERT INTO orders(order_id, status, paid, currency) VALUES ($1, 'paid', $2, $3)
  ON CONFLICT (order_id) DO UPDATE SET status = 'paid', paid = excluded.paid, updated_at = now()
  WHERE orders.status IN ('pending', 'processing', 'failed') RETURNING order_id`,
};

async function apply(message) {
  const intent = JSON.parse(message.content.toString('utf8')).data.object;
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    const seen = await client.query({ ...SEEN, values: [message.properties.messageId] });
    let paid = false;
    if (seen.rowCount > 0 && message.properties.type === 'payment_intent.succeeded') {
      const values = [intent.metadata.order_id, intent.amount_received, intent.currency];
      paid = (await client.query({ ...PAID, values })).rowCount > 0;
    }
    await client.query('COMMIT');
    return paid && { order_id: intent.metadata.order_id, status: 'paid', paid: intent.amount_received };
  } catch (e) {
    await client.query('ROLLBACK');
    throw e;
  } finally {
    client.release();
  }
}

(async () => {
  const connection = await amqp.connect(process.env.AMQP_URL);
  const channel = await connection.createConfirmChannel();
  await channel.prefetch(64);
  await channel.consume('apply', async (message) => {
    try {
      const order = await apply(message);
      if (order) {
        await new Promise((resolve, reject) => {
          const properties = { persistent: true, messageId: `order.paid:${order.order_id}` };
          channel.sendToQueue('fulfilment', Buffer.from(JSON.stringify(order)), properties, (e) => (e ? reject(e) : resolve()));
        });
      }
      channel.ack(message);
    } catch (e) {
      console.error(e);
      channel.nack(message);
    }
  });
})();
