//! `[log]`: what is said on stderr, and how.
//!
//! Keys: `filter` (also `PAYHOOK_LOG`), `format`.

use tracing_subscriber::EnvFilter;

use super::keys::Keys;

/// The `[log]` section.
#[derive(Clone, Debug, Default)]
pub struct LogConfig {
    /// Directives such as `info` or `info,payhook::relay=debug`.
    pub filter: String,
    /// For people or programs.
    pub format: LogFormat,
}

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One line of text.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl LogConfig {
    pub(super) fn read(keys: &mut Keys<'_>) -> Self {
        let filter = keys.parsed(
            "filter",
            "directives such as \"info,payhook::relay=debug\"",
            |text| EnvFilter::try_new(text).ok().map(|_| text.to_owned()),
        );
        let format = keys.parsed("format", "\"text\" or \"json\"", |text| match text {
            "text" => Some(LogFormat::Text),
            "json" => Some(LogFormat::Json),
            _ => None,
        });
        Self {
            filter: filter.unwrap_or_default(),
            format: format.unwrap_or_default(),
        }
    }
}
