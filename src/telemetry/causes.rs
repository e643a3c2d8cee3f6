//! An error with everything that caused it, in one line.

use std::error::Error;

/// `error: its cause: the cause's cause`; what has been said is not said again, since some errors tell their cause
/// themselves.
pub fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Said {
        text: &'static str,
        source: io::Error,
    }

    #[test]
    fn a_cause_is_told_once() {
        let of = |text| {
            causes(&Said {
                text,
                source: io::Error::other("no route"),
            })
        };
        assert_eq!(of("cannot connect"), "cannot connect: no route");
        assert_eq!(of("cannot connect: no route"), "cannot connect: no route");
        assert_eq!(of("no route (host 1)"), "no route (host 1)");
        let outer = anyhow::Error::from(io::Error::other("no route")).context("x: no route");
        assert_eq!(causes(outer.as_ref()), "x: no route");
    }
}
