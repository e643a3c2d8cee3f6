//! Whose event it is: the mode, the connected account that it was signed for, and the marks that tell one site's
//! objects from another's in a shared Stripe account.
//!
//! Stripe sends every endpoint everything that happens in the account. So an endpoint of a platform names the
//! connected accounts that it serves, and one of several sites what its own objects carry.

use super::facts::is_refund;
use super::payload::Payload;
use crate::config::is_merchant_name;
use crate::event::Identity;
use crate::provider::raw_json::{self, Members};

/// The account's settings that say what is its own.
#[derive(Debug, Default)]
pub(super) struct Scope {
    /// The mode the account is for, where it says so.
    pub(super) livemode: Option<bool>,
    /// The connected accounts it serves; empty: not checked.
    pub(super) connect_accounts: Vec<String>,
    /// Whether each connected account is a merchant of its own.
    pub(super) merchant_from_account: bool,
    /// (path in `data.object`, the text that must stand there).
    pub(super) only: Vec<(String, String)>,
}

/// What `only` says of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ours {
    /// It carries every mark.
    Yes,
    /// It does not.
    No,
    /// A refund or a dispute without marks. Stripe copies none to them, so they are whose their payment is.
    AsItsPayment,
}

impl Scope {
    /// Whether the event is of this account's mode and of a connected account that it serves. An event of the
    /// platform itself names no account, so it is none of theirs.
    pub(super) fn identity(&self, payload: &Payload<'_>) -> Identity {
        match (raw_json::boolean(payload.livemode), self.livemode) {
            (Some(true), Some(false)) => {
                return Identity::Mismatch("a live event at an account for test mode".to_owned());
            }
            (Some(false), Some(true)) => {
                return Identity::Mismatch("a test event at an account for live mode".to_owned());
            }
            _ => {}
        }
        if self.connect_accounts.is_empty() {
            return Identity::Ok;
        }
        match payload.account() {
            Some(account) if self.connect_accounts.iter().any(|served| *served == account) => Identity::Ok,
            Some(account) => Identity::Mismatch(format!("account {account} is not in connect_accounts")),
            None => {
                Identity::Mismatch("it is of no connected account, and connect_accounts is given".to_owned())
            }
        }
    }

    /// The merchant, where it is the connected account; an error, in words, where that is no merchant's name.
    pub(super) fn merchant(&self, payload: &Payload<'_>) -> Result<Option<String>, String> {
        let account = payload.account().filter(|_| self.merchant_from_account);
        match account {
            Some(account) if !is_merchant_name(&account) => {
                Err("account is not 1 to 64 of A-Z a-z 0-9 . _ -".to_owned())
            }
            account => Ok(account.map(std::borrow::Cow::into_owned)),
        }
    }

    /// Judges an object by its marks.
    pub(super) fn ours(&self, event_type: &str, resource: &Members<'_>) -> Result<Ours, String> {
        let mut missing = false;
        for (path, wanted) in &self.only {
            let value = resource
                .at(path)
                .map_err(|_| format!("{path} is not to be read in one way only"))?;
            match value {
                None => missing = true,
                Some(value) => {
                    let text = raw_json::text(Some(value));
                    if text.as_deref().unwrap_or_else(|| value.get()) != wanted {
                        return Ok(Ours::No);
                    }
                }
            }
        }
        let follows = is_refund(event_type) || event_type.starts_with("charge.dispute.");
        Ok(match (missing, follows) {
            (false, _) => Ours::Yes,
            (true, true) => Ours::AsItsPayment,
            (true, false) => Ours::No,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::{Rules, read};
    use super::*;
    use crate::event::{FactKind, Reading};

    fn rules(connect_accounts: &[&str], merchant_from_account: bool, only: &[(&str, &str)]) -> Rules {
        let owned = |text: &&str| (*text).to_owned();
        Rules {
            order_id_from: vec!["metadata.order_id".to_owned()],
            scope: Scope {
                livemode: None,
                connect_accounts: connect_accounts.iter().map(owned).collect(),
                merchant_from_account,
                only: only
                    .iter()
                    .map(|(path, text)| (owned(path), owned(text)))
                    .collect(),
            },
        }
    }

    /// An event of `account` with `object` as its resource.
    fn told(rules: &Rules, kind: &str, account: &str, object: &str) -> Reading {
        let account = if account.is_empty() {
            String::new()
        } else {
            format!(r#","account":"{account}""#)
        };
        let body = format!(
            r#"{{"id":"evt_1","object":"event","type":"{kind}","created":1700000000{account},"data":{{"object":{object}}}}}"#
        );
        read(&Payload::read(&body).unwrap(), rules)
    }

    fn payment(metadata: &str) -> String {
        format!(
            r#"{{"id":"pi_1","amount_received":500,"currency":"usd","metadata":{{"order_id":"1001"{metadata}}}}}"#
        )
    }

    const PAID: &str = "payment_intent.succeeded";

    #[test]
    fn connected_account_must_be_listed() {
        let rules = rules(&["acct_A", "acct_B"], false, &[]);
        for (account, ok) in [("acct_A", true), ("acct_B", true), ("acct_C", false), ("", false)] {
            let reading = told(&rules, PAID, account, &payment(""));
            assert_eq!(reading.identity == Identity::Ok, ok, "{account}");
            assert_eq!(reading.merchant, None);
        }
        let unchecked = told(&self::rules(&[], false, &[]), PAID, "acct_C", &payment(""));
        assert_eq!(unchecked.identity, Identity::Ok);
    }

    #[test]
    fn merchant_is_the_connected_account_of_an_event_that_is_ours() {
        let rules = rules(&["acct_A"], true, &[]);
        let merchant = |account: &str| told(&rules, PAID, account, &payment("")).merchant;
        assert_eq!(merchant("acct_A").as_deref(), Some("acct_A"));
        assert_eq!((merchant("acct_C"), merchant("")), (None, None));
        let open = self::rules(&[], true, &[]);
        assert_eq!(
            told(&open, PAID, "acct_C", &payment("")).merchant.as_deref(),
            Some("acct_C")
        );
        assert_eq!(told(&open, PAID, "", &payment("")).merchant, None);
        let odd = told(&open, PAID, "acct/../x", &payment(""));
        assert_eq!((odd.kind.as_str(), odd.merchant), ("other.unreadable", None));
    }

    #[test]
    fn thin_event_names_its_connected_account_as_context() {
        let body = r#"{"id":"evt_2","object":"v2.core.event","type":"v1.charge.refunded","created":"2026-12-01T00:00:00Z","context":"acct_A"}"#;
        let reading = read(&Payload::read(body).unwrap(), &rules(&["acct_A"], true, &[]));
        assert_eq!(
            (reading.identity, reading.merchant.as_deref()),
            (Identity::Ok, Some("acct_A"))
        );
    }

    #[test]
    fn object_without_the_marks_is_not_ours_and_says_nothing() {
        let rules = rules(
            &[],
            false,
            &[("metadata.site", "shop-a"), ("metadata.shelf", "7")],
        );
        let ours = told(&rules, PAID, "", &payment(r#","site":"shop-a","shelf":7"#));
        assert_eq!((ours.kind.as_str(), ours.facts.len()), ("payment.succeeded", 1));
        for other in [
            "",
            r#","site":"shop-a""#,
            r#","site":"shop-b","shelf":7"#,
            r#","site":["shop-a"],"shelf":7"#,
        ] {
            let reading = told(&rules, PAID, "acct_C", &payment(other));
            assert_eq!(reading.kind, "other.not_ours", "{other}");
            assert!(reading.facts.is_empty() && reading.links.is_empty() && reading.order_id.is_none());
            assert!(reading.trade_id.is_none() && reading.unreadable.is_none());
        }
    }

    #[test]
    fn refund_without_the_marks_follows_its_payment() {
        let rules = rules(&[], false, &[("metadata.site", "shop-a")]);
        let refund = |metadata: &str| {
            let object = format!(
                r#"{{"id":"re_1","payment_intent":"pi_1","amount":5,"currency":"usd","status":"succeeded","metadata":{{{metadata}}}}}"#
            );
            told(&rules, "refund.updated", "", &object)
        };
        // An order id beside no mark may be another site's.
        let unmarked = refund(r#""order_id":"1001""#);
        assert!(unmarked.follows_trade && unmarked.links.is_empty() && unmarked.order_id.is_none());
        assert_eq!(unmarked.facts[0].kind, FactKind::RefundSucceeded);
        assert_eq!(unmarked.facts[0].order_id, None);
        assert_eq!(refund(r#""site":"shop-b""#).kind, "other.not_ours");
        assert!(!refund(r#""site":"shop-a""#).follows_trade);
    }
}
