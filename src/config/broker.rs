//! `[broker]`: where messages go.
//!
//! Keys: `url` (or `url_file`), `management_url`, `prefix`, `reapply_after`, `queues` (each `name`, `exchange`, `bind`).

use std::collections::BTreeSet;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};

use super::keys::Keys;

/// The `[broker]` section.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// In this process, or at a RabbitMQ.
    pub url: BrokerUrl,
    /// RabbitMQ's management API, `http://…` or `https://…`; `None`: beside AMQP, on its usual port.
    pub management_url: Option<String>,
    /// Of payhook's own exchanges and queues.
    pub prefix: String,
    /// How long an event may be without outcome before it goes to the workers again.
    pub reapply_after: Duration,
    /// Consumer queues to declare.
    pub queues: Vec<Queue>,
}

/// Which broker.
#[derive(Clone, Debug)]
pub enum BrokerUrl {
    /// `embedded`: the outbox itself is the queue.
    Embedded,
    /// `amqp://…` or `amqps://…`; may hold a password.
    Rabbitmq(SecretString),
}

/// One consumer queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// As it stands, without prefix.
    pub name: String,
    /// What it is bound to.
    pub exchange: Exchange,
    /// Binding keys of a topic exchange.
    pub bind: Vec<String>,
}

/// One of payhook's two exchanges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Exchange {
    /// `{prefix}.events`: one message per event.
    #[default]
    Events,
    /// `{prefix}.orders`: orders and attention.
    Orders,
}

impl Exchange {
    /// Its name behind the prefix.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Orders => "orders",
        }
    }
}

impl BrokerConfig {
    pub(super) fn read(keys: &mut Keys<'_>) -> Self {
        let prefix = keys
            .parsed("prefix", "1 to 64 of A-Z a-z 0-9 . _ -", |text| {
                let fits = text.len() <= 64
                    && text
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
                (fits && !text.starts_with("amq.")).then(|| text.to_owned())
            })
            .unwrap_or_default();
        let mut names = BTreeSet::new();
        let queues = keys.tables("queues", |keys| queue(keys, &prefix, &mut names));
        let second = Duration::from_secs(1);
        Self {
            url: url(keys),
            management_url: management_url(keys),
            reapply_after: keys.duration("reapply_after", second..=Duration::from_hours(24)),
            queues,
            prefix,
        }
    }
}

fn url(keys: &mut Keys<'_>) -> BrokerUrl {
    let Some(url) = keys.secret_text("url") else {
        return BrokerUrl::Embedded;
    };
    match url.expose_secret() {
        "embedded" => BrokerUrl::Embedded,
        text if text.starts_with("amqp://") || text.starts_with("amqps://") => BrokerUrl::Rabbitmq(url),
        _ => {
            keys.problem("url", "must be \"embedded\", amqp://… or amqps://…");
            BrokerUrl::Embedded
        }
    }
}

fn management_url(keys: &mut Keys<'_>) -> Option<String> {
    let url = keys.maybe_text("management_url")?;
    let is_http = ["http://", "https://"]
        .iter()
        .any(|scheme| url.starts_with(scheme));
    if !is_http || url.contains('@') {
        keys.problem(
            "management_url",
            "must be http://… or https://…, without a user: the one of url is used",
        );
        return None;
    }
    Some(url)
}

fn queue(keys: &mut Keys<'_>, prefix: &str, names: &mut BTreeSet<String>) -> Queue {
    let name = keys.text("name");
    // Its dead letters go to `{name}.dead`, and AMQP names end at 255 bytes.
    if name.len() > 250 {
        keys.problem("name", "is longer than 250 bytes");
    } else if name.starts_with("amq.") {
        keys.problem(
            "name",
            "must not begin with amq., which RabbitMQ keeps for itself",
        );
    } else if ["apply", "dead"]
        .iter()
        .any(|own| name == format!("{prefix}.{own}"))
    {
        keys.problem("name", "is one of payhook's own queues");
    } else if !name.is_empty() && !names.insert(name.clone()) {
        keys.problem("name", format!("{name} is declared twice"));
    }
    let exchange = if keys.is_given("exchange") {
        keys.parsed("exchange", "\"events\" or \"orders\"", |text| match text {
            "events" => Some(Exchange::Events),
            "orders" => Some(Exchange::Orders),
            _ => None,
        })
    } else {
        None
    };
    let mut bind = Vec::new();
    for item in keys.list("bind") {
        if item.text.len() > 255 {
            keys.problem_at(item.path, "is longer than 255 bytes");
        } else {
            bind.push(item.text);
        }
    }
    if bind.is_empty() {
        keys.problem("bind", "needs at least one binding key, such as \"#\"");
    }
    Queue {
        name,
        exchange: exchange.unwrap_or_default(),
        bind,
    }
}
