module example.com/payhook-consumer

go 1.23

require (
	github.com/jackc/pgx/v5 v5.12.0
	github.com/rabbitmq/amqp091-go v1.16.0
)
