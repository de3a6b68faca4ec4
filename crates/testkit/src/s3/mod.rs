// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A service that speaks S3, in memory: it checks signatures and checksums as the real one does, counts
//! requests by kind, and injects faults.

mod sign;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use terrace_core::{Clock, SystemClock};

use self::sign::{Known, hex};
use crate::hold::Hold;
use crate::http::{self, Answer, Request, decode, encode};

/// What a client needs to know of the service.
pub const KEY_ID: &str = "AKIDTESTKIT";
/// The secret that belongs to [`KEY_ID`].
pub const SECRET: &str = "secret/of+the testkit";
/// The region of the service.
pub const REGION: &str = "eu-test-1";
/// The bucket that there is at first.
pub const BUCKET: &str = "bucket";

/// Shortest part of an upload but the last, as Amazon has it.
const PART_BYTES_MIN: usize = 5 << 20;

/// Most names of one listing.
const LIST_MAX: usize = 1000;

/// When everything was modified: no client relies on it.
const MODIFIED_HTTP: &str = "Thu, 01 Jan 2026 00:00:00 GMT";
const MODIFIED_XML: &str = "2026-01-01T00:00:00.000Z";

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum S3Fault {
    /// It is refused with this status and code, and nothing is done.
    Refuse(u16, &'static str),
    /// It is carried out, and the connection closed in place of an answer.
    LoseAnswer,
    /// It is carried out, and of the answer's body only so many bytes are sent.
    Truncate(usize),
    /// It is answered so much later.
    Stall(Duration),
    /// It is carried out when [`S3Server::release`] is called.
    Hold,
    /// It is carried out, and answered when [`S3Server::release`] is called.
    HoldAnswer,
    /// A listing is answered with a page that has no names and is not the last one.
    EmptyPage,
}

/// Which requests a fault meets.
#[derive(Clone, Debug)]
pub struct S3FaultPoint {
    /// The kind, as in [`S3Server::counts`]; empty for all.
    pub kind: &'static str,
    /// What the name contains. A listing has none: where the kind is `LIST`, what its prefix contains.
    pub name: String,
    /// How many of them; the fault is over then.
    pub times: u64,
    /// What goes wrong.
    pub fault: S3Fault,
}

/// A running service. Its threads end with it.
pub struct S3Server {
    shared: Arc<Shared>,
    port: u16,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    connections: Mutex<Vec<TcpStream>>,
    is_over: AtomicBool,
    next_upload: AtomicU64,
    /// By how much its clock is ahead.
    ahead_seconds: AtomicI64,
    clock: SystemClock,
    hold: Hold,
}

#[derive(Default)]
struct State {
    /// `None` where there is no bucket.
    objects: Option<BTreeMap<String, Stored>>,
    uploads: BTreeMap<String, Upload>,
    counts: BTreeMap<&'static str, u64>,
    faults: Vec<S3FaultPoint>,
    received_bytes: u64,
    sent_bytes: u64,
}

#[derive(Clone)]
struct Stored {
    bytes: Arc<Vec<u8>>,
    metadata: Vec<(String, String)>,
    tag: String,
}

struct Upload {
    name: String,
    metadata: Vec<(String, String)>,
    parts: BTreeMap<u32, (String, Vec<u8>)>,
}

impl S3Server {
    /// Starts a service on a free port of this machine, with an empty bucket.
    ///
    /// # Panics
    ///
    /// Where the machine has no port or no thread left.
    pub fn start() -> Self {
        let shared = Arc::new(Shared::default());
        lock(&shared.state).objects = Some(BTreeMap::new());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let of_listener = Arc::clone(&shared);
        let accept = move || {
            for connection in listener.incoming() {
                if of_listener.is_over.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(connection) = connection else { continue };
                let Ok(other) = connection.try_clone() else { continue };
                lock(&of_listener.connections).push(other);
                let shared = Arc::clone(&of_listener);
                let serve = move || {
                    let _ = serve(&shared, &connection);
                    let _ = connection.shutdown(Shutdown::Both);
                };
                std::thread::Builder::new().name("test-s3".into()).spawn(serve).expect("a thread");
            }
        };
        std::thread::Builder::new().name("test-s3".into()).spawn(accept).expect("a thread");
        Self { shared, port }
    }

    /// Its address, as `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared.state)
    }

    /// Requests by kind since the last call: `PUT`, `GET`, `HEAD`, `DELETE`, `LIST`, `BEGIN`, `PART`,
    /// `COMPLETE`, `ABORT`, `LIST-UPLOADS`, refused ones included. A request that is not signed counts as
    /// `DENIED` as well.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        std::mem::take(&mut self.state().counts)
    }

    /// Bytes of bodies since the last call: received, sent.
    pub fn bytes(&self) -> (u64, u64) {
        let mut state = self.state();
        (std::mem::take(&mut state.received_bytes), std::mem::take(&mut state.sent_bytes))
    }

    /// The names of all objects.
    pub fn names(&self) -> Vec<String> {
        self.state().objects.iter().flat_map(|objects| objects.keys().cloned()).collect()
    }

    /// How many uploads were begun and neither completed nor aborted.
    pub fn uploads(&self) -> usize {
        self.state().uploads.len()
    }

    /// Puts an object there past all clients.
    pub fn plant(&self, name: &str, bytes: &[u8]) {
        let stored = Stored { bytes: bytes.to_vec().into(), metadata: Vec::new(), tag: tag(bytes) };
        self.state().objects.as_mut().expect("there is a bucket").insert(name.into(), stored);
    }

    /// Removes an object past all clients.
    pub fn remove(&self, name: &str) {
        self.state().objects.as_mut().expect("there is a bucket").remove(name);
    }

    /// Begins an upload that is not completed.
    pub fn plant_upload(&self, name: &str) {
        let upload = Upload { name: name.into(), metadata: Vec::new(), parts: BTreeMap::new() };
        let id = self.shared.next_upload.fetch_add(1, Ordering::Relaxed);
        self.state().uploads.insert(format!("upload{id}"), upload);
    }

    /// Changes a byte of an object past all clients.
    ///
    /// # Panics
    ///
    /// Where there is no such object, or it is shorter.
    pub fn damage(&self, name: &str, at: usize) {
        let mut state = self.state();
        let objects = state.objects.as_mut().expect("there is a bucket");
        let stored = objects.get_mut(name).expect("there is such an object");
        Arc::make_mut(&mut stored.bytes)[at] ^= 1;
    }

    /// Removes the bucket with all that is in it; what was in it is put back by [`S3Server::put_back`].
    pub fn take_bucket(&self) -> TakenBucket {
        TakenBucket(self.state().objects.take())
    }

    /// Puts a bucket back.
    pub fn put_back(&self, bucket: TakenBucket) {
        self.state().objects = bucket.0;
    }

    /// Sets the clock ahead by so many seconds.
    pub fn set_ahead(&self, seconds: i64) {
        self.shared.ahead_seconds.store(seconds, Ordering::SeqCst);
    }

    /// Has requests fail.
    pub fn inject(&self, point: S3FaultPoint) {
        self.state().faults.push(point);
    }

    /// Blocks until a request is held.
    pub fn wait_held(&self) {
        self.shared.hold.wait_held();
    }

    /// Carries out or answers the requests that are held.
    pub fn release(&self) {
        self.shared.hold.release();
    }

    /// Has no request fail any more; how many faults were still to come.
    pub fn heal(&self) -> u64 {
        std::mem::take(&mut self.state().faults).iter().map(|point| point.times).sum()
    }

    /// Closes all connections: clients make new ones.
    pub fn disconnect(&self) {
        for connection in lock(&self.shared.connections).drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

/// What was in a bucket.
pub struct TakenBucket(Option<BTreeMap<String, Stored>>);

impl Drop for S3Server {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.shared.hold.end();
        self.disconnect();
        // Ends the wait for connections.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers the requests of a connection.
fn serve(shared: &Shared, connection: &TcpStream) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut from = BufReader::new(connection);
    let mut to = connection;
    while let Some(request) = http::read(&mut from)? {
        let Some((bucket, name)) = address(&request) else {
            http::write(&mut to, &failure(400, "InvalidURI"), usize::MAX)?;
            continue;
        };
        let kind = kind(&request, &name);
        let fault = shared.begin(kind, &name, &request);
        if let Some(S3Fault::Stall(longest)) = fault {
            shared.clock.sleep(longest);
        }
        let held = (fault == Some(S3Fault::Hold)).then(|| shared.hold.wait());
        let answer = match fault {
            Some(S3Fault::Refuse(status, code)) => failure(status, code),
            Some(S3Fault::EmptyPage) => empty_page(&request),
            _ => shared.answer(kind, &bucket, &name, &request),
        };
        drop(held);
        if fault == Some(S3Fault::HoldAnswer) {
            drop(shared.hold.wait());
        }
        let mut answer = answer.with("x-amz-request-id", "testkit");
        if request.method == "HEAD" {
            // A head has no body, also where it says why it fails.
            answer.length = answer.length.or(Some(answer.body.len()));
            answer.body.clear();
        }
        lock(&shared.state).sent_bytes += answer.body.len() as u64;
        match fault {
            Some(S3Fault::LoseAnswer) => return Ok(()),
            Some(S3Fault::Truncate(bytes)) => return http::write(&mut to, &answer, bytes),
            _ => http::write(&mut to, &answer, usize::MAX)?,
        }
    }
    Ok(())
}

/// Bucket and name.
fn address(request: &Request) -> Option<(String, String)> {
    let path = request.raw_path.strip_prefix('/')?;
    let (bucket, name) = path.split_once('/').unwrap_or((path, ""));
    Some((decode(bucket)?, decode(name)?))
}

fn kind(request: &Request, name: &str) -> &'static str {
    let has = |name| request.parameter(name).is_some();
    match (request.method.as_str(), name.is_empty()) {
        ("GET", true) if has("uploads") => "LIST-UPLOADS",
        ("GET", true) => "LIST",
        ("POST", false) if has("uploads") => "BEGIN",
        ("POST", false) if has("uploadId") => "COMPLETE",
        ("PUT", false) if has("uploadId") => "PART",
        ("DELETE", false) if has("uploadId") => "ABORT",
        ("PUT", false) => "PUT",
        ("GET", false) => "GET",
        ("HEAD", false) => "HEAD",
        ("DELETE", false) => "DELETE",
        _ => "OTHER",
    }
}

fn failure(status: u16, code: &str) -> Answer {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code>\
         <Message>as the test wants it</Message></Error>"
    );
    Answer::new(status, body).with("content-type", "application/xml")
}

fn tag(bytes: &[u8]) -> String {
    format!("\"{}\"", &hex(&Sha256::digest(bytes))[..32])
}

impl Shared {
    /// Counts a request; what is to go wrong with it.
    fn begin(&self, kind: &'static str, name: &str, request: &Request) -> Option<S3Fault> {
        let mut state = lock(&self.state);
        *state.counts.entry(kind).or_default() += 1;
        state.received_bytes += request.body.len() as u64;
        let prefix = request.parameter("prefix").unwrap_or_default();
        let is_met = |point: &&mut S3FaultPoint| {
            let name = if point.kind == "LIST" { prefix } else { name };
            (point.kind.is_empty() || point.kind == kind)
                && name.contains(&point.name)
                && point.times > 0
        };
        let point = state.faults.iter_mut().find(is_met)?;
        point.times -= 1;
        Some(point.fault)
    }

    fn answer(&self, kind: &'static str, bucket: &str, name: &str, request: &Request) -> Answer {
        let ahead = self.ahead_seconds.load(Ordering::SeqCst);
        let now = (self.clock.wall_ns() / 1_000_000_000).saturating_add_signed(ahead);
        let known = Known { key_id: KEY_ID, secret: SECRET, region: REGION, now };
        let mut state = lock(&self.state);
        if let Err((status, code)) = sign::check(request, &known) {
            *state.counts.entry("DENIED").or_default() += 1;
            return failure(status, code);
        }
        if bucket != BUCKET || state.objects.is_none() {
            return failure(404, "NoSuchBucket");
        }
        let State { objects, uploads, .. } = &mut *state;
        let objects = objects.as_mut().expect("there is a bucket");
        let metadata = || {
            let of_object =
                request.headers.iter().filter(|(name, _)| name.starts_with("x-amz-meta-"));
            of_object.cloned().collect::<Vec<_>>()
        };
        match kind {
            "PUT" => {
                let now = objects.get(name).map(|stored| stored.tag.as_str());
                let is_new =
                    request.header("if-none-match").is_none_or(|tags| tags != "*" || now.is_none());
                let is_same = request.header("if-match").is_none_or(|tag| now == Some(tag));
                if !is_new || !is_same {
                    return failure(412, "PreconditionFailed");
                }
                let tag = tag(&request.body);
                let bytes = Arc::new(request.body.clone());
                objects
                    .insert(name.into(), Stored { bytes, metadata: metadata(), tag: tag.clone() });
                Answer::new(200, "").with("etag", tag)
            }
            "GET" | "HEAD" => match objects.get(name) {
                Some(stored) if request.header("if-match").is_some_and(|tag| tag != stored.tag) => {
                    failure(412, "PreconditionFailed")
                }
                Some(stored) => send(stored, request),
                None => failure(404, "NoSuchKey"),
            },
            "DELETE" => {
                objects.remove(name);
                Answer::new(204, "")
            }
            "LIST" => list(objects, request),
            "BEGIN" => {
                let id = format!("upload{}", self.next_upload.fetch_add(1, Ordering::Relaxed));
                let upload =
                    Upload { name: name.into(), metadata: metadata(), parts: BTreeMap::new() };
                uploads.insert(id.clone(), upload);
                Answer::new(
                    200,
                    format!(
                        "<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{name}</Key>\
                         <UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
                    ),
                )
            }
            "LIST-UPLOADS" => {
                let prefix = request.parameter("prefix").unwrap_or_default();
                let of_prefix = uploads.iter().filter(|(_, one)| one.name.starts_with(prefix));
                let each = of_prefix.map(|(id, upload)| {
                    let name = &upload.name;
                    format!("<Upload><Key>{}</Key><UploadId>{id}</UploadId></Upload>", escape(name))
                });
                let each: String = each.collect();
                let body = format!(
                    "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>{each}\
                     </ListMultipartUploadsResult>"
                );
                Answer::new(200, body)
            }
            "PART" | "COMPLETE" | "ABORT" => {
                let id = request.parameter("uploadId").unwrap_or_default();
                let Some(upload) = uploads.get_mut(id).filter(|upload| upload.name == name) else {
                    return failure(404, "NoSuchUpload");
                };
                match kind {
                    "PART" => {
                        let number = request.parameter("partNumber").map(str::parse);
                        let Some(Ok(number @ 1..=10_000)) = number else {
                            return failure(400, "InvalidArgument");
                        };
                        let tag = tag(&request.body);
                        upload.parts.insert(number, (tag.clone(), request.body.clone()));
                        Answer::new(200, "").with("etag", tag)
                    }
                    "ABORT" => {
                        uploads.remove(id);
                        Answer::new(204, "")
                    }
                    _ => match assembled(upload, &request.body) {
                        Ok(stored) => {
                            let tag = stored.tag.clone();
                            objects.insert(name.into(), stored);
                            uploads.remove(id);
                            Answer::new(
                                200,
                                format!(
                                    "<CompleteMultipartUploadResult><Bucket>{bucket}</Bucket>\
                                     <Key>{name}</Key><ETag>{tag}</ETag>\
                                     </CompleteMultipartUploadResult>"
                                ),
                            )
                        }
                        Err(code) => failure(400, code),
                    },
                }
            }
            _ => failure(405, "MethodNotAllowed"),
        }
    }
}

/// An object of the parts that a body names.
fn assembled(upload: &Upload, body: &[u8]) -> Result<Stored, &'static str> {
    let body = String::from_utf8_lossy(body);
    let inside = |text: &str, name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0.replace("&quot;", "\""))
    };
    let (mut bytes, mut seen) = (Vec::new(), BTreeSet::new());
    let named: Vec<_> = body.split("<Part>").skip(1).collect();
    for (index, part) in named.iter().enumerate() {
        let number = inside(part, "PartNumber").and_then(|text| text.parse::<u32>().ok());
        let number = number.ok_or("MalformedXML")?;
        if seen.last().is_some_and(|last| *last >= number) {
            return Err("InvalidPartOrder");
        }
        seen.insert(number);
        let (tag, data) = upload.parts.get(&number).ok_or("InvalidPart")?;
        if inside(part, "ETag").as_ref() != Some(tag) {
            return Err("InvalidPart");
        }
        if index + 1 < named.len() && data.len() < PART_BYTES_MIN {
            return Err("EntityTooSmall");
        }
        bytes.extend_from_slice(data);
    }
    if named.is_empty() {
        return Err("MalformedXML");
    }
    let tag = format!("\"{}-{}\"", &hex(&Sha256::digest(&bytes))[..32], named.len());
    Ok(Stored { bytes: bytes.into(), metadata: upload.metadata.clone(), tag })
}

/// An object, or the range of it that is asked for.
fn send(stored: &Stored, request: &Request) -> Answer {
    let all = stored.bytes.len();
    let range = request.header("range").and_then(|range| range.strip_prefix("bytes="));
    let mut answer = match range {
        None if request.method == "HEAD" => {
            let mut answer = Answer::new(200, "");
            answer.length = Some(all);
            answer
        }
        None => Answer::new(200, stored.bytes.to_vec()),
        Some(range) => {
            let bounds = range.split_once('-').and_then(|(first, last)| {
                let first: usize = first.parse().ok()?;
                let last = if last.is_empty() { all.checked_sub(1)? } else { last.parse().ok()? };
                (first < all && first <= last).then_some((first, last.min(all - 1)))
            });
            let Some((first, last)) = bounds else { return failure(416, "InvalidRange") };
            Answer::new(206, stored.bytes[first..=last].to_vec())
                .with("content-range", format!("bytes {first}-{last}/{all}"))
        }
    };
    answer.headers.extend(stored.metadata.iter().cloned());
    answer
        .with("etag", &stored.tag)
        .with("last-modified", MODIFIED_HTTP)
        .with("accept-ranges", "bytes")
        .with("content-type", "application/octet-stream")
}

/// A page of a listing, version 2.
fn list(objects: &BTreeMap<String, Stored>, request: &Request) -> Answer {
    let parameter = |name| request.parameter(name).unwrap_or_default();
    let (prefix, delimiter) = (parameter("prefix"), parameter("delimiter"));
    let after = match parameter("continuation-token") {
        "" => parameter("start-after"),
        token => token,
    };
    let max = parameter("max-keys").parse().unwrap_or(LIST_MAX).min(LIST_MAX);
    let is_encoded = parameter("encoding-type") == "url";
    let shown = |name: &str| if is_encoded { encode_name(name) } else { escape(name) };
    let (mut contents, mut prefixes) = (String::new(), BTreeSet::new());
    let (mut count, mut last, mut is_truncated) = (0, String::new(), false);
    for (name, stored) in objects.range(prefix.to_string()..) {
        if !name.starts_with(prefix) {
            break;
        }
        if name.as_str() <= after {
            continue;
        }
        let behind = &name[prefix.len()..];
        let common = (!delimiter.is_empty()).then(|| behind.split_once(delimiter)).flatten();
        let common = common.map(|(head, _)| format!("{prefix}{head}{delimiter}"));
        let is_known = common
            .as_ref()
            .is_some_and(|common| prefixes.contains(common) || after.starts_with(common.as_str()));
        if !is_known {
            if count >= max {
                is_truncated = true;
                break;
            }
            count += 1;
        }
        last.clone_from(name);
        match common {
            Some(common) => {
                prefixes.insert(common);
            }
            None => contents.push_str(&format!(
                "<Contents><Key>{}</Key><LastModified>{MODIFIED_XML}</LastModified>\
                 <ETag>{}</ETag><Size>{}</Size></Contents>",
                shown(name),
                escape(&stored.tag),
                stored.bytes.len()
            )),
        }
    }
    for common in prefixes {
        let common = shown(&common);
        contents.push_str(&format!("<CommonPrefixes><Prefix>{common}</Prefix></CommonPrefixes>"));
    }
    let next = match is_truncated {
        true => format!("<NextContinuationToken>{}</NextContinuationToken>", escape(&last)),
        false => String::new(),
    };
    let encoding = if is_encoded { "<EncodingType>url</EncodingType>" } else { "" };
    let prefix = shown(prefix);
    Answer::new(
        200,
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult><Name>{BUCKET}</Name>\
             <Prefix>{prefix}</Prefix><KeyCount>{count}</KeyCount><MaxKeys>{max}</MaxKeys>\
             <IsTruncated>{is_truncated}</IsTruncated>{encoding}{next}{contents}</ListBucketResult>"
        ),
    )
    .with("content-type", "application/xml")
}

/// A page without names, from which a listing goes on where it was.
fn empty_page(request: &Request) -> Answer {
    // Less than all names with printable characters.
    let next = request.parameter("continuation-token").unwrap_or(" ");
    let body = format!(
        "<ListBucketResult><IsTruncated>true</IsTruncated>\
         <NextContinuationToken>{}</NextContinuationToken></ListBucketResult>",
        escape(next)
    );
    Answer::new(200, body).with("content-type", "application/xml")
}

/// Text of XML, without the characters that XML 1.0 has no form for.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&#34;"),
            '\r' | '\n' | '\t' => escaped.push_str(&format!("&#{};", u32::from(character))),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A name in a listing for which the encoding `url` is asked for: as in a form, but for slashes.
fn encode_name(name: &str) -> String {
    encode(name).replace("%2F", "/").replace("%20", "+")
}
