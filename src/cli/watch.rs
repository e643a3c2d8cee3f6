//! Accounts and keys, read again when their files change: the configuration, every key file, whatever a symlink
//! on the way points at by then.
//!
//! Files are read every few seconds and compared, rather than watched: that sees a swapped symlink, a mounted
//! secret and a network file system alike. A change counts when two looks agree on it, so that a file half
//! written is not taken for a key. With any problem the accounts stay as they are, said once, until the files
//! change again. What else the configuration says takes effect at the next start, and the log says so when it
//! changes.

use std::time::Duration;

use metrics::counter;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::Globals;
use crate::app::App;
use crate::config::{Account, Config, Settings};
use crate::provider::Registry;
use crate::telemetry::metrics::names;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(2);

/// Keeps a running process's accounts as their files say.
#[derive(Debug)]
pub(super) struct Watch {
    globals: Globals,
    ticks: Interval,
    judge: Judge,
    /// What runs, whatever the files say by now.
    started: Settings,
}

/// What the files said at one look, or why they cannot be used.
type Look = Result<Seen, String>;

/// What a usable configuration says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    accounts: Vec<Account>,
    settings: Settings,
}

impl Seen {
    pub(super) fn of(config: &Config) -> Self {
        Self {
            accounts: config.accounts.clone(),
            settings: config.settings,
        }
    }
}

impl Watch {
    /// From what is in force.
    pub(super) fn new(globals: Globals, in_force: Seen) -> Self {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            globals,
            ticks,
            started: in_force.settings,
            judge: Judge::new(in_force),
        }
    }

    /// When the next look is due.
    pub(super) async fn due(&mut self) {
        self.ticks.tick().await;
    }

    /// Looks, and acts on what has changed and settled.
    pub(super) async fn look(&mut self, app: &App) {
        let (look, registry) = self.read().await;
        if self.judge.settled(&look) {
            self.act(app, look, registry);
        }
    }

    /// Acts on what is there: somebody says that it is complete.
    pub(super) async fn look_now(&mut self, app: &App) {
        let (look, registry) = self.read().await;
        self.act(app, look, registry);
    }

    async fn read(&self) -> (Look, Option<Registry>) {
        let globals = self.globals.clone();
        // A file system may hang.
        let loaded = tokio::task::spawn_blocking(move || globals.load_accounts()).await;
        match loaded {
            // An editor or a full disk leaves an empty file, which is a configuration too.
            Ok(Ok((config, _))) if config.accounts.is_empty() && !self.judge.in_force.accounts.is_empty() => {
                (
                    Err("no accounts are left: only a start takes that up".to_owned()),
                    None,
                )
            }
            Ok(Ok((config, registry))) => (Ok(Seen::of(&config)), Some(registry)),
            Ok(Err(errors)) => (Err(errors.to_string()), None),
            Err(_) => (Err("reading it ended in a panic".to_owned()), None),
        }
    }

    fn act(&mut self, app: &App, look: Look, registry: Option<Registry>) {
        let result = match (&look, registry) {
            (Ok(seen), Some(registry)) => {
                app.reload(registry);
                tracing::info!("accounts and keys were read again");
                for gone in self.judge.gone(seen) {
                    tracing::warn!(
                        account = gone,
                        "not configured any more: its notifications are answered 404"
                    );
                }
                if seen.settings != self.judge.in_force.settings {
                    if seen.settings == self.started {
                        tracing::info!("the other settings are again those that run");
                    } else {
                        tracing::warn!("other settings have changed: they take effect at the next start");
                    }
                }
                "ok"
            }
            (Err(error), _) => {
                tracing::error!(
                    error,
                    "the configuration has problems: the accounts stay as they were"
                );
                "failed"
            }
            (Ok(_), None) => return,
        };
        counter!(names::RELOADS, "result" => result).increment(1);
        self.judge.acted(look);
    }
}

/// Says which looks are news.
#[derive(Debug)]
struct Judge {
    in_force: Seen,
    /// What was said about files that cannot be used.
    told: Option<String>,
    /// A look that is news if the next one is the same.
    unsettled: Option<Look>,
}

impl Judge {
    fn new(in_force: Seen) -> Self {
        Self {
            in_force,
            told: None,
            unsettled: None,
        }
    }

    /// Whether `look` differs from what was acted on, for the second time.
    fn settled(&mut self, look: &Look) -> bool {
        let known = match look {
            Ok(seen) => *seen == self.in_force,
            Err(problem) => self.told.as_ref() == Some(problem),
        };
        if known {
            self.unsettled = None;
            if look.is_ok() {
                self.told = None;
            }
            return false;
        }
        if self.unsettled.as_ref() == Some(look) {
            return true;
        }
        self.unsettled = Some(look.clone());
        false
    }

    /// The accounts in force that `seen` does not have.
    fn gone(&self, seen: &Seen) -> Vec<String> {
        let name = |account: &Account| format!("{}/{}", account.provider(), account.name);
        let left: Vec<String> = seen.accounts.iter().map(name).collect();
        let before = self.in_force.accounts.iter().map(name);
        before.filter(|name| !left.contains(name)).collect()
    }

    fn acted(&mut self, look: Look) {
        self.unsettled = None;
        match look {
            Ok(seen) => {
                self.in_force = seen;
                self.told = None;
            }
            Err(problem) => self.told = Some(problem),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Environment;

    fn with(secret: &str) -> Seen {
        said(&format!(
            "[[accounts]]\nprovider = \"stripe\"\nname = \"shop\"\nsigning_secrets = [\"whsec_{secret}\"]\n"
        ))
    }

    fn said(text: &str) -> Seen {
        Seen::of(&Config::parse(text, Path::new("/"), &Environment::default()).unwrap())
    }

    #[test]
    fn a_setting_that_only_a_start_can_change_is_news_too() {
        let parked = said("[orders]\nunknown = \"park\"\n");
        assert_ne!(parked.settings, said("[orders]\nunknown = \"create\"\n").settings);
        assert_eq!(
            parked.settings,
            said("# why\n[orders]\nunknown = 'park'\n").settings
        );
        assert_eq!(with("one").settings, with("other").settings);
        let mut judge = Judge::new(with("one"));
        assert!(!judge.settled(&Ok(parked.clone())) && judge.settled(&Ok(parked)));
    }

    #[test]
    fn a_change_counts_when_two_looks_agree() {
        let mut judge = Judge::new(with("old"));
        for _ in 0..3 {
            assert!(!judge.settled(&Ok(with("old"))));
        }
        assert!(!judge.settled(&Ok(with("ne"))), "half written");
        assert!(!judge.settled(&Ok(with("new"))));
        assert!(judge.settled(&Ok(with("new"))));
        judge.acted(Ok(with("new")));
        assert!(!judge.settled(&Ok(with("new"))));
    }

    #[test]
    fn a_problem_is_told_once_and_the_way_back_is_no_change() {
        let mut judge = Judge::new(with("old"));
        let problem = |text: &str| Look::Err(text.to_owned());
        assert!(!judge.settled(&problem("bad")));
        assert!(judge.settled(&problem("bad")));
        judge.acted(problem("bad"));
        assert!(!judge.settled(&problem("bad")) && !judge.settled(&problem("bad")));
        assert!(!judge.settled(&Ok(with("old"))) && !judge.settled(&Ok(with("old"))));
        assert!(
            !judge.settled(&problem("bad")) && judge.settled(&problem("bad")),
            "it is news again"
        );
    }
}
