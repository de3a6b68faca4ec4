// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many creates with one commit.

use std::io::IoSlice;
use std::sync::Arc;

use terrace_core::{
    Create, Error, ErrorKind, Key, Object, Op, Open, Reply, Request, Result, Semantics,
};

use crate::create::Draft;
use crate::entries::{Claim, Found};
use crate::object::StackObject;
use crate::shared::Shared;

/// Creates objects with different keys, which share one commit of the catalog.
pub(crate) fn create(shared: &Arc<Shared>, operations: &mut [Op<'_>], semantics: &Semantics) {
    // In order of the keys, so that two batches that claim the same keys cannot wait for each
    // other.
    let mut order: Vec<_> = (0..operations.len()).collect();
    let keys: Vec<Key> = operations.iter().map(|one| one.request.key().clone()).collect();
    order.sort_by(|a, b| keys[*a].cmp(&keys[*b]));
    let mut ready: Vec<(usize, Claim<'_>, Draft)> = Vec::new();
    for index in order {
        match draft(shared, &keys[index], &operations[index].request, semantics) {
            Ok((claim, draft)) => ready.push((index, claim, draft)),
            Err(error) => operations[index].outcome = Some(Err(error.with("key", &keys[index]))),
        }
    }
    let drafts: Vec<_> = ready.iter().map(|(index, _, draft)| (&keys[*index], draft)).collect();
    let committed = shared.commit_drafts(&drafts);
    for (index, claim, draft) in ready {
        let outcome = match &committed {
            Ok(()) => fill(shared, claim, draft, &operations[index].request, semantics),
            Err(error) => {
                shared.discard(&keys[index], &draft);
                Err(Error::new(error.kind(), "create object").because(error.chain()))
            }
        };
        operations[index].outcome = Some(outcome.map(|()| Reply::Done));
    }
}

fn draft<'a>(
    shared: &'a Arc<Shared>,
    key: &'a Key,
    request: &Request<'_>,
    semantics: &Semantics,
) -> Result<(Claim<'a>, Draft)> {
    shared.check_writable("create object")?;
    let Request::Create { data, hint, .. } = request else {
        return Err(Error::invalid("create object", "the operation is not a create"));
    };
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
    let level = shared.level(semantics);
    Ok((claim, shared.draft(key, &how, level)?))
}

fn fill(
    shared: &Arc<Shared>,
    claim: Claim<'_>,
    draft: Draft,
    request: &Request<'_>,
    semantics: &Semantics,
) -> Result<()> {
    let entry = shared.publish(claim, draft);
    let level = shared.level(semantics);
    let object = StackObject::new(Arc::clone(shared), entry, terrace_core::Access::Write, level);
    match request {
        Request::Create { data, .. } if !data.is_empty() => {
            object.write_at(0, &[IoSlice::new(data)])
        }
        _ => Ok(()),
    }
}
