//! What may be asked of a replay, and whether it makes sense.

use serde::Deserialize;
use utoipa::ToSchema;

use crate::api::events::outcome;
use crate::api::operation::filter;
use crate::api::problem::Problem;
use crate::event::text::storable;
use crate::replay::{Replays, Rules};
use crate::store::replays::{ReplayFilter, What};

/// How many a second, unless the call says otherwise: a good part of what a small database applies beside what
/// comes in.
const RATE: u32 = 200;
/// The fastest that may be asked for: a thousand ahead of the broker and the workers at each of ten rounds a second. It
/// is kept where they, and the database, take as many.
const FASTEST: u32 = 10_000;
/// It goes out with every message.
const LONGEST_REASON: usize = 500;

/// A replay of everything that a filter finds.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = BeginReplay)]
pub(in crate::api) struct Wish {
    /// Without one there is no telling a slip of the finger from "everything", which is `{}`.
    #[serde(deserialize_with = "filter")]
    filter: ReplayFilter,
    /// Why; a dry run needs none.
    #[schema(max_length = 500)]
    reason: Option<String>,
    /// Only tell what would be done.
    #[serde(default)]
    dry_run: bool,
    /// To this queue alone.
    to: Option<String>,
    /// What to send; absent: what `to` is bound to, else events.
    what: Option<What>,
    /// At most so many in a second.
    #[schema(minimum = 1, maximum = 10_000)]
    rate: Option<u32>,
}

impl Wish {
    pub(super) fn parts(self) -> (ReplayFilter, How) {
        let how = How {
            reason: self.reason,
            dry_run: self.dry_run,
            to: self.to,
            what: self.what,
            rate: self.rate,
        };
        (self.filter, how)
    }
}

/// How it is to be done.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = BeginReplayOfOne)]
pub(in crate::api) struct How {
    /// Why; a dry run needs none.
    #[schema(max_length = 500)]
    pub(super) reason: Option<String>,
    /// Only tell what would be done.
    #[serde(default)]
    pub(super) dry_run: bool,
    /// To this queue alone.
    pub(super) to: Option<String>,
    /// What to send; absent: what `to` is bound to, else events.
    pub(super) what: Option<What>,
    /// At most so many in a second.
    #[schema(minimum = 1, maximum = 10_000)]
    pub(super) rate: Option<u32>,
}

/// A wish that can be fulfilled.
#[derive(Clone, Debug)]
pub(super) struct Granted {
    pub(super) what: What,
    pub(super) to: Option<String>,
    pub(super) reason: String,
    pub(super) per_second: u32,
    pub(super) rules: Rules,
}

impl How {
    /// What it is about, as far as that can be told before it is judged.
    pub(super) fn sends(&self, replays: &Replays) -> What {
        let bound = || replays.rules(self.to.as_deref()).ok()?.exchange();
        self.what.or_else(bound).unwrap_or_default()
    }

    /// Judges it by what is configured now.
    pub(super) fn grant(&self, filter: &ReplayFilter, replays: &Replays) -> Result<Granted, Problem> {
        let reason = self.reason.as_deref().unwrap_or_default().trim();
        if reason.is_empty() && !self.dry_run {
            return Err(Problem::validation(
                "`reason` must say why, for the audit and for whoever gets it again",
            ));
        }
        if reason.chars().count() > LONGEST_REASON {
            return Err(Problem::validation(format!(
                "`reason` may have {LONGEST_REASON} characters"
            )));
        }
        let per_second = self.rate.unwrap_or(RATE);
        if !(1..=FASTEST).contains(&per_second) {
            return Err(Problem::validation(format!("`rate` must be from 1 to {FASTEST}")));
        }
        let rules = replays
            .rules(self.to.as_deref())
            .map_err(|unknown| Problem::validation(format!("`to`: {unknown}")))?;
        let bound = rules.exchange();
        let what = self.what.or(bound).unwrap_or_default();
        if bound.is_some_and(|bound| bound != what) {
            return Err(Problem::validation(
                "`what`: the queue is bound to the other exchange and has never asked for these",
            ));
        }
        judge(filter, what)?;
        Ok(Granted {
            what,
            to: self.to.clone(),
            reason: storable(reason).into_owned(),
            per_second,
            rules,
        })
    }
}

fn judge(filter: &ReplayFilter, what: What) -> Result<(), Problem> {
    if filter.texts().any(|text| text.contains('\0')) {
        return Err(Problem::validation("`filter`: no text may hold NUL"));
    }
    if let Some(part) = filter.meaningless(what) {
        return Err(Problem::validation(format!(
            "`filter`: order messages have no `{part}`"
        )));
    }
    if let Some(asked) = &filter.outcome {
        outcome(asked.clone())?;
    }
    Ok(())
}
