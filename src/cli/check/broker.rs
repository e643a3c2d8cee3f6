//! RabbitMQ: whether it answers, and whether what is there is what payhook would declare.
//!
//! A queue with other arguments is used as it is, so it is a problem only where it loses something that payhook
//! promises: without payhook's arguments nothing bounds redelivery and nothing catches what is rejected.

use std::time::Duration;

use super::{Finding, policies};
use crate::broker::{BrokerOptions, Found, Inspected, inspect};
use crate::config::{BrokerConfig, BrokerUrl};
use crate::telemetry::causes;

const WHAT: &str = "broker";

/// All findings of the broker, after at most `deadline`.
pub(super) async fn findings(config: &BrokerConfig, deadline: Duration) -> Vec<Finding> {
    if matches!(config.url, BrokerUrl::Embedded) {
        return vec![Finding::ok(WHAT, "embedded: the outbox is the queue")];
    }
    let options = BrokerOptions::new(config.clone(), Vec::new());
    match tokio::time::timeout(deadline, inspect(&options)).await {
        Ok(Ok(inspected)) => {
            let mut found = vec![Finding::ok(WHAT, "RabbitMQ answers")];
            found.extend(inspected.iter().map(|one| judge(one, config)));
            found.extend(policies::findings(&options, &inspected).await);
            found
        }
        Ok(Err(error)) => {
            let message = format!("cannot be used: {}", causes(&error));
            vec![Finding::problem(WHAT, message)]
        }
        Err(_) => {
            let message = format!("does not answer within {} s", deadline.as_secs());
            vec![Finding::problem(WHAT, message)]
        }
    }
}

fn judge(inspected: &Inspected, config: &BrokerConfig) -> Finding {
    let Inspected {
        name,
        exchange,
        found,
    } = inspected;
    let kind = if *exchange { "exchange" } else { "queue" };
    let what = format!("{kind} {name}");
    let declared = config
        .queues
        .iter()
        .find(|queue| queue.name == *name)
        .map(|queue| {
            format!(
                ", bound to {}.{} by {}",
                config.prefix,
                queue.exchange.as_str(),
                queue.bind.join(" ")
            )
        })
        .unwrap_or_default();
    match found {
        Found::Fitting => Finding::ok(what, format!("is there as declared{declared}")),
        Found::Missing => Finding::ok(
            what,
            format!("is not there yet: the daemon declares it when it connects{declared}"),
        ),
        Found::Other(reason) => Finding::problem(
            what,
            format!("exists with other arguments and is used as it is; remove it, or know why: {reason}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Level;
    use super::*;
    use crate::config::{Config, Environment};

    fn config(text: &str) -> BrokerConfig {
        Config::parse(text, Path::new("/nowhere"), &Environment::default())
            .unwrap()
            .broker
    }

    #[test]
    fn a_queue_with_other_arguments_is_a_problem_and_a_missing_one_is_not() {
        let config = config(
            "[broker]\nurl = \"amqp://mq\"\n\
             queues = [{ name = \"fulfilment\", exchange = \"orders\", bind = [\"order.paid\"] }]",
        );
        for (found, level) in [
            (Found::Fitting, Level::Ok),
            (Found::Missing, Level::Ok),
            (Found::Other("inequivalent arg".to_owned()), Level::Problem),
        ] {
            let inspected = Inspected {
                name: "fulfilment".to_owned(),
                exchange: false,
                found,
            };
            let finding = judge(&inspected, &config);
            assert_eq!(finding.level, level, "{finding:?}");
            assert_eq!(finding.what, "queue fulfilment");
            let bound = finding.message.contains("payhook.orders by order.paid");
            assert_eq!(bound, level == Level::Ok, "{finding:?}");
        }
    }
}
