//! One connection to RabbitMQ, opened with payhook's heartbeat and a name that says whose it is.
//!
//! The library can recover connections by itself; that is left off. Whoever owns a connection drops it when
//! anything is wrong with it and opens another, with topology and consumers built anew: one path, walked on
//! every start, instead of a second one that is walked only on bad days. Every wait has an end, because a
//! broker that has blocked the connection or a network that drops packets answers nothing at all.

use std::future::Future;
use std::time::Duration;

use lapin::uri::AMQPUri;
use lapin::{Channel, Connection, ConnectionProperties};

use super::BrokerError;

/// How long the broker may take for one answer.
pub(super) const ANSWER: Duration = Duration::from_secs(10);

/// Reads the URL and sets the heartbeat, unless the URL asks for another.
pub(super) fn parse(url: &str, heartbeat: u16) -> Result<AMQPUri, BrokerError> {
    let mut uri: AMQPUri = url.parse().map_err(BrokerError::Url)?;
    uri.query.heartbeat.get_or_insert(heartbeat);
    uri.query
        .connection_timeout
        .get_or_insert_with(|| u64::try_from(ANSWER.as_millis()).unwrap_or(10_000));
    Ok(uri)
}

/// Opens a connection called `name`.
pub(super) async fn open(uri: &AMQPUri, name: &str) -> Result<Connection, BrokerError> {
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    answered(Connection::connect_uri(uri.clone(), properties)).await
}

/// Opens a channel.
pub(super) async fn channel(connection: &Connection) -> Result<Channel, BrokerError> {
    answered(connection.create_channel()).await
}

/// Waits for one answer of the broker, but not for ever.
pub(super) async fn answered<T>(call: impl Future<Output = lapin::Result<T>>) -> Result<T, BrokerError> {
    match tokio::time::timeout(ANSWER, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(BrokerError::Timeout(ANSWER)),
    }
}

/// Closes politely; a connection that does not answer is dropped.
pub(super) async fn close(connection: Connection) {
    let closed = tokio::time::timeout(Duration::from_secs(2), connection.close(200, "OK".into())).await;
    if !matches!(closed, Ok(Ok(()))) {
        tracing::debug!("broker connection was not closed politely");
    }
}

/// The AMQP reply code of an error that the broker sent.
pub(super) fn reply_code(error: &lapin::Error) -> Option<u16> {
    match error.kind() {
        lapin::ErrorKind::ProtocolError(error) => Some(error.get_id()),
        _ => None,
    }
}
