//! An error with everything that caused it, in one line.

use std::error::Error;

/// `error: its cause: the cause's cause`; a text that a cause repeats is told once.
pub fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = cause.source();
    }
    text
}
