//! Log lines on stderr: one event, one line, whatever stands in its fields.
//!
//! Text from outside may end up in a field (an order id, an error of the database); what could move a cursor,
//! reorder a line or forge a second one is escaped on the way out, so no caller has to think of it. What must
//! not be logged at all is the caller's duty: bodies, signatures, headers, keys, payer data.
//!
//! Field names, the same everywhere:
//!
//! | Field | |
//! |---|---|
//! | `provider`, `account`, `merchant` | from the configuration |
//! | `event.id`, `event.key`, `event.type` | a stored event |
//! | `order.id`, `trade.id`, `refund.id` | what it speaks of |
//! | `message.id`, `queue` | at the broker |
//! | `reason`, `outcome`, `attention.code` | the words of their enums |
//! | `attempt`, `count`, `elapsed_ms` | numbers |
//! | `remote.addr` | who sent a notification |
//! | `error` | an error with its sources |

use std::io::{self, Write};

use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::config::{LogConfig, LogFormat};
use crate::event::text::{printable, printable_json};

/// The log cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// `log.filter`, `PAYHOOK_LOG`.
    #[error("log.filter is not understood")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// It is set up once in a process.
    #[error("the log is already set up")]
    Twice(#[from] tracing::subscriber::SetGlobalDefaultError),
}

/// Sends this process's log to stderr.
pub fn init(config: &LogConfig) -> Result<(), LogError> {
    Ok(tracing::subscriber::set_global_default(subscriber(
        config,
        io::stderr,
    )?)?)
}

/// The log as configured, to any writer.
pub fn subscriber<W>(config: &LogConfig, to: W) -> Result<Box<dyn Subscriber + Send + Sync>, LogError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(&config.filter)?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    let discreet = FilterFn::new(|line| !may_tell_bodies(line) && !is_small_talk(line));
    Ok(match config.format {
        LogFormat::Text => Box::new(
            lines
                .with_writer(Escaping { to, json: false })
                .finish()
                .with(discreet),
        ),
        LogFormat::Json => Box::new(
            lines
                .json()
                .flatten_event(true)
                .with_writer(Escaping { to, json: true })
                .finish()
                .with(discreet),
        ),
    })
}

/// The AMQP library logs a message that came back whole, as a warning, and frames as traces: payer data both.
/// No filter brings these lines back. Nor its cries when a channel closes because a queue was asked for that is
/// not there yet: `broker` asks so on purpose, and says itself what is wrong.
fn may_tell_bodies(line: &Metadata<'_>) -> bool {
    let target = line.target();
    let library = ["lapin", "amq_protocol"]
        .iter()
        .any(|name| target.starts_with(name));
    library
        && (*line.level() > Level::WARN
            || ["lapin::returned_messages", "lapin::channel", "lapin::channels"].contains(&target))
}

/// Postgres notices, at each start, that the migrations' table is there already.
fn is_small_talk(line: &Metadata<'_>) -> bool {
    line.target() == "sqlx::postgres::notice" && *line.level() > Level::WARN
}

/// Escapes each line as it is written.
#[derive(Debug)]
struct Escaping<W> {
    to: W,
    json: bool,
}

impl<'w, W: MakeWriter<'w>> MakeWriter<'w> for Escaping<W> {
    type Writer = Line<W::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        Line {
            to: self.to.make_writer(),
            json: self.json,
        }
    }
}

/// The writer of one event. `tracing-subscriber` hands over an event in one call, its line end included.
#[derive(Debug)]
struct Line<W> {
    to: W,
    json: bool,
}

impl<W: Write> Write for Line<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let mut shown = if self.json {
            printable_json(line)
        } else {
            printable(line)
        }
        .into_owned();
        shown.push('\n');
        self.to.write_all(shown.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, filter: &str, say: impl FnOnce()) -> String {
        let captured = Captured::default();
        let to = captured.clone();
        let config = LogConfig {
            filter: filter.to_owned(),
            format,
        };
        tracing::subscriber::with_default(subscriber(&config, move || to.clone()).unwrap(), say);
        String::from_utf8(captured.0.lock().unwrap().clone()).unwrap()
    }

    const HOSTILE: &str = "A\u{1b}[2J\u{9b}1m\u{202e}\nINFO forged line\r";

    fn hostile() {
        let span = tracing::info_span!("receive", account = HOSTILE);
        let _inside = span.enter();
        tracing::info!(order.id = HOSTILE, "recorded {HOSTILE}");
    }

    fn assert_tame(text: &str) {
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        for hidden in ['\u{1b}', '\u{9b}', '\u{202e}', '\r'] {
            assert!(!text.contains(hidden), "{text:?}");
        }
    }

    #[test]
    fn text_from_outside_stays_on_its_line() {
        let text = logged(LogFormat::Text, "info", hostile);
        assert_tame(&text);
        assert!(text.contains("order.id="), "{text}");
    }

    #[test]
    fn json_lines_read_back_as_they_were() {
        let text = logged(LogFormat::Json, "info", hostile);
        assert_tame(&text);
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["order.id"], HOSTILE);
    }

    #[test]
    fn what_a_library_tells_of_messages_is_never_logged() {
        let say = || {
            tracing::warn!(target: "lapin::returned_messages", message = "payer", "Server returned us a message");
            tracing::trace!(target: "lapin::frames", frame = "payer", "frame");
            tracing::error!(target: "lapin::channel", "asked for a queue");
            tracing::error!(target: "lapin::connection", "closed");
        };
        let text = logged(LogFormat::Text, "trace,lapin::returned_messages=trace", say);
        assert!(
            !text.contains("payer") && !text.contains("asked") && text.contains("closed"),
            "{text}"
        );
    }

    #[test]
    fn the_filter_decides_what_is_said() {
        let say = || {
            tracing::debug!(target: "payhook::relay", "of the relay");
            tracing::debug!(target: "payhook::worker", "of the worker");
        };
        let text = logged(LogFormat::Text, "info,payhook::relay=debug", say);
        assert!(
            text.contains("of the relay") && !text.contains("of the worker"),
            "{text}"
        );
    }
}
