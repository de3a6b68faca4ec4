// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many stores as one: objects lie on one of them or in stripes over several.
//!
//! An object is found by its key alone: the key leads to its home, and what is found there says
//! where the rest is. `docs/how-to/cluster.md` has the picture.

mod append;
mod batch;
mod collect;
mod create;
mod distribution;
mod draft;
mod face;
mod layout;
mod listing;
mod locate;
mod map;
mod object;
mod parallel;
mod piece;
mod places;
mod room;
mod scatter;
mod servers;

pub mod fuzzing;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use terrace_core::{
    Applied, Atomicity, Capability, Error, ErrorKind, Key, Random, Result, Space, Writes,
};

pub use self::collect::{Orphan, Orphans};
pub use self::distribution::Distribution;
pub use self::map::{Map, Member, SERVERS_MAX, WEIGHT_MAX};
pub use self::room::AskSpace;
pub use self::servers::{Server, ServerMap};

use self::append::Abandoned;
use self::layout::Layout;
use self::piece::Piece;
use self::room::Room;

/// Whether what has this label is a part of an object over several stores: its first piece, which
/// has its name, or one of the others.
pub fn is_part(key: &Key, label: &[u8]) -> bool {
    Layout::decode(label).is_ok() || Piece::decode(key.namespace(), label).is_ok()
}

/// Many stores as one.
///
/// - An object that is not distributed is a plain object on the home of its key, and every call on
///   it is one on that store.
/// - Of any other, the home has the object itself, which holds its first bytes and, as its label,
///   the layout; the rest are objects on other stores under reserved names.
/// - Calls that touch several stores run on all of them at the same time. What is atomic on one
///   store is not atomic over several: after a failure each store may have done its part or not.
/// - Nothing is kept here between calls but open handles, which appends failed without giving their
///   places back, and how much room each store had last, so that any number of processes may use the
///   same stores.
/// - The room of a store that does not answer counts as it was last.
pub struct Striped {
    shared: Arc<Shared>,
}

struct Shared {
    map: Map,
    distribution: Distribution,
    capability: Capability,
    target: String,
    ids: Mutex<[Random; 2]>,
    abandoned: Abandoned,
    /// By index of the server in the map.
    rooms: Vec<Arc<Room>>,
    /// The same for what servers say of the room of one namespace.
    namespace_rooms: Mutex<HashMap<String, Vec<Arc<Room>>>>,
}

impl Striped {
    /// Makes one store of many. New objects are spread as `distribution` says; their numbers come
    /// from `seed`, which must be random.
    ///
    /// # Errors
    ///
    /// `Invalid` for a distribution whose lengths are out of bounds.
    pub fn new(map: Map, distribution: Distribution, seed: u128) -> Result<Self> {
        distribution.check()?;
        let names: Vec<_> = map.members().iter().map(|member| member.name.as_str()).collect();
        let target = format!("striped:{}", names.join(","));
        let of = || map.members().iter().map(|member| member.backend.capability());
        let weakest = of().map(|capability| capability.persistency).min();
        let capability = Capability {
            // Several servers do not take an operation back together.
            atomicity: Atomicity::None,
            persistency: weakest.expect("a map has a server"),
            sparse: of().all(|capability| capability.sparse),
            ordered_listing: true,
            identity: false,
            // Of objects that lie on one.
            leases: of().all(|capability| capability.leases),
            keeps_data: of().all(|capability| capability.keeps_data),
            // They hold the layouts.
            labels: false,
            writes: Writes::InPlace,
            object_bytes_max: u64::MAX,
            packed: false,
        };
        let ids = Mutex::new([Random::new(seed as u64), Random::new((seed >> 64) as u64)]);
        let abandoned = Abandoned::default();
        let rooms = room::of(&map);
        let namespace_rooms = Mutex::default();
        let shared = Shared {
            map,
            distribution,
            capability,
            target,
            ids,
            abandoned,
            rooms,
            namespace_rooms,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The sum of what `ask` returns for each server, by its index, of the room of a namespace. A
    /// server that does not answer counts with its last answer.
    ///
    /// # Errors
    ///
    /// What one of them says; `Unreachable` where nothing is known of any.
    pub fn space_of(&self, namespace: &str, ask: AskSpace) -> Result<Space> {
        self.shared.space_of(namespace, ask)
    }

    /// The servers.
    pub fn map(&self) -> &Map {
        &self.shared.map
    }

    /// Where an object is: for each of its parts the index of the server in the map, and the key
    /// there. The part on its home comes first, under the object's own key.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Invalid` (a name that is kept for parts), `Unreachable`, `Corrupt`.
    pub fn parts(&self, key: &Key) -> Result<Vec<(usize, Key)>> {
        self.shared.parts(key)
    }
}

impl std::fmt::Debug for Striped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Striped").field(&self.shared.map).finish()
    }
}

impl Shared {
    fn member(&self, index: usize) -> &Member {
        &self.map.members()[index]
    }

    fn new_id(&self) -> u128 {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let [low, high] = &mut *ids;
        u128::from(low.next_u64()) | u128::from(high.next_u64()) << 64
    }

    fn name(&self, error: Error, key: &Key) -> Error {
        error.with("key", key).with("target", &self.target)
    }
}

/// The values of all, or an error of one: the first, unless another one leaves open whether its
/// part was carried out. The caller must not take that for done or undone.
fn all<T>(results: Vec<Result<T>>) -> Result<Vec<T>> {
    let mut values = Vec::with_capacity(results.len());
    let mut failed: Option<Error> = None;
    for result in results {
        match result {
            Ok(value) => values.push(value),
            Err(error) => {
                let is_next = |before: &Error| is_unknown(&error) && !is_unknown(before);
                if failed.as_ref().is_none_or(is_next) {
                    failed = Some(error);
                }
            }
        }
    }
    failed.map_or(Ok(values), Err)
}

/// Whether it says that nothing was carried out.
fn is_undone(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unreachable { applied: Applied::No })
}

/// Whether it may have been carried out, or still be.
fn is_unknown(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unreachable { applied: Applied::Unknown })
}
