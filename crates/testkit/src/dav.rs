// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A server that speaks WebDAV (RFC 4918), in memory: it is as strict as the standard allows, counts
//! requests by method, and injects faults.

use std::collections::BTreeMap;
use std::io::{self, BufReader};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terrace_core::{Clock, SystemClock};

use crate::hold::Hold;
use crate::http::{self, Answer, Request, decode, encode};

/// The user that the server knows.
pub const USER: &str = "me";
/// The password of [`USER`].
pub const PASSWORD: &str = "secret word";
/// A token that the server takes as well.
pub const TOKEN: &str = "testkit-token";
/// The path of the collection that holds all others.
pub const PATH: &str = "/dav/me";

/// What clients send for [`USER`] and [`PASSWORD`].
const BASIC: &str = "Basic bWU6c2VjcmV0IHdvcmQ=";

/// When everything was modified: no client relies on it.
const MODIFIED: &str = "Thu, 01 Jan 2026 00:00:00 GMT";

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DavFault {
    /// It is refused with this status, and nothing is done.
    Refuse(u16),
    /// It is carried out, and the connection closed in place of an answer.
    LoseAnswer,
    /// It is carried out, and of the answer's body only so many bytes are sent.
    Truncate(usize),
    /// It is answered so much later.
    Stall(Duration),
    /// Of what a PUT sends only so many bytes are kept, and the connection is closed, as by a server that
    /// writes in place and crashes.
    Tear(usize),
    /// Of what a PUT sends only so many bytes are kept, and it is acknowledged.
    Shorten(usize),
    /// It is carried out when [`DavServer::release`] is called, even if its client has gone.
    Hold,
    /// A range is not heeded: the whole file is sent.
    IgnoreRange,
}

/// Which requests a fault meets.
#[derive(Clone, Debug)]
pub struct DavFaultPoint {
    /// The method; empty for all.
    pub method: &'static str,
    /// What the path contains.
    pub path: String,
    /// How many of them; the fault is over then.
    pub times: u64,
    /// What goes wrong.
    pub fault: DavFault,
}

/// A running server. Its threads end with it.
pub struct DavServer {
    shared: Arc<Shared>,
    port: u16,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    connections: Mutex<Vec<TcpStream>>,
    is_over: AtomicBool,
    clock: SystemClock,
    hold: Hold,
}

#[derive(Default)]
struct State {
    /// By paths below [`PATH`], without `/` at either end; `None` for a collection.
    entries: BTreeMap<String, Option<Arc<Vec<u8>>>>,
    counts: BTreeMap<String, u64>,
    faults: Vec<DavFaultPoint>,
    sent_bytes: u64,
}

impl DavServer {
    /// Starts a server on a free port of this machine, with one empty collection of this name.
    ///
    /// # Panics
    ///
    /// Where the machine has no port or no thread left.
    pub fn start(collection: &str) -> Self {
        let shared = Arc::new(Shared::default());
        lock(&shared.state).entries.extend([(String::new(), None), (collection.into(), None)]);
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
                std::thread::Builder::new().name("test-dav".into()).spawn(serve).expect("a thread");
            }
        };
        std::thread::Builder::new().name("test-dav".into()).spawn(accept).expect("a thread");
        Self { shared, port }
    }

    /// Its address, as `http://127.0.0.1:PORT/dav/me`.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared.state)
    }

    /// Requests by method since the last call, refused ones included.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        std::mem::take(&mut self.state().counts)
    }

    /// Bytes of bodies of answers since the last call.
    pub fn sent_bytes(&self) -> u64 {
        std::mem::take(&mut self.state().sent_bytes)
    }

    /// The paths of all files.
    pub fn files(&self) -> Vec<String> {
        let state = self.state();
        let files = state.entries.iter().filter(|(_, entry)| entry.is_some());
        files.map(|(path, _)| path.clone()).collect()
    }

    /// The paths of all collections but the outermost.
    pub fn collections(&self) -> Vec<String> {
        let state = self.state();
        let found =
            state.entries.iter().filter(|(path, entry)| entry.is_none() && !path.is_empty());
        found.map(|(path, _)| path.clone()).collect()
    }

    /// Puts a file there past all clients.
    pub fn plant(&self, path: &str, bytes: &[u8]) {
        let mut state = self.state();
        for (end, _) in path.match_indices('/') {
            state.entries.entry(path[..end].into()).or_insert(None);
        }
        state.entries.insert(path.into(), Some(Arc::new(bytes.to_vec())));
    }

    /// Removes everything; it is put back by [`DavServer::put_back`].
    pub fn take_all(&self) -> TakenTree {
        let root = BTreeMap::from([(String::new(), None)]);
        TakenTree(std::mem::replace(&mut self.state().entries, root))
    }

    /// Puts everything back.
    pub fn put_back(&self, tree: TakenTree) {
        self.state().entries = tree.0;
    }

    /// Has requests fail.
    pub fn inject(&self, method: &'static str, path: &str, times: u64, fault: DavFault) {
        self.state().faults.push(DavFaultPoint { method, path: path.into(), times, fault });
    }

    /// Blocks until a request is held.
    pub fn wait_held(&self) {
        self.shared.hold.wait_held();
    }

    /// Carries out the requests that are held, and returns when they are.
    pub fn release(&self) {
        self.shared.hold.release();
    }

    /// Has no request fail any more; how many faults were still to come.
    pub fn heal(&self) -> u64 {
        std::mem::take(&mut self.state().faults)
            .iter()
            .fold(0, |sum, point| sum.saturating_add(point.times))
    }

    /// Closes all connections: clients make new ones.
    pub fn disconnect(&self) {
        for connection in lock(&self.shared.connections).drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

/// What was on a server.
pub struct TakenTree(BTreeMap<String, Option<Arc<Vec<u8>>>>);

impl Drop for DavServer {
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
    while let Some(mut request) = http::read(&mut from)? {
        let path = inside(&request.raw_path);
        let fault = shared.begin(&request.method, path.as_deref().unwrap_or_default());
        match fault {
            Some(DavFault::Stall(longest)) => shared.clock.sleep(longest),
            Some(DavFault::Tear(bytes) | DavFault::Shorten(bytes)) => request.body.truncate(bytes),
            Some(DavFault::IgnoreRange) => request.headers.retain(|(name, _)| name != "range"),
            _ => {}
        }
        let held = (fault == Some(DavFault::Hold)).then(|| shared.hold.wait());
        let answer = match (fault, path) {
            (Some(DavFault::Refuse(status)), _) => {
                Answer::new(status, "<html>as the test wants</html>")
            }
            (_, None) => Answer::new(404, ""),
            (_, Some(path)) => lock(&shared.state).answer(&path, &request),
        };
        drop(held);
        lock(&shared.state).sent_bytes += answer.body.len() as u64;
        match fault {
            Some(DavFault::LoseAnswer | DavFault::Tear(_)) => return Ok(()),
            Some(DavFault::Truncate(bytes)) => return http::write(&mut to, &answer, bytes),
            _ => http::write(&mut to, &answer, usize::MAX)?,
        }
    }
    Ok(())
}

/// The path below [`PATH`], without `/` at either end.
fn inside(raw_path: &str) -> Option<String> {
    let path = decode(raw_path)?;
    let rest = path.strip_prefix(PATH)?;
    (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_matches('/').into())
}

/// The path of the collection that a path is in.
fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(above, _)| above)
}

impl Shared {
    /// Counts a request; what is to go wrong with it.
    fn begin(&self, method: &str, path: &str) -> Option<DavFault> {
        let mut state = lock(&self.state);
        *state.counts.entry(method.into()).or_default() += 1;
        let is_met = |point: &&mut DavFaultPoint| {
            (point.method.is_empty() || point.method == method)
                && path.contains(&point.path)
                && point.times > 0
        };
        let point = state.faults.iter_mut().find(is_met)?;
        point.times -= 1;
        Some(point.fault)
    }
}

impl State {
    fn answer(&mut self, path: &str, request: &Request) -> Answer {
        let given = request.header("authorization");
        let bearer = format!("Bearer {TOKEN}");
        if given != Some(BASIC) && given != Some(&*bearer) {
            return Answer::new(401, "no such user").with("www-authenticate", "Basic realm=\"t\"");
        }
        let is_collection = |path: &str| matches!(self.entries.get(path), Some(None));
        match request.method.as_str() {
            "PROPFIND" => self.describe(path, request.header("depth").unwrap_or("infinity")),
            "GET" => match self.entries.get(path) {
                Some(Some(bytes)) => send(bytes, request.header("range")),
                Some(None) => Answer::new(405, ""),
                None => Answer::new(404, ""),
            },
            "PUT" if is_collection(path) => Answer::new(405, ""),
            "PUT" | "MKCOL" if !is_collection(parent(path)) => Answer::new(409, ""),
            "PUT" => {
                let before = self.entries.insert(path.into(), Some(Arc::new(request.body.clone())));
                Answer::new(if before.is_some() { 204 } else { 201 }, "")
            }
            "MKCOL" if self.entries.contains_key(path) => Answer::new(405, ""),
            "MKCOL" => {
                self.entries.insert(path.into(), None);
                Answer::new(201, "")
            }
            "DELETE" if !self.entries.contains_key(path) => Answer::new(404, ""),
            "DELETE" => {
                let below = format!("{path}/");
                self.entries.retain(|other, _| other != path && !other.starts_with(&below));
                Answer::new(204, "")
            }
            "MOVE" => self.rename(path, request.header("destination").unwrap_or_default()),
            _ => Answer::new(501, ""),
        }
    }

    /// Renames a file.
    fn rename(&mut self, path: &str, destination: &str) -> Answer {
        let raw = destination
            .split_once("://")
            .and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..]));
        let Some(target) = raw.and_then(inside) else { return Answer::new(502, "") };
        if !matches!(self.entries.get(parent(&target)), Some(None)) {
            return Answer::new(409, "");
        }
        match self.entries.remove(path) {
            Some(Some(bytes)) => {
                let before = self.entries.insert(target, Some(bytes));
                Answer::new(if before.is_some() { 204 } else { 201 }, "")
            }
            Some(None) => {
                self.entries.insert(path.into(), None);
                Answer::new(403, "")
            }
            None => Answer::new(404, ""),
        }
    }

    /// What a path is like, and with the depth 1 what is in it.
    fn describe(&self, path: &str, depth: &str) -> Answer {
        if !self.entries.contains_key(path) {
            return Answer::new(404, "");
        }
        if depth == "infinity" {
            return Answer::new(403, "<D:error><D:propfind-finite-depth/></D:error>");
        }
        let is_named = |other: &&String| {
            *other == path || depth == "1" && !other.is_empty() && parent(other) == path
        };
        let mut body = String::from("<?xml version=\"1.0\"?><D:multistatus xmlns:D=\"DAV:\">");
        for (path, entry) in self.entries.iter().filter(|(other, _)| is_named(other)) {
            let encoded: Vec<_> = path.split('/').map(encode).collect();
            let encoded = encoded.join("/");
            let (end, kind) = match entry {
                None => ("/", "<D:resourcetype><D:collection/></D:resourcetype>".to_string()),
                Some(bytes) => (
                    "",
                    format!(
                        "<D:resourcetype/><D:getcontentlength>{}</D:getcontentlength>",
                        bytes.len()
                    ),
                ),
            };
            let end = if path.is_empty() { "" } else { end };
            body.push_str(&format!(
                "<D:response><D:href>{PATH}/{encoded}{end}</D:href><D:propstat><D:prop>{kind}\
                 <D:getlastmodified>{MODIFIED}</D:getlastmodified></D:prop>\
                 <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
            ));
        }
        body.push_str("</D:multistatus>");
        Answer::new(207, body).with("content-type", "application/xml")
    }
}

/// A file, or a range of it.
fn send(bytes: &Arc<Vec<u8>>, range: Option<&str>) -> Answer {
    let Some(range) = range.and_then(|range| range.strip_prefix("bytes=")) else {
        return Answer::new(200, bytes.to_vec());
    };
    let (start, end) = range.split_once('-').unwrap_or((range, ""));
    let start = start.parse::<usize>().unwrap_or_default();
    let end = end.parse::<usize>().map_or(bytes.len(), |last| (last + 1).min(bytes.len()));
    if start >= end {
        return Answer::new(416, "");
    }
    let content = format!("bytes {start}-{}/{}", end - 1, bytes.len());
    Answer::new(206, &bytes[start..end]).with("content-range", content)
}
