// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading past the stack, by files that it lent.

use std::os::unix::fs::FileExt;

use terrace_core::{Access, ErrorKind, FileLease, Key};

use super::Run;
use crate::common::pattern::difference;

/// Leases that are kept, good ones and those that are over.
const LEASES_MAX: usize = 24;

/// A lease of an object in one of its lives.
pub(super) struct Held {
    key: Key,
    life: u64,
    lease: FileLease,
}

impl Run {
    pub(super) fn lend(&mut self) {
        if self.handles.is_empty() {
            return;
        }
        let index = self.random.below(self.handles.len() as u64) as usize;
        let handle = &self.handles[index];
        let (key, life) = (handle.key.clone(), handle.life);
        match handle.object.lease_file() {
            Ok(Some(_)) if handle.ghost.is_some() => {
                self.fail(&format!("{key} is deleted, and was lent"));
            }
            Ok(Some(lease)) => {
                self.note(format!("{key} is lent: {:?}", lease.word));
                if self.leases.len() == LEASES_MAX {
                    let oldest = self.random.below(LEASES_MAX as u64) as usize;
                    self.leases.swap_remove(oldest);
                }
                self.leases.push(Held { key, life, lease });
            }
            Ok(None) => {}
            Err(error) if self.has_faults && error.kind() == ErrorKind::Io => {}
            Err(error) => self.fail(&format!("{key} cannot be lent: {}", error.chain())),
        }
    }

    pub(super) fn read_lent(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let index = self.random.below(self.leases.len() as u64) as usize;
        let Held { key, life, lease } = &self.leases[index];
        let held = self.objects.get(key).filter(|held| held.life == *life);
        let bytes = held.map_or(0, |held| held.data.len() as u64);
        let at = self.random.below(bytes + 100);
        let mut buffer = vec![0xee; 1 + self.random.below(bytes + 100) as usize];
        let read = lease.read(at, &mut buffer).expect("reads");
        let what = format!("read {key} at {at} by {:?}", lease.word);
        let Some(count) = read else {
            self.leases.swap_remove(index);
            return;
        };
        let Some(expected) = held.map(|held| held.data.clone()) else {
            self.fail(&format!("{what}: it is gone, and the lease is good"));
        };
        let from = (at as usize).min(expected.len());
        let expected = &expected[from..expected.len().min(from + buffer.len())];
        if buffer[..count] != *expected {
            self.fail(&format!("{what}: {}", difference(&buffer[..count], expected)));
        }
        self.verified_bytes.update(|bytes| bytes + count as u64);
        self.note(format!("{what}: {count} bytes"));
    }

    /// Holds an object for reading: whatever moves is to go round it.
    pub(super) fn hold(&mut self) {
        if self.handles.is_empty() {
            return;
        }
        let index = self.random.below(self.handles.len() as u64) as usize;
        let handle = &mut self.handles[index];
        let key = handle.key.clone();
        match handle.object.hold_file(Access::Read) {
            Ok(Some(_)) if handle.ghost.is_some() => {
                self.fail(&format!("{key} is deleted, and was held"));
            }
            Ok(Some(file)) => {
                handle.file = Some(file);
                self.note(format!("{key} is held"));
            }
            Ok(None) => {}
            Err(error) if self.has_faults && error.kind() == ErrorKind::Io => {}
            Err(error) => self.fail(&format!("{key} cannot be held: {}", error.chain())),
        }
    }

    /// As long as a handle holds it, the file is the object.
    pub(super) fn read_held(&mut self) {
        for handle in &self.handles {
            let Some(file) = &handle.file else { continue };
            let object = self.objects.get(&handle.key).filter(|held| held.life == handle.life);
            let expected = object.map(|held| &held.data).or(handle.ghost.as_ref());
            let expected = expected.expect("it is there or was deleted");
            let mut found = vec![0; expected.len() + 100];
            let count = file.read_at(&mut found, 0).expect("reads");
            if found[..count] != *expected {
                let difference = difference(&found[..count], expected);
                self.fail(&format!("{} in the file that it is held in: {difference}", handle.key));
            }
            self.verified_bytes.update(|bytes| bytes + count as u64);
        }
    }

    /// The stack has ended, and everything that it lent.
    pub(super) fn end_leases(&mut self) {
        for Held { key, lease, .. } in std::mem::take(&mut self.leases) {
            if lease.is_good().expect("looks") {
                self.fail(&format!("{key} is still lent by a stack that has ended"));
            }
        }
    }
}
