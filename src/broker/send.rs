//! One message onto one channel, up to its confirm.
//!
//! Mandatory, so that "no queue has it" is told from "a queue has it": both are confirmed with an ack, and only
//! the returned message in it makes the difference.

use std::sync::Arc;
use std::time::Duration;

use lapin::options::BasicPublishOptions;
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Confirmation, ErrorKind};
use tokio::sync::oneshot;

use super::connection::reply_code;
use super::publisher::answer;
use super::topology::short;
use super::{BrokerError, Outgoing, Published, Route, Topology};
use crate::event::text;

const PERSISTENT: u8 = 2;
/// How the broker closes a channel over one message: too large for it, or a routing key we may not use.
const OVER_ONE_MESSAGE: [u16; 2] = [406, 403];

/// How sending ended. [`Sent::Suspect`] and [`Sent::Bystander`] leave the caller to answer.
pub(super) enum Sent {
    /// The channel is fine.
    Answered,
    /// No confirm came in time.
    TimedOut,
    /// The connection or channel is gone.
    Broken(lapin::Error),
    /// The broker closed the channel over one of the messages on it, perhaps this one.
    Suspect(Outgoing, oneshot::Sender<Published>, lapin::Error),
    /// The channel was closing before this one was on it: whatever the reason is, it is another message's.
    Bystander(Outgoing, oneshot::Sender<Published>, lapin::Error),
}

/// Publishes `message` and answers `reply`.
pub(super) async fn send(
    channel: Channel,
    topology: Arc<Topology>,
    message: Outgoing,
    reply: oneshot::Sender<Published>,
    confirm_timeout: Duration,
) -> Sent {
    let (exchange, routing_key, properties) = match address(&topology, &message) {
        Ok(address) => address,
        Err(error) => {
            answer(reply, Published::Refused(error.to_string()));
            return Sent::Answered;
        }
    };
    let options = BasicPublishOptions {
        mandatory: true,
        ..BasicPublishOptions::default()
    };
    let confirmed = async {
        channel
            .basic_publish(exchange, routing_key, options, &message.body, properties)
            .await?
            .await
    };
    let fate = match tokio::time::timeout(confirm_timeout, confirmed).await {
        Ok(Ok(Confirmation::Ack(None))) => Published::Routed,
        Ok(Ok(Confirmation::Ack(Some(_)))) => Published::Unrouted,
        Ok(Ok(Confirmation::Nack(_) | Confirmation::NotRequested)) => Published::Failed,
        Ok(Err(error)) if is_over_one_message(&error) => return Sent::Suspect(message, reply, error),
        Ok(Err(error)) if came_too_late(&error) => return Sent::Bystander(message, reply, error),
        Ok(Err(error)) => {
            answer(reply, Published::Failed);
            return Sent::Broken(error);
        }
        Err(_) => {
            answer(reply, Published::Failed);
            return Sent::TimedOut;
        }
    };
    answer(reply, fate);
    Sent::Answered
}

fn is_over_one_message(error: &lapin::Error) -> bool {
    reply_code(error).is_some_and(|code| OVER_ONE_MESSAGE.contains(&code))
}

/// Whether the channel was closing already, for a reason that others were told.
fn came_too_late(error: &lapin::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidChannelState(..))
}

/// Exchange, routing key and properties; an error: AMQP cannot carry one of them.
fn address(
    topology: &Topology,
    message: &Outgoing,
) -> Result<(ShortString, ShortString, BasicProperties), BrokerError> {
    let (exchange, routing_key) = match &message.route {
        Route::Events(key) => (topology.events.clone(), short(key)?),
        Route::Orders(key) => (topology.orders.clone(), short(key)?),
        // The default exchange routes by queue name.
        Route::Apply => (ShortString::default(), topology.apply.clone()),
        Route::Queue(name) => (ShortString::default(), short(name)?),
    };
    let properties = BasicProperties::default()
        .with_content_type(short("application/cloudevents+json")?)
        .with_delivery_mode(PERSISTENT)
        .with_message_id(short(&message.id)?)
        .with_type(short(text::cut(&message.kind, text::MAX_SHORT))?)
        .with_timestamp(u64::try_from(message.at.secs()).unwrap_or_default())
        .with_app_id(short("payhook")?);
    Ok((exchange, routing_key, properties))
}

#[cfg(test)]
mod tests {
    use lapin::ChannelState;
    use lapin::protocol::{AMQPError, AMQPHardError, AMQPSoftError};

    use super::*;

    #[test]
    fn what_closed_the_channel_is_told_from_what_came_to_it() {
        let protocol = |error: AMQPError| lapin::Error::from(ErrorKind::ProtocolError(error));
        let soft = |kind: AMQPSoftError| protocol(AMQPError::new(kind.into(), "".into()));
        let too_large = soft(AMQPSoftError::PRECONDITIONFAILED);
        let not_ours = soft(AMQPSoftError::ACCESSREFUSED);
        let no_exchange = soft(AMQPSoftError::NOTFOUND);
        let no_channel = protocol(AMQPError::new(AMQPHardError::CHANNELERROR.into(), "".into()));
        let closing = lapin::Error::from(ErrorKind::InvalidChannelState(
            ChannelState::Closing,
            "basic.publish",
        ));
        let told = [&too_large, &not_ours, &no_exchange, &no_channel, &closing]
            .map(|error| (is_over_one_message(error), came_too_late(error)));
        let over_one = (true, false);
        assert_eq!(
            told,
            [over_one, over_one, (false, false), (false, false), (false, true)]
        );
    }
}
