// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Over which stores a file system lies: the record with its names, and the marks on the others.
//!
//! Specified in `docs/formats/fs.md`; ADR 28 says why it is so.

use std::collections::BTreeMap;
use std::ops::Bound;

use rustix::io::Errno;
use terrace_core::{Key, Kv, KvRange, Txn};

use crate::failure::{Failure, Result};
use crate::node::{Place, object_key};
use crate::pairs;
use crate::record::{Reader, decode};
use crate::superblock::Superblock;

/// The version that is written.
const VERSION: u8 = 1;

/// Most stores of a record: as many as a server map may have, and then some that were lost.
const STORES_MAX: usize = 128;

/// Longest name of a store that is kept.
const NAME_BYTES_MAX: usize = 255;

/// Where a sample looks, evenly over all numbers that were given, and how many nodes it takes there.
const SAMPLE_PLACES: u64 = 32;
const SAMPLE_PAIRS: usize = 32;

/// A store, as it was when it was written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownStore {
    /// Its number, which stays whatever becomes of its name and address.
    pub id: u128,
    /// What it was called, for people: its address, or its name in a server map.
    pub name: String,
}

impl KnownStore {
    /// A store with this number; of a name that is too long the beginning is kept.
    pub fn new(id: u128, name: &str) -> Self {
        Self { id, name: shortened(name).into() }
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.id.to_le_bytes());
        let name = shortened(&self.name);
        bytes.push(name.len() as u8);
        bytes.extend_from_slice(name.as_bytes());
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let id = reader.u128()?;
        let length = usize::from(reader.u8()?);
        let name = std::str::from_utf8(reader.take(length)?).ok()?;
        Some(Self { id, name: name.into() })
    }
}

/// As much of a name as is kept.
fn shortened(name: &str) -> &str {
    let mut end = name.len().min(NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

impl std::fmt::Display for KnownStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (store {:032x})", self.name.escape_debug(), self.id)
    }
}

/// That a store holds parts of a file system whose names are with another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Belonging {
    /// The number of the file system.
    pub file_system: u128,
    /// The store that keeps its names.
    pub keeper: KnownStore,
}

/// What is between the version and the checksum of a value.
fn body<'a>(bytes: &'a [u8], what: &str) -> Result<Reader<'a>> {
    let damaged = || Failure::corrupt(&format!("{what} has another form or checksum"));
    let (body, checksum) = bytes.split_last_chunk().ok_or_else(damaged)?;
    if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
        return Err(damaged());
    }
    let mut reader = Reader(body);
    match reader.u8() {
        Some(VERSION) => Ok(reader),
        Some(version) => {
            Err(Failure::corrupt(&format!("version {version} of {what} is not known here")))
        }
        None => Err(damaged()),
    }
}

fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

const RECORD: &str = "the record of its servers";
const MARK: &str = "the mark of the file system that it belongs to";

/// The value of the record's pair.
pub(crate) fn encode_record(stores: &[KnownStore]) -> Vec<u8> {
    let mut bytes = vec![VERSION, stores.len() as u8];
    stores.iter().for_each(|store| store.encode(&mut bytes));
    sealed(bytes)
}

/// Reads the value of the record's pair. Errors: `IO` where it is damaged, or of a later version.
pub(crate) fn decode_record(bytes: &[u8]) -> Result<Vec<KnownStore>> {
    let mut reader = body(bytes, RECORD)?;
    let found = (|| {
        let count = usize::from(reader.u8()?);
        (0..count).map(|_| KnownStore::decode(&mut reader)).collect::<Option<Vec<_>>>()
    })();
    let is_legal = |stores: &Vec<KnownStore>| (1..=STORES_MAX).contains(&stores.len());
    found
        .filter(|stores| is_legal(stores) && reader.0.is_empty())
        .ok_or_else(|| Failure::corrupt(&format!("{RECORD} has another form")))
}

impl Belonging {
    /// The value of the mark's pair.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&self.file_system.to_le_bytes());
        self.keeper.encode(&mut bytes);
        sealed(bytes)
    }

    /// Reads the value of the mark's pair. Errors: `IO` where it is damaged, or of a later version.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = body(bytes, MARK)?;
        let found = (|| {
            let file_system = reader.u128()?;
            Some(Self { file_system, keeper: KnownStore::decode(&mut reader)? })
        })();
        found
            .filter(|_| reader.0.is_empty())
            .ok_or_else(|| Failure::corrupt(&format!("{MARK} has another form")))
    }
}

/// The number of the file system that the pairs hold; `None` where they hold none.
///
/// # Errors
///
/// `IO` where its superblock cannot be read; what the pairs say.
pub fn file_system_id(kv: &dyn Kv) -> Result<Option<u128>> {
    let bytes = kv.get(pairs::SUPERBLOCK)?;
    bytes.map(|bytes| Ok(Superblock::decode(&bytes)?.id)).transpose()
}

/// The stores over which a file system lies, where that was recorded: not of one that was only ever
/// used over one.
///
/// # Errors
///
/// `IO` where the record cannot be read; what the pairs say.
pub fn recorded_stores(kv: &dyn Kv) -> Result<Option<Vec<KnownStore>>> {
    kv.get(pairs::STORES)?.map(|bytes| decode_record(&bytes)).transpose()
}

/// Whether a file system was used over several stores.
///
/// # Errors
///
/// What the pairs say.
pub fn is_distributed(kv: &dyn Kv) -> Result<bool> {
    Ok(kv.get(pairs::DISTRIBUTED)?.is_some())
}

/// Which file system of another store this one belongs to.
///
/// # Errors
///
/// `IO` where the mark cannot be read; what the pairs say.
pub fn belonging(kv: &dyn Kv) -> Result<Option<Belonging>> {
    kv.get(pairs::BELONGS)?.map(|bytes| Belonging::decode(&bytes)).transpose()
}

/// Whether a key is that of the mark.
pub fn is_mark(key: &[u8]) -> bool {
    key == pairs::BELONGS
}

/// Records that a file system lies over further stores, beside those that are recorded.
///
/// # Errors
///
/// `NOENT` where there is no file system, `INVAL` for too many stores; what the pairs say.
pub fn record_further_stores(kv: &dyn Kv, stores: &[KnownStore]) -> Result<()> {
    change(kv, &mut |txn| {
        let known = txn.get(pairs::STORES)?.map(|bytes| decode_record(&bytes)).transpose()?;
        let mut all = known.unwrap_or_default();
        for store in stores {
            if all.iter().all(|known| known.id != store.id) {
                all.push(store.clone());
            }
        }
        Ok(put_record(txn, &all)?)
    })
}

/// Records that a file system lies over these stores and no other ones, whatever was recorded.
///
/// # Errors
///
/// As [`record_further_stores`].
pub fn record_stores(kv: &dyn Kv, stores: &[KnownStore]) -> Result<()> {
    change(kv, &mut |txn| Ok(put_record(txn, stores)?))
}

/// Writes the record.
pub(crate) fn put_record(txn: &mut dyn Txn, stores: &[KnownStore]) -> terrace_core::Result<()> {
    if stores.len() > STORES_MAX {
        return Err(terrace_core::Error::invalid("record the servers", "there are too many")
            .with("servers", stores.len())
            .with("servers_max", STORES_MAX));
    }
    if stores.len() > 1 {
        txn.put(pairs::DISTRIBUTED, b"")?;
    }
    txn.put(pairs::STORES, &encode_record(stores))
}

/// Marks that the store of these pairs belongs to a file system of another one; `seen` is what was
/// found there before. False where there is something else by now, or a file system.
///
/// # Errors
///
/// What the pairs say.
pub fn mark(kv: &dyn Kv, belonging: &Belonging, seen: Option<&Belonging>) -> Result<bool> {
    let seen = seen.map(Belonging::encode);
    put_mark(kv, belonging, &|found| found == seen.as_deref())
}

/// The same whatever was found there, also where it cannot be read. False where there is a file
/// system.
///
/// # Errors
///
/// What the pairs say.
pub fn mark_anyway(kv: &dyn Kv, belonging: &Belonging) -> Result<bool> {
    put_mark(kv, belonging, &|_| true)
}

fn put_mark(
    kv: &dyn Kv,
    belonging: &Belonging,
    may_replace: &dyn Fn(Option<&[u8]>) -> bool,
) -> Result<bool> {
    let mut is_free = false;
    kv.transact(&mut |txn| {
        let found = txn.get(pairs::BELONGS)?;
        is_free = txn.get(pairs::SUPERBLOCK)?.is_none() && may_replace(found.as_deref());
        match is_free {
            true => txn.put(pairs::BELONGS, &belonging.encode()),
            false => Ok(()),
        }
    })?;
    Ok(is_free)
}

/// Takes a mark away where it is still this one.
///
/// # Errors
///
/// What the pairs say.
pub fn unmark(kv: &dyn Kv, belonging: &Belonging) -> Result<()> {
    let bytes = belonging.encode();
    kv.transact(&mut |txn| match txn.get(pairs::BELONGS)? {
        Some(found) if found == bytes => txn.delete(pairs::BELONGS),
        _ => Ok(()),
    })?;
    Ok(())
}

/// Some files whose bytes are objects, from early ones to late ones, with the keys of these.
///
/// # Errors
///
/// `INVAL` for a namespace that cannot be; what the pairs say.
pub fn sample_of_objects(kv: &dyn Kv, namespace: &str) -> Result<Vec<(u64, Key)>> {
    let Some(bytes) = kv.get(pairs::SUPERBLOCK)? else { return Ok(Vec::new()) };
    let numbers = Superblock::decode(&bytes)?.next_number;
    let mut found = BTreeMap::new();
    for place in 0..SAMPLE_PLACES {
        let first = u128::from(numbers) * u128::from(place) / u128::from(SAMPLE_PLACES);
        let first = u64::try_from(first).expect("a part of 64 bits");
        let mut range = KvRange::prefix(&[pairs::NODE]);
        range.start = Bound::Included(pairs::node(first));
        for (key, value) in kv.scan(&range, SAMPLE_PAIRS)? {
            // Damage is not looked for here.
            let node = pairs::number_of(&key).map(|number| decode(number, &value));
            if let Some(Ok(node)) = node
                && node.place == Place::Object
            {
                found.insert(node.number, object_key(namespace, node.number)?);
            }
        }
    }
    Ok(found.into_iter().collect())
}

/// Whether a file is there whose bytes are an object.
///
/// # Errors
///
/// `IO` where its record cannot be read; what the pairs say.
pub fn has_object(kv: &dyn Kv, number: u64) -> Result<bool> {
    let node = kv.get(&pairs::node(number))?.map(|bytes| decode(number, &bytes)).transpose()?;
    Ok(node.is_some_and(|node| node.place == Place::Object))
}

/// Changes the pairs of a file system that is there.
fn change(kv: &dyn Kv, body: &mut dyn FnMut(&mut dyn Txn) -> Result<()>) -> Result<()> {
    let mut failed = None;
    let committed = kv.transact(&mut |txn| {
        let done = match txn.get(pairs::SUPERBLOCK)? {
            Some(_) => body(txn),
            None => Err(Errno::NOENT.into()),
        };
        failed = done.err();
        match failed {
            None => Ok(()),
            // Not visible: the result of the body is returned instead.
            Some(_) => Err(terrace_core::Error::invalid("change a file system", "refused")),
        }
    });
    match (failed, committed) {
        (Some(failure), _) => Err(failure),
        (None, committed) => Ok(committed.map(drop)?),
    }
}

#[cfg(test)]
mod tests {
    use terrace_backends::kv;
    use terrace_core::{KvExt, SystemClock};

    use super::*;
    use crate::{Over, Tree, TreeOptions};

    fn store(id: u128) -> KnownStore {
        KnownStore::new(id, &format!("node{id}"))
    }

    fn create(kv: &dyn Kv, over: &Over<'_>) -> Result<()> {
        let options = TreeOptions::default();
        Tree::create_over(kv, &options, over, &SystemClock::default(), &[7; 32])
    }

    fn of(file_system: u128) -> Belonging {
        Belonging { file_system, keeper: store(9) }
    }

    #[test]
    fn one_that_is_made_over_several_stores_says_so() {
        let kv = kv::Memory::default();
        let stores = [store(1), store(2)];
        create(&kv, &Over { stores: &stores, seen: None }).expect("there is none");
        assert_eq!(recorded_stores(&kv), Ok(Some(stores.to_vec())));
        assert_eq!(is_distributed(&kv), Ok(true));
        assert_eq!(file_system_id(&kv), Ok(Some(Tree::id_of(&[7; 32]))));
        let alone = kv::Memory::default();
        create(&alone, &Over::default()).expect("there is none");
        assert_eq!((recorded_stores(&alone), is_distributed(&alone)), (Ok(None), Ok(false)));
    }

    #[test]
    fn further_stores_are_added_and_others_left_out() {
        let kv = kv::Memory::default();
        assert_eq!(record_stores(&kv, &[store(1)]), Err(Errno::NOENT.into()), "of what?");
        create(&kv, &Over::default()).expect("there is none");
        record_further_stores(&kv, &[store(2), store(1)]).expect("recorded");
        record_further_stores(&kv, &[store(1), store(3)]).expect("recorded");
        assert_eq!(recorded_stores(&kv), Ok(Some(vec![store(2), store(1), store(3)])));
        record_stores(&kv, &[store(3)]).expect("recorded");
        assert_eq!(recorded_stores(&kv), Ok(Some(vec![store(3)])));
        let many: Vec<_> = (0..=STORES_MAX as u128).map(store).collect();
        record_stores(&kv, &many).expect_err("too many");
        assert_eq!(recorded_stores(&kv), Ok(Some(vec![store(3)])));
    }

    #[test]
    fn none_is_made_where_a_store_belongs_to_another_one() {
        let kv = kv::Memory::default();
        assert_eq!(mark(&kv, &of(1), None), Ok(true));
        assert_eq!(mark(&kv, &of(2), None), Ok(false), "it is there by now");
        assert_eq!(create(&kv, &Over::default()), Err(Errno::EXIST.into()));
        let seen = of(2);
        let over = Over { stores: &[], seen: Some(&seen) };
        assert_eq!(create(&kv, &over), Err(Errno::EXIST.into()), "another one was seen");
        assert_eq!(mark(&kv, &of(2), Some(&of(1))), Ok(true));
        assert_eq!(belonging(&kv), Ok(Some(of(2))));
        create(&kv, &over).expect("it means nothing");
        assert_eq!(belonging(&kv), Ok(None));
        assert_eq!(mark(&kv, &of(2), None), Ok(false), "it has files of its own");
        assert_eq!(mark_anyway(&kv, &of(2)), Ok(false));
    }

    #[test]
    fn only_the_mark_that_was_made_is_taken_away() {
        let kv = kv::Memory::default();
        mark(&kv, &of(1), None).expect("written");
        unmark(&kv, &of(2)).expect("nothing to do");
        assert_eq!(belonging(&kv), Ok(Some(of(1))));
        unmark(&kv, &of(1)).expect("taken away");
        assert_eq!(belonging(&kv), Ok(None));
    }

    #[test]
    fn damage_is_told_and_written_over_where_that_is_asked_for() {
        let kv = kv::Memory::default();
        kv.put(pairs::BELONGS, b"nonsense").expect("written");
        belonging(&kv).expect_err("damaged");
        assert_eq!(mark_anyway(&kv, &of(1)), Ok(true));
        let kv = kv::Memory::default();
        create(&kv, &Over::default()).expect("there is none");
        let mut bytes = encode_record(&[store(1)]);
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            kv.put(pairs::STORES, &bytes).expect("written");
            recorded_stores(&kv).expect_err("damaged");
            bytes[at] ^= 1;
        }
        record_further_stores(&kv, &[store(2)]).expect_err("what was there is not lost");
        record_stores(&kv, &[store(2)]).expect("written over");
        assert_eq!(recorded_stores(&kv), Ok(Some(vec![store(2)])));
    }

    #[test]
    fn a_name_that_is_too_long_is_cut_between_letters() {
        let store = KnownStore::new(1, &"ä".repeat(200));
        assert_eq!(store.name.len(), NAME_BYTES_MAX - 1);
        assert_eq!(decode_record(&encode_record(std::slice::from_ref(&store))), Ok(vec![store]));
    }
}
