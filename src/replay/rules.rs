//! What may be sent again, and to whom. Pure.
//!
//! A queue gets only what its bindings ask for: a consumer that ships on `order.paid` must not meet anything else
//! because somebody replayed too much. What goes to everybody goes to the workers, so an account must be
//! configured that can read it.

use std::sync::Arc;

use crate::broker::binding_matches;
use crate::config::{Exchange, Queue};
use crate::event::text;
use crate::provider::Registry;
use crate::store::replays::What;

/// A queue that the operator has not declared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no queue of that name is declared under [broker] queues at a RabbitMQ; there are: {}", known(.declared))]
pub struct UnknownQueue {
    /// Those that are.
    pub declared: Vec<String>,
}

fn known(declared: &[String]) -> String {
    if declared.is_empty() {
        "none".to_owned()
    } else {
        declared.join(", ")
    }
}

/// The rules of one replay.
#[derive(Clone, Debug)]
pub struct Rules {
    registry: Arc<Registry>,
    queue: Option<Queue>,
}

impl Rules {
    /// For `queue` of `declared`, or for everybody.
    pub(super) fn new(
        registry: Arc<Registry>,
        declared: &[Queue],
        queue: Option<&str>,
    ) -> Result<Self, UnknownQueue> {
        let queue = match queue {
            None => None,
            Some(name) => match declared.iter().find(|queue| queue.name == name) {
                Some(queue) => Some(queue.clone()),
                None => {
                    return Err(UnknownQueue {
                        declared: declared.iter().map(|queue| queue.name.clone()).collect(),
                    });
                }
            },
        };
        Ok(Self { registry, queue })
    }

    /// What the queue is bound to, if there is one.
    pub fn exchange(&self) -> Option<What> {
        self.queue.as_ref().map(|queue| match queue.exchange {
            Exchange::Events => What::Events,
            Exchange::Orders => What::Orders,
        })
    }

    /// Whether the workers see what is sent.
    pub fn reaches_workers(&self, what: What) -> bool {
        self.queue.is_none() && what == What::Events
    }

    /// Whether this process does not know the account whose event the workers would have to read: another may.
    pub fn is_stranger(&self, account: Option<(&str, &str)>) -> bool {
        self.queue.is_none() && account.is_some_and(|(provider, account)| !self.knows(provider, account))
    }

    fn knows(&self, provider: &str, account: &str) -> bool {
        provider
            .parse()
            .is_ok_and(|provider| self.registry.get(provider, account).is_some())
    }

    /// Why something of this account and kind (an event's type, a message's routing key) is not sent.
    pub fn refusal(&self, account: Option<(&str, &str)>, kind: &str) -> Option<String> {
        match (&self.queue, account) {
            (Some(queue), account) => {
                let key = match account {
                    Some((provider, account)) => format!("{provider}.{account}.{kind}"),
                    None => kind.to_owned(),
                };
                let key = text::cut(&key, text::MAX_SHORT);
                let wanted = queue.bind.iter().any(|binding| binding_matches(binding, key));
                (!wanted).then(|| format!("queue {} does not ask for {kind}", queue.name))
            }
            (None, Some((provider, account))) => (!self.knows(provider, account))
                .then(|| format!("account {provider}/{account} is not configured: no worker could read it")),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(queue: Option<&str>) -> Result<Rules, UnknownQueue> {
        let declared = [
            Queue {
                name: "fulfilment".to_owned(),
                exchange: Exchange::Orders,
                bind: vec!["order.paid".to_owned(), "attention.#".to_owned()],
            },
            Queue {
                name: "evidence".to_owned(),
                exchange: Exchange::Events,
                bind: vec!["alipay.#".to_owned()],
            },
        ];
        Rules::new(Arc::new(Registry::default()), &declared, queue)
    }

    #[test]
    fn a_queue_gets_only_what_it_asks_for() {
        let fulfilment = rules(Some("fulfilment")).unwrap();
        assert_eq!(fulfilment.exchange(), Some(What::Orders));
        assert_eq!(fulfilment.refusal(None, "order.paid"), None);
        assert_eq!(fulfilment.refusal(None, "attention.paid_twice"), None);
        let refused = fulfilment.refusal(None, "order.updated").unwrap();
        assert_eq!(refused, "queue fulfilment does not ask for order.updated");

        let evidence = rules(Some("evidence")).unwrap();
        let paid = "payment.succeeded";
        assert_eq!(
            evidence.refusal(Some(("alipay", "gone")), paid),
            None,
            "no worker sees it"
        );
        assert!(evidence.refusal(Some(("stripe", "shop")), paid).is_some());
        assert!(!evidence.reaches_workers(What::Events));
    }

    #[test]
    fn everybody_includes_the_workers_who_need_the_account() {
        let everybody = rules(None).unwrap();
        assert!(everybody.reaches_workers(What::Events) && !everybody.reaches_workers(What::Orders));
        let refused = everybody
            .refusal(Some(("alipay", "gone")), "payment.succeeded")
            .unwrap();
        assert!(refused.contains("alipay/gone is not configured"), "{refused}");
        assert_eq!(everybody.refusal(None, "order.paid"), None);
    }

    #[test]
    fn an_unknown_queue_is_told_with_those_that_are_known() {
        let unknown = rules(Some("payhook.apply")).unwrap_err();
        assert!(unknown.to_string().ends_with("fulfilment, evidence"), "{unknown}");
    }
}
