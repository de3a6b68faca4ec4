// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The servers of a cluster, and which of them is the home of a key.

use std::collections::BTreeSet;
use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip::SipHasher13;
use terrace_core::{Backend, Error, ErrorKind, Key, Kv, Result};

/// Most servers of a map.
pub const SERVERS_MAX: usize = 64;

/// Largest weight of a server.
pub const WEIGHT_MAX: u32 = 1000;

/// A server of a cluster.
#[derive(Clone)]
pub struct Member {
    /// Number of its store, which stays whatever becomes of its name and address.
    pub id: u128,
    /// What people call it.
    pub name: String,
    /// Its objects.
    pub backend: Arc<dyn Backend>,
    /// Its pairs. Objects over several servers whose home has none cannot be appended to.
    pub kv: Option<Arc<dyn Kv>>,
    /// Its share of objects that are distributed by weight, 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// Epoch of the map in which it came.
    pub since: u64,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({:032x}, since {})", self.name, self.id, self.since)
    }
}

impl Member {
    /// An error of this server, with its name.
    pub(super) fn blame(&self, error: Error) -> Error {
        error.with("server", &self.name)
    }
}

/// The servers of a cluster.
///
/// The home of a key is the server with the highest hash of server and key, so that a further
/// server becomes the home of its share of the keys and no other key changes its home. The order
/// of the servers, their names and addresses mean nothing.
#[derive(Clone, Debug)]
pub struct Map {
    members: Vec<Member>,
    has_epochs: bool,
}

impl Map {
    /// A map that says in which epoch each server came; `epoch` is that of the last change.
    ///
    /// # Errors
    ///
    /// `Invalid` for no or too many servers, a number or name that two have, a weight out of bounds
    /// or a server of a later epoch; `Unsupported` for a server that keeps no labels or does not
    /// list in order.
    pub fn new(epoch: u64, members: Vec<Member>) -> Result<Self> {
        let map = Self { members, has_epochs: true };
        if let Some(late) = map.members.iter().find(|member| member.since > epoch) {
            return Err(wrong("a server came after the epoch of the map")
                .with("server", &late.name)
                .with("since", late.since)
                .with("epoch", epoch));
        }
        map.checked()
    }

    /// A list of servers that may have grown at any time: whatever is not on its home is looked for
    /// on all others. What [`Member::since`] says means nothing.
    ///
    /// # Errors
    ///
    /// As [`Map::new`].
    pub fn without_epochs(members: Vec<Member>) -> Result<Self> {
        Self { members, has_epochs: false }.checked()
    }

    fn checked(self) -> Result<Self> {
        if self.members.is_empty() || self.members.len() > SERVERS_MAX {
            return Err(wrong("it has no server or too many")
                .with("servers", self.members.len())
                .with("servers_max", SERVERS_MAX));
        }
        let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
        for member in &self.members {
            let is_weight = (1..=WEIGHT_MAX).contains(&member.weight);
            let reason = if !ids.insert(member.id) {
                "two servers have the same store"
            } else if !names.insert(&member.name) {
                "two servers have the same name"
            } else if !is_weight {
                return Err(wrong("the weight of a server is out of bounds")
                    .with("server", &member.name)
                    .with("weight", member.weight)
                    .with("weight_max", WEIGHT_MAX));
            } else {
                continue;
            };
            return Err(wrong(reason)
                .with("server", &member.name)
                .with("store_id", format!("{:032x}", member.id)));
        }
        for member in &self.members {
            let capability = member.backend.capability();
            if !capability.labels || !capability.ordered_listing {
                return Err(Error::new(ErrorKind::Unsupported, "use a server map")
                    .because("a server keeps no labels or does not list in order")
                    .with("server", &member.name)
                    .with("target", member.backend.target()));
            }
        }
        Ok(self)
    }

    /// All servers, in the order in which they were given.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Whether it says when each server came.
    pub(super) fn has_epochs(&self) -> bool {
        self.has_epochs
    }

    /// The servers where the pairs of a namespace can be, by their index; the first is where they
    /// belong if there are none yet. With epochs it is one: that of the earliest epoch, which
    /// stays when servers are added.
    ///
    /// # Errors
    ///
    /// `Invalid` for a namespace that cannot be.
    pub fn pairs_homes(&self, namespace: &str) -> Result<Vec<usize>> {
        let key = Key::new(namespace, "pairs")?;
        Ok(match self.has_epochs {
            true => self.homes(&key).last().copied().into_iter().collect(),
            false => self.ranked(&key),
        })
    }

    /// The index of the server with this number.
    pub(super) fn index(&self, id: u128) -> Option<usize> {
        self.members.iter().position(|member| member.id == id)
    }

    /// All servers, the home of the key first, then those that would be if it were not there.
    pub(super) fn ranked(&self, key: &Key) -> Vec<usize> {
        let mut ranked: Vec<_> = (0..self.members.len()).collect();
        // Numbers are unique, so that the order is the same for everybody.
        let rank = |index: &usize| {
            let id = self.members[*index].id;
            std::cmp::Reverse((score(id, key), id))
        };
        ranked.sort_by_cached_key(rank);
        ranked
    }

    /// The homes that the key has had, the present one first. With epochs these are all servers
    /// where its object can be.
    pub(super) fn homes(&self, key: &Key) -> Vec<usize> {
        let mut homes: Vec<usize> = Vec::new();
        for index in self.ranked(key) {
            // In an epoch, the home was the first of those that were there: going back in time,
            // the next one is the first that is older.
            let since = |index: usize| self.members[index].since;
            if homes.last().is_none_or(|last| self.has_epochs && since(index) < since(*last)) {
                homes.push(index);
            }
        }
        homes
    }
}

fn score(id: u128, key: &Key) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(id as u64, (id >> 64) as u64);
    hasher.write(key.as_str().as_bytes());
    hasher.finish()
}

fn wrong(reason: &str) -> Error {
    Error::invalid("use a server map", reason)
}

#[cfg(test)]
mod tests {
    use terrace_backends::object::Memory;

    use super::*;

    fn member(id: u128, since: u64) -> Member {
        let backend = Arc::new(Memory::new(1 << 20));
        Member { id, name: format!("s{id}"), backend, kv: None, weight: 1, since }
    }

    fn map(members: &[(u128, u64)]) -> Map {
        let members = members.iter().map(|(id, since)| member(*id, *since)).collect();
        Map::new(9, members).expect("legal")
    }

    fn keys() -> impl Iterator<Item = Key> {
        (0..3000).map(|number| Key::new("test", &format!("key-{number}")).expect("legal"))
    }

    fn ids(map: &Map, indexes: Vec<usize>) -> Vec<u128> {
        indexes.into_iter().map(|index| map.members[index].id).collect()
    }

    #[test]
    fn each_server_is_the_home_of_its_share() {
        let map = map(&[(1, 0), (2, 0), (3, 0)]);
        let mut shares = [0; 3];
        keys().for_each(|key| shares[map.ranked(&key)[0]] += 1);
        assert!(shares.iter().all(|share| (900..1100).contains(share)), "{shares:?}");
    }

    /// Objects are found by it for ever, so it may not change.
    #[test]
    fn the_home_of_a_key_is_the_same_in_every_version() {
        let map = map(&[(1, 0), (2, 0), (3, 0), (1 << 100, 0)]);
        let homes: Vec<_> = keys().take(12).map(|key| map.ranked(&key)[0]).collect();
        assert_eq!(homes, [2, 2, 0, 3, 1, 1, 1, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn the_order_of_the_servers_means_nothing() {
        let one = map(&[(1, 0), (2, 3), (3, 5)]);
        let other = map(&[(3, 5), (1, 0), (2, 3)]);
        for key in keys() {
            assert_eq!(ids(&one, one.ranked(&key)), ids(&other, other.ranked(&key)));
            assert_eq!(ids(&one, one.homes(&key)), ids(&other, other.homes(&key)));
        }
    }

    #[test]
    fn the_homes_of_a_key_are_those_that_it_had_in_each_epoch() {
        let now = map(&[(1, 0), (2, 2), (3, 2), (4, 5), (5, 0)]);
        let past = [
            map(&[(1, 0), (2, 0), (3, 0), (4, 0), (5, 0)]),
            map(&[(1, 0), (2, 0), (3, 0), (5, 0)]),
            map(&[(1, 0), (5, 0)]),
        ];
        for key in keys() {
            let mut expected: Vec<u128> =
                past.iter().map(|map| map.members[map.ranked(&key)[0]].id).collect();
            expected.dedup();
            assert_eq!(ids(&now, now.homes(&key)), expected);
        }
    }

    #[test]
    fn wrong_maps_are_refused_with_the_reason() {
        let refused = |members: Vec<Member>| Map::new(3, members).expect_err("wrong").to_string();
        assert!(refused(vec![]).contains("no server"));
        assert!(refused((0..65).map(|id| member(id, 0)).collect()).contains("servers=65"));
        assert!(refused(vec![member(1, 0), member(1, 0)]).contains("same store"));
        let named = Member { name: "s1".into(), ..member(2, 0) };
        assert!(refused(vec![member(1, 0), named]).contains("same name"));
        assert!(refused(vec![Member { weight: 0, ..member(1, 0) }]).contains("weight"));
        assert!(refused(vec![member(1, 4)]).contains("since=4"));
        let backend = Arc::new(terrace_backends::object::Null::new(1 << 20));
        let error = Map::without_epochs(vec![Member { backend, ..member(1, 0) }]);
        assert_eq!(error.expect_err("no labels").kind(), ErrorKind::Unsupported);
    }
}
