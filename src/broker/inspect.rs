//! A look at the broker from outside: does it answer, and is what payhook would declare already there.
//!
//! Looks without declaring what is missing. Only the broker itself compares a queue's arguments, and only when
//! the queue is declared; so one that was just seen is declared as payhook would, which changes nothing. The
//! caller bounds the time.

use std::fmt;

use lapin::ExchangeKind;
use lapin::options::ExchangeDeclareOptions;
use lapin::types::FieldTable;
use lapin::uri::AMQPScheme;
use secrecy::{ExposeSecret as _, SecretString};

use super::declare::{NOT_FOUND, PRECONDITION_FAILED, Scratch, durable, refused};
use super::topology::DeclaredQueue;
use super::{BrokerError, BrokerOptions, Topology, connection};
use crate::config::BrokerUrl;

/// An exchange or a queue that payhook would declare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// Its name.
    pub name: String,
    /// Whether it is an exchange.
    pub exchange: bool,
    /// How it stands.
    pub found: Found,
}

/// How something stands at the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// As payhook would declare it.
    Fitting,
    /// Not there: payhook declares it when it connects.
    Missing,
    /// There with other arguments, in the broker's words. It is used as it is.
    Other(String),
}

/// Where and as whom the management API is asked about the queues of one virtual host.
#[derive(Clone)]
pub struct Management {
    /// Its address, without the path.
    pub url: String,
    /// The AMQP user.
    pub user: String,
    /// Its password.
    pub password: SecretString,
    /// The virtual host of the AMQP connection.
    pub vhost: String,
}

impl Management {
    /// As the settings say. `None` for the embedded broker.
    pub fn of(options: &BrokerOptions) -> Result<Option<Self>, BrokerError> {
        let BrokerUrl::Rabbitmq(url) = &options.config.url else {
            return Ok(None);
        };
        let uri = connection::parse(url.expose_secret(), options.heartbeat)?;
        let authority = uri.authority;
        let host = match authority.host.as_str() {
            ip if ip.contains(':') && !ip.starts_with('[') => format!("[{ip}]"),
            host => host.to_owned(),
        };
        // A password that AMQP sends encrypted is not sent in the clear here.
        let (scheme, port) = match uri.scheme {
            AMQPScheme::AMQPS => ("https", 15671),
            AMQPScheme::AMQP => ("http", 15672),
        };
        let beside = || format!("{scheme}://{host}:{port}");
        Ok(Some(Self {
            url: options.config.management_url.clone().unwrap_or_else(beside),
            user: authority.userinfo.username,
            password: authority.userinfo.password.into(),
            vhost: uri.vhost,
        }))
    }
}

impl fmt::Debug for Management {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Management")
            .field("url", &self.url)
            .field("vhost", &self.vhost)
            .finish_non_exhaustive()
    }
}

/// Connects and compares; empty for the embedded broker.
pub async fn inspect(options: &BrokerOptions) -> Result<Vec<Inspected>, BrokerError> {
    let BrokerUrl::Rabbitmq(url) = &options.config.url else {
        return Ok(Vec::new());
    };
    let uri = connection::parse(url.expose_secret(), options.heartbeat)?;
    let topology = Topology::new(&options.config.prefix, &options.config.queues)?;
    let connection = connection::open(&uri, "payhook check").await?;
    let found = look(&connection, &topology).await;
    connection::close(connection).await;
    found
}

async fn look(connection: &lapin::Connection, topology: &Topology) -> Result<Vec<Inspected>, BrokerError> {
    let mut on = Scratch::new(connection).await?;
    let mut all = Vec::new();
    for name in [&topology.events, &topology.orders] {
        let found = exchange(&mut on, name.as_str()).await?;
        all.push(Inspected {
            name: name.as_str().to_owned(),
            exchange: true,
            found,
        });
    }
    for declared in &topology.queues {
        let found = queue(&mut on, declared).await?;
        all.push(Inspected {
            name: declared.name.as_str().to_owned(),
            exchange: false,
            found,
        });
    }
    Ok(all)
}

async fn exchange(on: &mut Scratch<'_>, name: &str) -> Result<Found, BrokerError> {
    if let Some(found) = missing(on, declare_exchange(on, name, true).await).await? {
        return Ok(found);
    }
    compared(on, declare_exchange(on, name, false).await).await
}

async fn declare_exchange(on: &Scratch<'_>, name: &str, passive: bool) -> Result<(), BrokerError> {
    let options = ExchangeDeclareOptions {
        passive,
        durable: true,
        ..ExchangeDeclareOptions::default()
    };
    let name = super::topology::short(name)?;
    let declared = on
        .channel()
        .exchange_declare(name, ExchangeKind::Topic, options, FieldTable::default());
    connection::answered(declared).await
}

async fn queue(on: &mut Scratch<'_>, queue: &DeclaredQueue) -> Result<Found, BrokerError> {
    if let Some(found) = missing(on, declare_queue(on, queue, true).await).await? {
        return Ok(found);
    }
    compared(on, declare_queue(on, queue, false).await).await
}

async fn declare_queue(on: &Scratch<'_>, queue: &DeclaredQueue, passive: bool) -> Result<(), BrokerError> {
    let arguments = queue.arguments.clone();
    let declared = on
        .channel()
        .queue_declare(queue.name.clone(), durable(passive), arguments);
    connection::answered(declared).await.map(drop)
}

/// Whether a passive declaration found nothing; the broker then has closed the channel.
async fn missing(
    on: &mut Scratch<'_>,
    answer: Result<(), BrokerError>,
) -> Result<Option<Found>, BrokerError> {
    if refused(answer, NOT_FOUND)?.is_none() {
        return Ok(None);
    }
    on.renew().await?;
    Ok(Some(Found::Missing))
}

/// What the broker said to a declaration of something that is there.
async fn compared(on: &mut Scratch<'_>, answer: Result<(), BrokerError>) -> Result<Found, BrokerError> {
    match refused(answer, PRECONDITION_FAILED)? {
        None => Ok(Found::Fitting),
        Some(reason) => {
            on.renew().await?;
            Ok(Found::Other(reason))
        }
    }
}
