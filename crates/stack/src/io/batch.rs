// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many creates with one commit, and at level `storage` with one sync.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_core::{
    Access, Atomicity, Create, Error, ErrorKind, EventKind, Key, Object, Op, Open, Persistency,
    Reply, Request, Result, Semantics,
};

use crate::io::create::Draft;
use crate::io::object::StackObject;
use crate::memory::entries::{Claim, Found};
use crate::migrate::settle::SINGLE_SYNCS_MAX;
use crate::shared::Shared;
use crate::tiers::account::Class;
use crate::watch::ring::Took;

/// An object whose file is made and, where it could be, filled.
struct Ready<'a> {
    index: usize,
    claim: Claim<'a>,
    draft: Draft,
    /// How long its bytes took; `None` where they are to be written once it is there.
    filled_ns: Option<u64>,
}

/// Creates objects with different keys, which share one commit of the catalog. Their bytes are
/// written before it, so that neither they nor their lengths need a sync or commit of their own.
pub(crate) fn create(shared: &Arc<Shared>, operations: &mut [&mut Op<'_>], semantics: &Semantics) {
    // In order of the keys, so that two batches that claim the same keys cannot wait for each
    // other.
    let mut order: Vec<_> = (0..operations.len()).collect();
    let keys: Vec<Key> = operations.iter().map(|one| one.request.key().clone()).collect();
    order.sort_by(|a, b| keys[*a].cmp(&keys[*b]));
    // Whole tiers are synced then, and no descriptor is needed for each file.
    let is_large = order.len() > SINGLE_SYNCS_MAX;
    let mut ready = Vec::new();
    for index in order {
        match prepare(shared, index, &keys[index], &operations[index].request, semantics) {
            Ok(one) => {
                if is_large {
                    one.draft.site.close();
                }
                ready.push(one);
            }
            Err(error) => operations[index].outcome = Some(Err(error.with("key", &keys[index]))),
        }
    }
    let drafts: Vec<_> = ready.iter().map(|one| (&keys[one.index], &one.draft)).collect();
    let committed = shared.commit_drafts(&drafts);
    for one in ready {
        let index = one.index;
        let outcome = match &committed {
            Ok(()) => finish(shared, one, &operations[index].request, semantics),
            Err(error) => {
                shared.discard(&keys[index], &one.draft);
                Err(Error::new(error.kind(), "create object").because(error.chain()))
            }
        };
        operations[index].outcome = Some(outcome.map(|()| Reply::Done));
    }
}

fn prepare<'a>(
    shared: &'a Arc<Shared>,
    index: usize,
    key: &'a Key,
    request: &Request<'_>,
    semantics: &Semantics,
) -> Result<Ready<'a>> {
    shared.check_writable("create object")?;
    let Request::Create { data, hint, .. } = request else {
        return Err(Error::invalid("create object", "the operation is not a create"));
    };
    semantics.atomicity.check_bytes("create object", data.len())?;
    let claim = match shared.entries.open(key) {
        Found::Vacant(claim) => claim,
        Found::Entry(entry) => {
            shared.uncount_entry(&entry);
            return Err(Error::new(ErrorKind::Exists, "create object"));
        }
    };
    if shared.catalog.get(key)?.is_some() {
        return Err(Error::new(ErrorKind::Exists, "create object"));
    }
    let how = Open {
        create: Create::New,
        size_hint_bytes: Some(data.len() as u64),
        hint: *hint,
        semantics: *semantics,
        ..Open::default()
    };
    let mut draft = shared.draft(key, &how, shared.level(semantics), None)?;
    match fill(shared, &mut draft, data) {
        Ok(filled_ns) => Ok(Ready { index, claim, draft, filled_ns }),
        Err(error) => {
            shared.discard(key, &draft);
            Err(error)
        }
    }
}

/// Writes the bytes of an object that is not visible yet, where they fit into its file and its tier;
/// how long that took.
fn fill(shared: &Shared, draft: &mut Draft, data: &[u8]) -> Result<Option<u64>> {
    let length_bytes = data.len() as u64;
    let limit_bytes = draft.record.layout.next_cut(0).unwrap_or(u64::MAX);
    let tier = shared.tier(draft.site.place.tier);
    // What the quota refuses, the ordinary write refuses and says why.
    if length_bytes == 0 || length_bytes > limit_bytes || !draft.counted.take_bytes(length_bytes) {
        return Ok(None);
    }
    if !tier.account.take(Class::Used, length_bytes, tier.capacity_bytes()) {
        draft.counted.free_bytes();
        return Ok(None);
    }
    let started_ns = shared.clock.now_ns();
    let file = draft.site.open_once(&*tier.backend);
    let written = file.and_then(|file| {
        match file.write_at(0, &[IoSlice::new(data)]) {
            // What does not fit there may on the next tier.
            Err(error) if error.kind() == ErrorKind::NoSpace => file.set_len(0).map(|()| false),
            other => other.map(|()| true),
        }
    });
    if !matches!(written, Ok(true)) {
        tier.account.free(Class::Used, length_bytes);
        draft.counted.free_bytes();
    }
    if !written? {
        return Ok(None);
    }
    draft.record.segments[0].length_bytes = length_bytes;
    Ok(Some(shared.clock.now_ns() - started_ns))
}

/// Shows an object that is committed, and writes what was not written yet.
fn finish(
    shared: &Arc<Shared>,
    ready: Ready<'_>,
    request: &Request<'_>,
    semantics: &Semantics,
) -> Result<()> {
    let Request::Create { data, .. } = request else { unreachable!("it was prepared") };
    let level = shared.level(semantics);
    if ready.filled_ns.is_none() && semantics.atomicity >= Atomicity::Operation {
        return shared.publish_whole(ready.claim, ready.draft, level, data);
    }
    let entry = shared.publish(ready.claim, ready.draft);
    if let Some(filled_ns) = ready.filled_ns {
        if level < Persistency::Storage {
            entry.is_unsynced.store(true, Ordering::Release);
        }
        let segment = &entry.segments.load()[0];
        let tier = segment.location.load_full().primary.place.tier;
        let length_bytes = data.len() as u64;
        shared.tier(tier).ledger.access(true, length_bytes, filled_ns);
        entry.ledger.access(true, length_bytes, filled_ns);
        let now_ns = shared.clock.now_ns();
        shared.post(
            EventKind::Write,
            segment,
            tier,
            now_ns,
            (0, length_bytes),
            Took::of(filled_ns),
        );
    }
    if level >= Persistency::Shared && (ready.filled_ns.is_some() || data.is_empty()) {
        shared.sync_entry(&entry)?;
    }
    let object = StackObject::new(Arc::clone(shared), entry, Access::Write, level);
    if ready.filled_ns.is_some() || data.is_empty() {
        return Ok(());
    }
    object.write_at(0, &[IoSlice::new(data)])
}
