//! `payhook orders list|show|register|close`: how orders stand, for one of them what happened and why, and what
//! their merchant says of them.

mod shown;

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::cli::Globals;
use crate::cli::client::Connection;
use crate::cli::failure::Misuse;
use crate::cli::listing::{Paging, Query, show_page};
use crate::event::{Currency, Money};
use shown::{show, table};

/// Arguments of `orders`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List orders, newest first
    List {
        /// Only those that stand so; parked: those that wait for their registration
        #[arg(long)]
        state: Option<String>,
        #[command(flatten)]
        paging: Paging,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show one order: how it stands, what happened to it, and why
    Show {
        /// The order's id
        order_id: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Say what an order costs: a payment of another amount is held for a human
    Register(Box<Register>),
    /// Close an order that is not paid, for good
    Close {
        /// The order's id
        order_id: String,
        /// Why, for the audit
        #[arg(long, default_value = "")]
        reason: String,
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Debug, clap::Args)]
struct Register {
    /// The order's id
    order_id: String,
    #[command(flatten)]
    price: Price,
    /// Its currency, such as CNY
    #[arg(long, value_parser = Currency::new)]
    currency: Currency,
    #[command(flatten)]
    connection: Connection,
}

/// An amount in either of two ways.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Price {
    /// As people write it: 88.88
    #[arg(long)]
    amount: Option<String>,
    /// In minor units: 8888
    #[arg(long)]
    minor: Option<i64>,
}

impl Register {
    fn body(&self) -> Result<Value, Misuse> {
        let Self {
            order_id, currency, ..
        } = self;
        let minor = match (&self.price.amount, self.price.minor) {
            (Some(text), _) => {
                let amount = Money::parse_decimal(text, *currency);
                amount
                    .map_err(|error| Misuse::usage(format!("{text} {currency}: {error}")))?
                    .minor
            }
            (None, minor) => minor.unwrap_or_default(),
        };
        Ok(json!({"order_id": order_id, "amount": {"minor": minor, "currency": currency}}))
    }
}

/// Runs it.
pub(super) async fn run(args: Args, globals: &Globals) -> anyhow::Result<ExitCode> {
    let mut out = globals.output();
    match args.what {
        What::List {
            state,
            paging,
            connection,
        } => {
            let query = Query::new(&paging).with("state", state.as_deref());
            let answer = connection.open(globals)?.get(&["orders"], query.pairs()).await?;
            show_page(&mut out, &answer, "no orders", table)?;
        }
        What::Show { order_id, connection } => {
            let answer = connection.open(globals)?.get(&["orders", &order_id], &[]).await?;
            show(&mut out, &answer)?;
        }
        What::Register(wish) => {
            let body = wish.body()?;
            let answer = wish.connection.open(globals)?.post(&["orders"], &body).await?;
            show(&mut out, &answer)?;
        }
        What::Close {
            order_id,
            reason,
            connection,
        } => {
            let path = ["orders", &order_id, "close"];
            let answer = connection
                .open(globals)?
                .post(&path, &json!({ "reason": reason }))
                .await?;
            show(&mut out, &answer)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_what_people_write_or_minor_units() {
        let wish = |amount: Option<&str>, minor, currency| Register {
            order_id: "O-1".to_owned(),
            price: Price {
                amount: amount.map(str::to_owned),
                minor,
            },
            currency: Currency::new(currency).unwrap(),
            connection: Connection::default(),
        };
        for (wish, minor) in [
            (wish(Some("88.88"), None, "cny"), 8888),
            (wish(Some("88"), None, "CNY"), 8800),
            (wish(None, Some(8888), "CNY"), 8888),
            (wish(Some("500"), None, "JPY"), 500),
        ] {
            assert_eq!(wish.body().unwrap()["amount"]["minor"], minor);
        }
        for text in ["88,88", "1.234", "", "-"] {
            assert!(wish(Some(text), None, "CNY").body().is_err(), "{text}");
        }
    }
}
