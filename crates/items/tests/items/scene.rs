// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A temporary directory with a store, and the ways to it.

use std::sync::Arc;

use tempfile::TempDir;
use terrace_core::{Cursor, ErrorKind, Persistency, Result};
use terrace_items::{Collection, Finding, FindingKind, Items, Summary};
use terrace_server::{Limits, Server, Service};
use terrace_store::{Store, SystemClock};

use crate::durable::{Noting, Waits};

const SETTINGS: &str = "
[[tier]]
name = \"only\"
path = \"only\"
capacity = \"64MiB\"
";

/// A store that is open, with what keeps it so.
pub(crate) struct Scene {
    pub(crate) store: Store,
    pub(crate) items: Items,
    _behind: Vec<Behind>,
}

/// What a store is reached through: a server before its owner, the owner alone, or only the
/// directory that is removed in the end.
struct Behind {
    _server: Option<Server>,
    _owner: Option<Store>,
    _home: TempDir,
}

impl Scene {
    /// Owned by the test.
    pub(crate) fn embedded() -> Self {
        let (home, store) = owned();
        Self::of(store, vec![Behind { _server: None, _owner: None, _home: home }])
    }

    /// Through the socket of its owner.
    pub(crate) fn attached() -> Self {
        let (home, owner) = owned();
        let store = Store::open(&address(&home)).expect("attaches");
        assert!(store.is_attached());
        Self::of(store, vec![Behind { _server: None, _owner: Some(owner), _home: home }])
    }

    /// Behind a server.
    pub(crate) fn served() -> Self {
        let (address, behind) = server();
        let store = Store::open(&format!("terrace://{address}?secret=none")).expect("reached");
        Self::of(store, vec![behind])
    }

    /// Over two servers.
    pub(crate) fn clustered() -> Self {
        let ((one, behind_one), (other, behind_other)) = (server(), server());
        let address = format!("terrace://{one},{other}/?secret=none&stripe=64KiB");
        let store = Store::open(&address).expect("reached");
        Self::of(store, vec![behind_one, behind_other])
    }

    /// Over two servers, whose pairs note in `waits`, each time when something of them was made durable,
    /// whether any item still had its object.
    pub(crate) fn noting(waits: &Arc<Waits>) -> Self {
        let serve = || {
            let (home, owner) = owned();
            waits.owners.lock().expect("nobody panicked").push(owner.clone());
            let inner = owner.service().expect("it is owned");
            serve(Arc::new(Noting { inner, waits: Arc::clone(waits) }), owner, home)
        };
        let ((one, behind_one), (other, behind_other)) = (serve(), serve());
        let store = Store::open(&format!("terrace://{one},{other}/?secret=none"));
        Self::of(store.expect("reached"), vec![behind_one, behind_other])
    }

    fn of(store: Store, behind: Vec<Behind>) -> Self {
        Self { items: Items::new(&store), store, _behind: behind }
    }

    /// A collection that is there.
    pub(crate) fn collection(&self, name: &str) -> Collection {
        match self.items.create(name, Persistency::Process) {
            Err(error) if error.kind() == ErrorKind::Exists => self.items.open(name),
            other => other,
        }
        .expect("there is room")
    }

    /// What a check finds, however young it is.
    pub(crate) fn check(&self, is_repair: bool) -> (Vec<FindingKind>, Summary) {
        let mut kinds = Vec::new();
        let mut note = |finding: &Finding| {
            kinds.push(finding.kind);
            Ok(())
        };
        let summary = self.items.check(u64::MAX, is_repair, &mut note).expect("checks");
        (kinds, summary)
    }

    #[track_caller]
    pub(crate) fn assert_sound(&self) {
        assert_eq!(self.check(false).0, []);
    }
}

fn owned() -> (TempDir, Store) {
    let home = TempDir::new().expect("a temporary directory");
    Store::init(&home.path().join("store"), SETTINGS).expect("made");
    let store = Store::open(&address(&home)).expect("opens");
    (home, store)
}

/// A server of a store of its own, and its address.
fn server() -> (String, Behind) {
    let (home, owner) = owned();
    serve(owner.service().expect("it is owned"), owner, home)
}

fn serve(service: Arc<dyn Service>, owner: Store, home: TempDir) -> (String, Behind) {
    let clock = Arc::new(SystemClock::default());
    let server = Server::new(service, None, Limits::default(), clock);
    let endpoint = server.listen(&"127.0.0.1:0".parse().expect("legal")).expect("listens");
    let behind = Behind { _server: Some(server), _owner: Some(owner), _home: home };
    (endpoint.to_string(), behind)
}

fn address(home: &TempDir) -> String {
    home.path().join("store").to_str().expect("temporary directories are UTF-8").into()
}

/// All names of a collection, a few at a time.
pub(crate) fn names(collection: &Collection, prefix: &str) -> Vec<String> {
    const PAGE: usize = 3;
    let mut names = Vec::new();
    let mut cursor = Cursor::start();
    loop {
        let page = collection.list(prefix, &cursor, PAGE).expect("lists");
        names.extend(page.names);
        match page.next {
            Some(next) => cursor = next,
            None => return names,
        }
    }
}

#[track_caller]
pub(crate) fn assert_fails<T>(result: Result<T>, kind: ErrorKind) -> String {
    match result {
        Ok(_) => panic!("it did not fail"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "{}", error.chain());
            error.chain()
        }
    }
}
