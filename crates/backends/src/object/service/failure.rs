// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What goes wrong with requests of every service. Bodies of answers are not repeated: they may hold the id
//! of a key.

use std::time::Duration;

use terrace_core::units::format_duration;
use terrace_core::{Error, ErrorKind, Result};
use tokio::task::JoinError;

/// Most of a message that is repeated.
const MESSAGE_BYTES_MAX: usize = 200;

/// No answer came in time.
fn late(operation: &'static str, deadline: Duration) -> Error {
    let deadline = format_duration(deadline);
    Error::new(ErrorKind::Io, operation)
        .because(format!("the service did not complete the request within {deadline}"))
}

/// Waits for a request within its deadline.
pub(crate) async fn within<T>(
    operation: &'static str,
    deadline: Duration,
    request: impl Future<Output = Result<T>>,
) -> Result<T> {
    let done = tokio::time::timeout(deadline, request).await;
    done.unwrap_or_else(|_| Err(late(operation, deadline)))
}

pub(crate) fn panicked(operation: &'static str, error: &JoinError) -> Error {
    Error::new(ErrorKind::Io, operation).because(format!("the thread that does it failed: {error}"))
}

/// One line of bounded length.
pub(crate) fn cut(text: &str) -> String {
    let mut end = text.len().min(MESSAGE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let line: String = text[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if end < text.len() { format!("{line}…") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut() {
        assert_eq!(cut("a\nb"), "a b");
        assert!(cut(&"é".repeat(200)).len() < 210);
    }
}
