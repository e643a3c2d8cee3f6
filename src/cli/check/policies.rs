//! Policies on payhook's queues, and what they will do. AMQP does not show them; the management API does.
//!
//! A policy that takes messages out of the workers' queue costs time only: the outbox sends again what has no outcome. One
//! that takes them out of a consumer's queue is a warning while a dead-letter queue catches them, else a problem.

use std::time::Duration;

use reqwest::{StatusCode, Url};
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Finding, Level};
use crate::broker::{BrokerOptions, Found, Inspected, Management};
use crate::config::BrokerConfig;
use crate::telemetry::causes;

/// For one answer; all of `check` has little more.
const TIMEOUT: Duration = Duration::from_secs(1);

/// What happens to a message that a policy takes out of a queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The outbox has its event and sends it again.
    SentAgain,
    /// The queue's dead-letter queue takes it.
    DeadLettered,
    /// Nothing has it any more.
    Lost,
}

/// The part of the management API's answer that is read.
#[derive(Deserialize)]
struct Shown {
    policy: Option<String>,
    operator_policy: Option<String>,
    /// An object; an empty list where there is no policy.
    #[serde(default)]
    effective_policy_definition: Value,
}

/// A finding for each queue that a policy changes, or one that says why that is not known.
pub(super) async fn findings(options: &BrokerOptions, inspected: &[Inspected]) -> Vec<Finding> {
    let Ok(Some(management)) = Management::of(options) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let queues = inspected
        .iter()
        .filter(|one| !one.exchange && one.found != Found::Missing);
    for queue in queues {
        match look(&management, &queue.name).await {
            Ok(None) => {}
            Ok(Some(shown)) => found.extend(judge(&options.config, &queue.name, &shown)),
            Err(reason) => {
                let message = format!(
                    "policies on payhook's queues could not be looked at: {reason}; \
                     [broker] management_url says where RabbitMQ's management plugin answers (here: {})",
                    management.url
                );
                found.push(Finding::warning("policies", message));
                return found;
            }
        }
    }
    found
}

async fn look(management: &Management, queue: &str) -> Result<Option<Shown>, String> {
    let mut url: Url = management
        .url
        .parse()
        .map_err(|error| format!("not a URL: {error}"))?;
    url.path_segments_mut()
        .map_err(|()| "not a URL of a server".to_owned())?
        .pop_if_empty()
        .extend(["api", "queues", management.vhost.as_str(), queue]);
    let http = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(TIMEOUT)
        .build()
        .map_err(|error| causes(&error))?;
    let asked = http
        .get(url)
        .basic_auth(&management.user, Some(management.password.expose_secret()));
    let answer = asked.send().await.map_err(|error| causes(&error.without_url()))?;
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => return Ok(None),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            return Err("the user of [broker] url needs the tag `management` or `monitoring`".to_owned());
        }
        other => return Err(format!("the answer is {other}")),
    }
    let body = answer
        .bytes()
        .await
        .map_err(|error| causes(&error.without_url()))?;
    serde_json::from_slice(&body)
        .map(Some)
        .map_err(|_| "the answer is not that of the management API".to_owned())
}

fn judge(config: &BrokerConfig, queue: &str, shown: &Shown) -> Option<Finding> {
    let definition = shown.effective_policy_definition.as_object()?;
    let own = [
        format!("{}.apply", config.prefix),
        format!("{}.dead", config.prefix),
    ];
    let fate = if own.iter().any(|name| name == queue) {
        Fate::SentAgain
    } else if config.queues.iter().any(|declared| declared.name == queue) {
        Fate::DeadLettered
    } else {
        Fate::Lost
    };
    let effects = effects(definition, fate);
    let level = effects.iter().map(|(level, _)| *level).max()?;
    let names: Vec<&str> = [&shown.policy, &shown.operator_policy]
        .into_iter()
        .filter_map(|name| name.as_deref().filter(|name| !name.is_empty()))
        .collect();
    let words: Vec<String> = effects.into_iter().map(|(_, words)| words).collect();
    Some(Finding {
        level,
        what: format!("policy on {queue}"),
        message: format!("{}: {}", names.join(" and "), words.join("; ")),
    })
}

fn effects(definition: &Map<String, Value>, fate: Fate) -> Vec<(Level, String)> {
    let (taken, level) = match fate {
        Fate::SentAgain => (
            "payhook sends again what has no outcome, after reapply_after and later each time",
            Level::Warning,
        ),
        Fate::DeadLettered => (
            "they go to its dead-letter queue, not to the consumer",
            Level::Warning,
        ),
        Fate::Lost => ("they are lost", Level::Problem),
    };
    let gone = if fate == Fate::SentAgain {
        Level::Warning
    } else {
        Level::Problem
    };
    let refuses = definition.get("overflow").and_then(Value::as_str) == Some("reject-publish");
    let mut found = Vec::new();
    for (key, value) in definition {
        let effect = match key.as_str() {
            "max-length" | "max-length-bytes" if refuses => (
                Level::Warning,
                format!("{key} {value} refuses what is published to the full queue; it waits in the outbox"),
            ),
            "max-length" | "max-length-bytes" => (
                level,
                format!("{key} {value} takes the oldest messages out of the full queue: {taken}"),
            ),
            "message-ttl" => (
                level,
                format!("message-ttl {value} takes out messages that waited so many ms: {taken}"),
            ),
            "expires" => (
                gone,
                format!(
                    "expires {value} deletes the queue, with what it holds, after so many ms without a consumer"
                ),
            ),
            "delivery-limit" => (
                Level::Warning,
                format!("delivery-limit {value} counts where it is less than the queue's own: {taken}"),
            ),
            "dead-letter-exchange" | "dead-letter-routing-key" if fate == Fate::Lost => (
                Level::Warning,
                format!("{key} {value} sends on what leaves this dead-letter queue"),
            ),
            "dead-letter-exchange" | "dead-letter-routing-key" => (
                Level::Warning,
                format!("{key} {value} counts only where the queue was declared without its own"),
            ),
            _ => continue,
        };
        found.push(effect);
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_policy_is_as_bad_as_what_becomes_of_the_messages() {
        let level = |definition: Value, fate| {
            let found = effects(definition.as_object().unwrap(), fate);
            found.iter().map(|(level, _)| *level).max()
        };
        for key in ["max-length", "max-length-bytes", "message-ttl"] {
            assert_eq!(
                level(json!({ key: 1 }), Fate::SentAgain),
                Some(Level::Warning),
                "{key}"
            );
            assert_eq!(
                level(json!({ key: 1 }), Fate::DeadLettered),
                Some(Level::Warning),
                "{key}"
            );
            assert_eq!(
                level(json!({ key: 1 }), Fate::Lost),
                Some(Level::Problem),
                "{key}"
            );
        }
        assert_eq!(
            level(json!({ "expires": 1 }), Fate::SentAgain),
            Some(Level::Warning)
        );
        assert_eq!(
            level(json!({ "expires": 1 }), Fate::DeadLettered),
            Some(Level::Problem)
        );
        let refuses = json!({ "max-length": 1, "overflow": "reject-publish" });
        assert_eq!(level(refuses, Fate::Lost), Some(Level::Warning));
        assert_eq!(
            level(json!({ "queue-leader-locator": "balanced" }), Fate::Lost),
            None
        );
    }
}
