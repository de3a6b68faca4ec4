// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Quotas as people set and see them, and what the catalog keeps of them.
//!
//! What a namespace takes up is written at a clean close, with the number of the opening that it
//! ended: after a crash, or after a version that knew nothing of it, the records are summed.

use std::collections::BTreeMap;

use terrace_core::{Error, ErrorKind, Key, Result};

use crate::catalog::codec::{Reader, Writer};
use crate::catalog::map::Write;
use crate::catalog::record::{Record, SegmentRecord};
use crate::report::QuotaReport;
use crate::shared::Shared;

const QUOTA: u8 = b'q';
const USAGE: u8 = b'u';
const VERSION: u8 = 1;

/// Rows that are committed together.
const BATCH: usize = 256;

/// Sets the limits of a namespace; `None` leaves one as it is.
pub(crate) fn set(
    shared: &Shared,
    namespace: &str,
    bytes_max: Option<u64>,
    objects_max: Option<u64>,
) -> Result<QuotaReport> {
    if bytes_max.is_none() && objects_max.is_none() {
        return Err(Error::invalid("set a quota", "it limits neither bytes nor objects"));
    }
    change(shared, namespace, |now| (bytes_max.or(now.0), objects_max.or(now.1)))
}

/// Lifts the limits of a namespace.
pub(crate) fn clear(shared: &Shared, namespace: &str) -> Result<QuotaReport> {
    let usage = shared.usages.of(namespace);
    if usage.bytes.limit().is_none() && usage.objects.limit().is_none() {
        return Err(Error::new(ErrorKind::NotFound, "clear a quota")
            .because("the namespace has none")
            .with("namespace", namespace));
    }
    change(shared, namespace, |_| (None, None))
}

/// Namespaces with objects or a limit, by name.
pub(crate) fn all(shared: &Shared) -> Vec<QuotaReport> {
    let reports = shared.usages.all().into_iter().map(|(namespace, _)| report(shared, namespace));
    let is_worth_showing = |report: &QuotaReport| {
        report.objects > 0 || report.bytes_max.is_some() || report.objects_max.is_some()
    };
    reports.filter(is_worth_showing).collect()
}

fn report(shared: &Shared, namespace: String) -> QuotaReport {
    let usage = shared.usages.of(&namespace);
    QuotaReport {
        namespace,
        bytes: usage.bytes.used(),
        bytes_max: usage.bytes.limit(),
        objects: usage.objects.used(),
        objects_max: usage.objects.limit(),
    }
}

fn change(
    shared: &Shared,
    namespace: &str,
    change: impl FnOnce((Option<u64>, Option<u64>)) -> (Option<u64>, Option<u64>),
) -> Result<QuotaReport> {
    shared.check_writable("change a quota")?;
    // The rules for namespaces of objects.
    Key::new(namespace, "k").map_err(|error| error.with("namespace", namespace))?;
    let _changing = crate::lock(&shared.usages.changing);
    let usage = shared.usages.of(namespace);
    let (bytes_max, objects_max) = change((usage.bytes.limit(), usage.objects.limit()));
    let row = match (bytes_max, objects_max) {
        (None, None) => None,
        (bytes, objects) => {
            let mut out = Writer::new(VERSION);
            out.u64(bytes.unwrap_or(u64::MAX)).u64(objects.unwrap_or(u64::MAX));
            Some(out.finish())
        }
    };
    let ticket = shared.catalog.commit(&[Write::Row(key(QUOTA, namespace), row)])?;
    shared.catalog.wait(ticket)?;
    usage.bytes.set_limit(bytes_max);
    usage.objects.set_limit(objects_max);
    Ok(report(shared, namespace.into()))
}

fn key(kind: u8, namespace: &str) -> Vec<u8> {
    [&[kind], namespace.as_bytes()].concat()
}

fn namespace(key: &[u8]) -> Result<&str> {
    std::str::from_utf8(&key[1..])
        .map_err(|_| crate::catalog::codec::corrupt("quota", "its namespace is not UTF-8"))
}

/// Sums a record into the usage of its namespace.
pub(crate) fn count(shared: &Shared, key: &Key, record: &Record) {
    let usage = shared.usages.of(key.namespace());
    usage.objects.found(1);
    usage.bytes.found(record.segments.iter().map(SegmentRecord::amount).sum());
}

/// Takes the limits from the catalog.
pub(crate) fn load_limits(shared: &Shared) -> Result<()> {
    for (key, value) in shared.catalog.rows(QUOTA)? {
        let mut input = Reader::new(&value, VERSION, "quota")?;
        let (bytes, objects) = (input.u64()?, input.u64()?);
        input.finish()?;
        let usage = shared.usages.of(namespace(&key)?);
        usage.bytes.set_limit(Some(bytes).filter(|limit| *limit != u64::MAX));
        usage.objects.set_limit(Some(objects).filter(|limit| *limit != u64::MAX));
    }
    Ok(())
}

/// Takes what the clean close of opening `epoch` wrote; where there is nothing of it, sums all
/// records.
pub(crate) fn load_usage(shared: &Shared, epoch: u64) -> Result<()> {
    let rows = shared.catalog.rows(USAGE)?;
    let mut found = Vec::new();
    let mut total = None;
    for (key, value) in &rows {
        let mut input = Reader::new(value, VERSION, "usage")?;
        let (of_epoch, bytes, objects) = (input.u64()?, input.u64()?, input.u64()?);
        input.finish()?;
        match namespace(key)? {
            _ if of_epoch != epoch => {}
            "" => total = Some(objects),
            namespace => found.push((namespace, bytes, objects)),
        }
    }
    if total != Some(found.len() as u64) {
        return shared.catalog.for_each(&mut |key, record| {
            if let Ok(record) = record {
                count(shared, &key, &record);
            }
            Ok(())
        });
    }
    for (namespace, bytes, objects) in found {
        let usage = shared.usages.of(namespace);
        usage.bytes.found(bytes);
        usage.objects.found(objects);
    }
    Ok(())
}

/// Writes what namespaces take up, for the next opening. A row without a namespace counts the
/// others: without it, or with another count, they mean nothing.
pub(crate) fn save_usage(shared: &Shared) -> Result<()> {
    let row = |name: &str, bytes: u64, objects: u64| {
        let mut out = Writer::new(VERSION);
        out.u64(shared.epoch).u64(bytes).u64(objects);
        (key(USAGE, name), Some(out.finish()))
    };
    // What an earlier close wrote of namespaces that are empty now goes.
    let before = shared.catalog.rows(USAGE)?;
    let mut rows: BTreeMap<_, _> = before.into_iter().map(|(key, _)| (key, None)).collect();
    let mut named = 0;
    for (name, usage) in shared.usages.all() {
        let (bytes, objects) = (usage.bytes.used(), usage.objects.used());
        if objects > 0 {
            rows.extend([row(&name, bytes, objects)]);
            named += 1;
        }
    }
    rows.extend([row("", 0, named)]);
    let writes: Vec<_> = rows.into_iter().map(|(key, value)| Write::Row(key, value)).collect();
    writes.chunks(BATCH).try_for_each(|writes| shared.catalog.commit(writes).map(drop))
}
