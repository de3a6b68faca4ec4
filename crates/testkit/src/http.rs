// SPDX-License-Identifier: Apache-2.0 OR MIT
//! As much of HTTP/1.1 as clients of S3 and WebDAV use.

use std::io::{self, BufRead, Read, Write};

/// Longest head and longest body that are read.
const HEAD_BYTES_MAX: u64 = 64 << 10;
const BODY_BYTES_MAX: usize = 256 << 20;

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// As it was sent.
    pub(crate) raw_path: String,
    /// Decoded, in the order in which they were sent.
    pub(crate) query: Vec<(String, String)>,
    /// With names in small letters.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The length in the head; of a request for the head alone it is that of the object.
    pub(crate) length: Option<usize>,
}

impl Answer {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), length: None }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

fn broken(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.to_string())
}

/// The next request of a connection; `None` where the client has closed it.
pub(crate) fn read(from: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut head = from.take(HEAD_BYTES_MAX);
    let mut line = String::new();
    if head.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (method, target) = (words.next(), words.next());
    let (Some(method), Some(target)) = (method, target) else {
        return Err(broken("no request"));
    };
    let (raw_path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let query = pairs.map(|(name, value)| Some((decode(name)?, decode(value)?)));
    let mut request = Request {
        method: method.into(),
        raw_path: raw_path.into(),
        query: query.collect::<Option<_>>().ok_or_else(|| broken("a query"))?,
        headers: Vec::new(),
        body: Vec::new(),
    };
    loop {
        let mut line = String::new();
        head.read_line(&mut line)?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| broken("a header"))?;
        request.headers.push((name.to_ascii_lowercase(), value.trim().into()));
    }
    let length = request.header("content-length").map_or(Ok(0), str::parse::<usize>);
    let length = length.ok().filter(|length| *length <= BODY_BYTES_MAX);
    let length = length.ok_or_else(|| broken("a length"))?;
    request.body = vec![0; length];
    from.read_exact(&mut request.body)?;
    Ok(Some(request))
}

/// Writes an answer, of its body only so many bytes.
pub(crate) fn write(to: &mut impl Write, answer: &Answer, body_bytes: usize) -> io::Result<()> {
    let length = answer.length.unwrap_or(answer.body.len());
    let mut head = format!("HTTP/1.1 {} -\r\ncontent-length: {length}\r\n", answer.status);
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    to.write_all(head.as_bytes())?;
    to.write_all(&answer.body[..body_bytes.min(answer.body.len())])?;
    to.flush()
}

/// Encodes what is part of a query.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte == b'%' {
            let (digits, behind) = rest.split_at_checked(2)?;
            rest = behind;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}
