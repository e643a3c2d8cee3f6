// Ships on payhook's message order.paid, once for each order (Postgres, amqp091-go).
//
//	go mod tidy
//	AMQP_URL=amqp://user:password@host:5672/%2f QUEUE=fulfilment DATABASE_URL=postgres://... go run .
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
)`

// message is what the work needs.
type message struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	Data *struct {
		Merchant string `json:"merchant"`
		OrderID  string `json:"order_id"`
		Status   string `json:"status"`
		Version  *int64 `json:"version"`
	} `json:"data"`
}

func (m *message) isOrder() bool { return strings.HasPrefix(m.Type, "order.") }

// read gives an error for what is not one of payhook's messages: no attempt will make it one.
func read(body []byte) (*message, error) {
	var m message
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	if m.ID == "" || m.Type == "" || m.Data == nil {
		return nil, errors.New("id, type or data is missing")
	}
	if m.isOrder() && (m.Data.Merchant == "" || m.Data.OrderID == "" || m.Data.Version == nil) {
		return nil, errors.New("merchant, order_id or version is missing")
	}
	return &m, nil
}

// work runs inside the transaction and gives a verdict: what it writes through tx is there once or not at all.
type work func(ctx context.Context, tx pgx.Tx, m *message) (string, error)

// ship is your work. It goes by the message's type and never by version: order.paid is written once for each
// order, and it counts even if a later version came first. It looks at the id alone: what an operator replays is
// not shipped again.
// What cannot be rolled back (a call to another service) needs a key of its own there: use m.ID.
func ship(ctx context.Context, tx pgx.Tx, m *message) (string, error) {
	if m.Type != "order.paid" {
		return "ignored", nil
	}
	// The insert decides; nothing looks first.
	tag, err := tx.Exec(ctx, "insert into taken (id) values ($1) on conflict do nothing", m.ID)
	if err != nil {
		return "", err
	}
	if tag.RowsAffected() == 0 {
		return "duplicate", nil
	}
	_, err = tx.Exec(ctx, "insert into shipments (merchant, order_id) values ($1, $2) on conflict do nothing",
		m.Data.Merchant, m.Data.OrderID)
	return "handled", err
}

const reflection = `
insert into mirrored_orders (merchant, order_id, status, version) values ($1, $2, $3, $4)
on conflict (merchant, order_id) do update set status = excluded.status, version = excluded.version
where excluded.version >= mirrored_orders.version`

// mirror keeps a copy of how each order stands: messages overtake each other, and the highest version is the truth.
func mirror(ctx context.Context, tx pgx.Tx, m *message) (string, error) {
	if !m.isOrder() {
		return "ignored", nil
	}
	tag, err := tx.Exec(ctx, reflection, m.Data.Merchant, m.Data.OrderID, m.Data.Status, *m.Data.Version)
	if err != nil {
		return "", err
	}
	if tag.RowsAffected() == 0 {
		return "stale", nil
	}
	return "handled", nil
}

var works = map[string]work{"": ship, "ship": ship, "mirror": mirror}

// consume does everything about one delivery in one transaction.
func consume(ctx context.Context, pool *pgxpool.Pool, do work, m *message) (verdict string, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var err error
		verdict, err = do(ctx, tx, m)
		return err
	})
	return verdict, err
}

// onDelivery acknowledges through the delivery itself, which belongs to the channel that it came on. An error
// means that this channel is gone.
func onDelivery(ctx context.Context, pool *pgxpool.Pool, do work, delivery amqp.Delivery) error {
	m, err := read(delivery.Body)
	if err != nil {
		log.Printf("not one of payhook's messages: %v", err)
		return delivery.Reject(false)
	}
	verdict, err := consume(ctx, pool, do, m)
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
func serve(ctx context.Context, pool *pgxpool.Pool, do work, url, queue string) error {
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
			if err := onDelivery(context.WithoutCancel(ctx), pool, do, delivery); err != nil {
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
	do, known := works[os.Getenv("WORK")]
	if !known {
		log.Fatal("WORK is ship or mirror")
	}
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
		if err := serve(ctx, pool, do, os.Getenv("AMQP_URL"), os.Getenv("QUEUE")); err != nil {
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
