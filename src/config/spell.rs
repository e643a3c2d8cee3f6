//! Times as an operator would have written them: `400d`, `25h`, not `1year 1month 4days …`.

use std::time::Duration;

/// `duration` in the largest unit that holds it without a rest.
pub fn spell(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if duration.subsec_nanos() > 0 || seconds == 0 {
        return humantime::format_duration(duration).to_string();
    }
    let units = [(86_400, "d"), (3600, "h"), (60, "m")];
    let whole = units.into_iter().find(|(unit, _)| seconds.is_multiple_of(*unit));
    match whole.and_then(|(unit, name)| Some((seconds.checked_div(unit)?, name))) {
        Some((count, name)) => format!("{count}{name}"),
        None => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spelled_reads_back() {
        for text in ["400d", "25h", "5m", "90s", "50ms", "1d", "0s"] {
            let duration = humantime::parse_duration(text).unwrap();
            assert_eq!(spell(duration), text);
        }
    }
}
