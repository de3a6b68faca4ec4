// SPDX-License-Identifier: Apache-2.0 OR MIT
//! As much of HTTP/1.1 as a scrape needs: one request, one answer, and the end of the connection.

/// The type of what is answered (OpenMetrics 1.0, section "Protocol Negotiation").
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The metrics, or only how they would be sent.
    Metrics { is_head: bool },
    /// The request is not one of HTTP/1.
    Malformed,
    /// Its head is too long.
    TooLong,
    /// There is nothing but `/metrics`.
    NotFound,
    /// Nothing can be changed.
    NotAllowed,
}

/// The answer to a request of which so much has come; `None` where its end is still to come.
pub(crate) fn answer_to(head: &[u8], bytes_max: usize) -> Option<Answer> {
    if head.len() > bytes_max {
        return Some(Answer::TooLong);
    }
    // A lone line feed ends a line, too (RFC 9112, section 2.2).
    let is_end = |rest: &[u8]| rest.starts_with(b"\n\n") || rest.starts_with(b"\n\r\n");
    let is_whole = (0..head.len()).any(|at| is_end(&head[at..]));
    is_whole.then(|| answer_to_line(head))
}

fn answer_to_line(head: &[u8]) -> Answer {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Ok(line) = str::from_utf8(line) else { return Answer::Malformed };
    let words: Vec<_> = line.trim_end_matches('\r').split(' ').collect();
    let [method, target, version] = words[..] else { return Answer::Malformed };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return Answer::Malformed;
    }
    let path = target.split('?').next().unwrap_or_default();
    match (method, path) {
        ("GET", "/metrics") => Answer::Metrics { is_head: false },
        ("HEAD", "/metrics") => Answer::Metrics { is_head: true },
        (_, "/metrics") => Answer::NotAllowed,
        _ => Answer::NotFound,
    }
}

impl Answer {
    /// What is sent; `metrics` makes the text where it is asked for.
    pub(crate) fn to_bytes(self, metrics: impl FnOnce() -> String) -> Vec<u8> {
        let (status, body, more) = match self {
            Answer::Metrics { .. } => ("200 OK", metrics(), ""),
            Answer::Malformed => ("400 Bad Request", "this is no request of HTTP/1\n".into(), ""),
            Answer::TooLong => {
                ("431 Request Header Fields Too Large", "the request is too long\n".into(), "")
            }
            Answer::NotFound => ("404 Not Found", "the metrics are at /metrics\n".into(), ""),
            Answer::NotAllowed => {
                let reason = "metrics can only be read\n".into();
                ("405 Method Not Allowed", reason, "Allow: GET, HEAD\r\n")
            }
        };
        let content = match self {
            Answer::Metrics { .. } => OPENMETRICS,
            _ => "text/plain; charset=utf-8",
        };
        let length = body.len();
        let mut bytes = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content}\r\nContent-Length: {length}\r\n{more}\
             Connection: close\r\n\r\n"
        )
        .into_bytes();
        if self != (Answer::Metrics { is_head: true }) {
            bytes.extend_from_slice(body.as_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(head: &str) -> Option<Answer> {
        answer_to(head.as_bytes(), 64)
    }

    #[test]
    fn a_scrape_is_answered_once_its_head_is_whole() {
        let whole = "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(answer(&whole[..end]), None, "{:?}", &whole[..end]);
        }
        assert_eq!(answer(whole), Some(Answer::Metrics { is_head: false }));
        assert_eq!(
            answer("HEAD /metrics?a=b HTTP/1.0\n\n"),
            Some(Answer::Metrics { is_head: true })
        );
    }

    #[test]
    fn everything_else_is_refused() {
        for (head, refusal) in [
            ("GET / HTTP/1.1\r\n\r\n", Answer::NotFound),
            ("GET /metrics/ HTTP/1.1\r\n\r\n", Answer::NotFound),
            ("POST /metrics HTTP/1.1\r\n\r\n", Answer::NotAllowed),
            ("GET /metrics\r\n\r\n", Answer::Malformed),
            ("GET /metrics HTTP/2\r\n\r\n", Answer::Malformed),
            ("GET  /metrics HTTP/1.1\r\n\r\n", Answer::Malformed),
            ("\r\n\r\n", Answer::Malformed),
        ] {
            assert_eq!(answer(head), Some(refusal), "{head:?}");
        }
        assert_eq!(answer(&"x".repeat(65)), Some(Answer::TooLong));
        assert_eq!(answer_to(b"GET \xff HTTP/1.1\r\n\r\n", 64), Some(Answer::Malformed));
    }
}
