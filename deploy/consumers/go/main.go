// Takes payhook's messages from a queue, and does each thing once (Postgres, amqp091-go).
//
//	go mod tidy
//	AMQP_URL=amqp://user:password@host:5672/%2f QUEUE=fulfilment DATABASE_URL=postgres://... go run .
//
// Delivery is at least once: after a crash or a lost connection the same message comes again. What makes it
// count once is one transaction that holds both the note that the message was seen and the work itself; the
// message is acknowledged after that transaction's commit. The queue is payhook's: `[broker] queues` declares it.
// Any number of these processes may share the queue and the database.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"
)

const prefetch = 32

const schema = `
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
)`

// An original is new if its id was never seen, not even in a replay. A replay is new if this id was not yet
// seen in this replay. The insert decides; nothing looks first.
const note = `
insert into seen (id, replay)
select $1::text, $2::text
where $2::text <> '' or not exists (select 1 from seen where id = $1::text)
on conflict do nothing`

// No row changes when a higher version of this order was seen before.
const advance = `
insert into order_versions (merchant, order_id, version) values ($1, $2, $3)
on conflict (merchant, order_id) do update set version = excluded.version
where excluded.version >= order_versions.version`

// message is what decides whether a delivery counts, and what the work needs.
type message struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	Data *struct {
		Merchant string `json:"merchant"`
		OrderID  string `json:"order_id"`
		Status   string `json:"status"`
		Version  *int64 `json:"version"`
		Replay   *struct {
			ID string `json:"id"`
		} `json:"replay"`
	} `json:"data"`
}

func (m *message) isOrder() bool { return strings.HasPrefix(m.Type, "order.") }

func (m *message) replay() string {
	if m.Data.Replay == nil {
		return ""
	}
	return m.Data.Replay.ID
}

// read gives an error for what is not one of payhook's messages: no attempt will make it one.
func read(body []byte) (*message, error) {
	var m message
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	if m.ID == "" || m.Type == "" || m.Data == nil || (m.isOrder() && m.Data.Version == nil) {
		return nil, errors.New("id, type, data or version is missing")
	}
	return &m, nil
}

// handle is your work. It runs inside the transaction: what it writes through tx is there once or not at all.
// What cannot be rolled back (a call to another service) needs a key of its own there: use m.ID.
func handle(ctx context.Context, tx pgx.Tx, m *message) error {
	// By the order's state, not by the message's type: when versions overtake each other, only the newest is seen.
	if m.isOrder() && m.Data.Status == "paid" {
		_, err := tx.Exec(ctx, "insert into shipments (merchant, order_id) values ($1, $2) on conflict do nothing",
			m.Data.Merchant, m.Data.OrderID)
		return err
	}
	return nil
}

// consume does everything about one delivery in one transaction.
func consume(ctx context.Context, pool *pgxpool.Pool, m *message) (verdict string, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, note, m.ID, m.replay())
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			verdict = "duplicate"
			return nil
		}
		if m.isOrder() {
			tag, err = tx.Exec(ctx, advance, m.Data.Merchant, m.Data.OrderID, *m.Data.Version)
			if err != nil {
				return err
			}
			if tag.RowsAffected() == 0 {
				verdict = "stale"
				return nil
			}
		}
		verdict = "handled"
		return handle(ctx, tx, m)
	})
	return verdict, err
}

// onDelivery acknowledges through the delivery itself, which belongs to the channel that it came on. An error
// means that this channel is gone.
func onDelivery(ctx context.Context, pool *pgxpool.Pool, delivery amqp.Delivery) error {
	m, err := read(delivery.Body)
	if err != nil {
		log.Printf("not one of payhook's messages: %v", err)
		return delivery.Reject(false)
	}
	verdict, err := consume(ctx, pool, m)
	if err != nil {
		// Back to the queue after a pause: a database that is away is not asked a thousand times a second.
		// The queue counts, and after 20 deliveries moves the message to {queue}.dead.
		log.Printf("could not be done now: %v", err)
		count, _ := delivery.Headers["x-delivery-count"].(int64)
		pause(ctx, min(30*time.Second, time.Second<<min(count, 5)))
		return delivery.Nack(false, true)
	}
	log.Printf("%s %s", verdict, m.ID)
	// Committed. If this is lost the message comes again, and is a duplicate then.
	return delivery.Ack(false)
}

// serve consumes until told to stop, or until the connection, the channel or the queue goes away.
func serve(ctx context.Context, pool *pgxpool.Pool, url, queue string) error {
	connection, err := amqp.DialConfig(url, amqp.Config{Heartbeat: 30 * time.Second, Locale: "en_US"})
	if err != nil {
		return err
	}
	// What was delivered and not acknowledged goes back to the queue.
	defer connection.Close()
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	if err := channel.Qos(prefetch, 0, false); err != nil {
		return err
	}
	deliveries, err := channel.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case delivery, open := <-deliveries:
			if !open {
				return errors.New("the broker closed the consumer")
			}
			// The one at hand is brought to its end even when told to stop.
			if err := onDelivery(context.WithoutCancel(ctx), pool, delivery); err != nil {
				return err
			}
		}
	}
}

func pause(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, schema); err != nil {
		log.Fatal(err)
	}
	for failures := 0; ctx.Err() == nil; failures++ {
		started := time.Now()
		if err := serve(ctx, pool, os.Getenv("AMQP_URL"), os.Getenv("QUEUE")); err != nil {
			log.Printf("connection: %v", err)
		}
		if time.Since(started) > 10*time.Second {
			failures = 0
		}
		// Full jitter, so that a hundred consumers do not come back in the same second.
		longest := min(30*time.Second, 500*time.Millisecond<<min(failures, 6))
		pause(ctx, rand.N(longest))
	}
}
