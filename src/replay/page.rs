//! The next page of a replay, judged by the rules of the process that drives it; or what in it that process does not
//! know.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Replays, Rules};
use crate::store::StoreError;
use crate::store::replays::{Candidate, Held, Judged, What};

/// How long a process that knows an account may be away (a rolling restart) before what came to that account is
/// refused.
const ABSENCE: Duration = Duration::from_mins(5);

impl Replays {
    /// The next page, judged by today's rules; or what in it this process does not know and another may. `nobodys`:
    /// the accounts of this replay that others did not know either; it grows.
    pub(super) async fn page(
        &self,
        nobodys: &mut BTreeSet<(String, String)>,
        held: &Held,
        rules: &Rules,
        limit: u16,
    ) -> Result<Result<Judged, Stranger>, StoreError> {
        let store = &self.store;
        let look = store
            .replay_look(
                held.what,
                &held.merchant,
                &held.filter,
                (&held.at, Some(&held.end)),
                limit,
            )
            .await?;
        let strangers = look
            .found
            .iter()
            .filter_map(|candidate| account_of(held.what, candidate))
            .filter(|account| rules.is_stranger(Some(*account)))
            .map(|(provider, account)| (provider.to_owned(), account.to_owned()));
        let strangers: BTreeSet<(String, String)> = strangers.collect();
        if !strangers.is_empty() {
            let asked = !store.is_shared() || held.waited.is_some_and(|waited| waited >= ABSENCE);
            if asked {
                nobodys.extend(strangers);
            } else if let Some(stranger) = strangers.difference(nobodys).next() {
                return Ok(Err(Stranger::account(stranger)));
            }
        }
        let mut page = Judged {
            upto: look.upto,
            last: look.last,
            ..Judged::default()
        };
        for candidate in look.found {
            match rules.refusal(account_of(held.what, &candidate), &candidate.kind) {
                None => page.send.push(candidate),
                Some(why) => {
                    let count = page.refused.entry(why).or_default();
                    *count = count.saturating_add(1);
                }
            }
        }
        Ok(Ok(page))
    }
}

/// What this process does not know of a replay, in words.
pub(super) struct Stranger(pub(super) String);

impl Stranger {
    pub(super) fn queue(held: &Held) -> Self {
        let queue = held.queue.as_deref().unwrap_or_default();
        Self(format!(
            "queue {queue} is not declared under [broker] queues of the process that looked last"
        ))
    }

    fn account((provider, account): &(String, String)) -> Self {
        Self(format!(
            "account {provider}/{account} is not configured in the process that looked last"
        ))
    }
}

fn account_of(what: What, candidate: &Candidate) -> Option<(&str, &str)> {
    match what {
        What::Events => candidate.provider.as_deref().zip(candidate.account.as_deref()),
        What::Orders => None,
    }
}
