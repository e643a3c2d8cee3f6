//! The names and shapes of everything payhook declares at the broker (design section 5.4). Pure.
//!
//! Two topic exchanges, the workers' queue with its dead-letter queue, and whatever queues the operator declares
//! for consumers, each with its own dead-letter queue. All queues are quorum queues with a delivery limit that
//! is set explicitly, because brokers differ in the default: RabbitMQ 4 drops what came back 20 times from a queue
//! that has no dead-letter queue of its own. Dead letters go through the default exchange, which routes by queue
//! name and cannot be deleted.

use lapin::types::{AMQPValue, FieldTable, ShortString};

use super::{BrokerError, is_valid_binding};
use crate::config::{Exchange, Queue};

/// Redeliveries of an event before the broker gives up on it: a net only, attempts are counted in the store.
const APPLY_DELIVERY_LIMIT: i32 = 100;
/// Redeliveries to a consumer before its dead-letter queue.
const CONSUMER_DELIVERY_LIMIT: i32 = 20;
/// Of what is dead already nothing may be dropped. RabbitMQ 4 has a word for "no limit" (-1), which older ones
/// refuse; this number all of them take, and nobody gets there.
const NO_DELIVERY_LIMIT: i32 = i32::MAX;

/// An existing queue that is not as payhook would have declared it. It is used as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The queue.
    pub queue: String,
    /// The broker's words.
    pub reason: String,
}

/// One queue to be declared.
#[derive(Clone, Debug)]
pub(super) struct DeclaredQueue {
    pub(super) name: ShortString,
    pub(super) arguments: FieldTable,
    /// Exchange and binding keys.
    pub(super) bindings: Vec<(ShortString, ShortString)>,
    /// Whether its loss loses messages that nobody sends again.
    pub(super) precious: bool,
}

/// Everything that payhook declares.
#[derive(Clone, Debug)]
pub struct Topology {
    pub(super) events: ShortString,
    pub(super) orders: ShortString,
    pub(super) apply: ShortString,
    pub(super) dead: ShortString,
    /// In the order of declaration: a dead-letter queue before the queue that needs it.
    pub(super) queues: Vec<DeclaredQueue>,
    consumers: Vec<Queue>,
}

impl Topology {
    /// For payhook's `prefix` and the operator's queues; names and bindings are checked here.
    pub fn new(prefix: &str, consumers: &[Queue]) -> Result<Self, BrokerError> {
        let events = short(&format!("{prefix}.events"))?;
        let orders = short(&format!("{prefix}.orders"))?;
        let apply = short(&format!("{prefix}.apply"))?;
        let dead = short(&format!("{prefix}.dead"))?;
        let mut queues = vec![
            DeclaredQueue {
                name: dead.clone(),
                arguments: quorum(NO_DELIVERY_LIMIT, None)?,
                bindings: Vec::new(),
                precious: false,
            },
            DeclaredQueue {
                name: apply.clone(),
                arguments: quorum(APPLY_DELIVERY_LIMIT, Some(&dead))?,
                bindings: vec![(events.clone(), short("#")?)],
                precious: false,
            },
        ];
        for queue in consumers {
            let own = [apply.as_str(), dead.as_str()];
            let taken = queues.iter().any(|known| known.name.as_str() == queue.name);
            if queue.name.is_empty() || own.contains(&queue.name.as_str()) || taken {
                return Err(BrokerError::Topology(format!(
                    "queues: the name {:?} is empty, payhook's own or used twice",
                    queue.name
                )));
            }
            let dead = short(&format!("{}.dead", queue.name))?;
            let exchange = match queue.exchange {
                Exchange::Events => &events,
                Exchange::Orders => &orders,
            };
            let mut bindings = Vec::with_capacity(queue.bind.len());
            for binding in &queue.bind {
                if !is_valid_binding(binding) {
                    return Err(BrokerError::Topology(format!(
                        "queues.{}: bind {binding:?} is too long",
                        queue.name
                    )));
                }
                bindings.push((exchange.clone(), short(binding)?));
            }
            queues.push(DeclaredQueue {
                name: dead.clone(),
                arguments: quorum(NO_DELIVERY_LIMIT, None)?,
                bindings: Vec::new(),
                precious: false,
            });
            queues.push(DeclaredQueue {
                name: short(&queue.name)?,
                arguments: quorum(CONSUMER_DELIVERY_LIMIT, Some(&dead))?,
                bindings,
                precious: true,
            });
        }
        Ok(Self {
            events,
            orders,
            apply,
            dead,
            queues,
            consumers: consumers.to_vec(),
        })
    }

    /// Whether the operator has declared a queue of this name.
    pub fn declares(&self, queue: &str) -> bool {
        self.consumers.iter().any(|declared| declared.name == queue)
    }

    /// Whether a declared queue asks for `routing_key` on the orders exchange: then a message that reached no
    /// queue has met one that vanished, and has to wait for its return.
    pub fn wants_order_message(&self, routing_key: &str) -> bool {
        self.consumers
            .iter()
            .filter(|queue| queue.exchange == Exchange::Orders)
            .flat_map(|queue| &queue.bind)
            .any(|binding| super::binding_matches(binding, routing_key))
    }
}

/// A quorum queue with a delivery limit, and a dead-letter queue if it has one.
fn quorum(limit: i32, dead: Option<&ShortString>) -> Result<FieldTable, BrokerError> {
    let mut arguments = FieldTable::default();
    arguments.insert(short("x-queue-type")?, AMQPValue::LongString("quorum".into()));
    arguments.insert(short("x-delivery-limit")?, AMQPValue::LongInt(limit));
    if let Some(dead) = dead {
        arguments.insert(short("x-dead-letter-exchange")?, AMQPValue::LongString("".into()));
        arguments.insert(
            short("x-dead-letter-routing-key")?,
            AMQPValue::LongString(dead.as_str().into()),
        );
    }
    Ok(arguments)
}

/// A name that AMQP can carry; the library's own conversion would panic.
pub(super) fn short(text: &str) -> Result<ShortString, BrokerError> {
    ShortString::try_new(text).map_err(|error| BrokerError::Topology(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str, exchange: Exchange, bind: &[&str]) -> Queue {
        Queue {
            name: name.to_owned(),
            exchange,
            bind: bind.iter().map(|&binding| binding.to_owned()).collect(),
        }
    }

    #[test]
    fn an_order_message_is_wanted_only_by_a_queue_on_its_exchange() {
        let queues = [
            queue("fulfilment", Exchange::Orders, &["order.paid"]),
            queue("evidence", Exchange::Events, &["#"]),
        ];
        let topology = Topology::new("payhook", &queues).unwrap();
        assert!(topology.wants_order_message("order.paid"));
        assert!(!topology.wants_order_message("order.refunded"));
    }

    #[test]
    fn every_dead_letter_queue_is_declared_before_the_queue_that_needs_it() {
        let topology = Topology::new("p", &[queue("q", Exchange::Events, &["#"])]).unwrap();
        let names: Vec<&str> = topology.queues.iter().map(|queue| queue.name.as_str()).collect();
        assert_eq!(names, ["p.dead", "p.apply", "q.dead", "q"]);
    }

    /// D14, D17: what RabbitMQ 4 would do where nothing is said is said for every queue, and none is so short that
    /// it would refuse what comes.
    #[test]
    fn every_queue_says_how_often_it_delivers_and_where_the_rest_goes() {
        let topology = Topology::new("p", &[queue("q", Exchange::Events, &["#"])]).unwrap();
        let declared = |name: &str| {
            let queue = topology.queues.iter().find(|queue| queue.name.as_str() == name);
            let arguments = queue.unwrap().arguments.inner();
            let text = |key: &str| match arguments.get(key) {
                Some(AMQPValue::LongString(text)) => Some(text.to_string()),
                _ => None,
            };
            assert_eq!(text("x-queue-type").as_deref(), Some("quorum"), "{name}");
            for limit in ["x-max-length", "x-max-length-bytes", "x-message-ttl", "x-expires"] {
                assert!(!arguments.contains_key(limit), "{name}");
            }
            let dead = text("x-dead-letter-routing-key");
            assert_eq!(text("x-dead-letter-exchange").is_some(), dead.is_some(), "{name}");
            (arguments.get("x-delivery-limit").cloned(), dead)
        };
        let limit = |limit| Some(AMQPValue::LongInt(limit));
        assert_eq!(declared("p.apply"), (limit(100), Some("p.dead".to_owned())));
        assert_eq!(declared("q"), (limit(20), Some("q.dead".to_owned())));
        for dead in ["p.dead", "q.dead"] {
            assert_eq!(declared(dead), (limit(i32::MAX), None), "nothing dead is dropped");
        }
    }

    #[test]
    fn names_that_cannot_be_declared_are_told() {
        let long = "x".repeat(255);
        for (prefix, queues) in [
            (long.as_str(), vec![]),
            ("p", vec![queue(&long, Exchange::Events, &[])]),
            ("p", vec![queue("p.apply", Exchange::Events, &[])]),
            ("p", vec![queue("", Exchange::Events, &[])]),
            (
                "p",
                vec![
                    queue("q", Exchange::Events, &[]),
                    queue("q", Exchange::Orders, &[]),
                ],
            ),
            ("p", vec![queue("q", Exchange::Events, &[&"x".repeat(256)])]),
        ] {
            assert!(Topology::new(prefix, &queues).is_err(), "{prefix} {queues:?}");
        }
    }
}
