// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What applications, people and bad luck do, one random step each.

use std::io::IoSlice;
use std::sync::{Arc, Mutex};

use terrace_core::{
    Access, Backend, BackendExt, Create, Cursor, End, ErrorKind, Hint, ObjectExt, Op, Open, Random,
    Reply, Request, Semantics, TierIndex,
};
use terrace_stack::{MoveKind, ScrubOptions};

use super::{Handle, Held, KINDS, LEVELS, OBJECT_BYTES_MAX, Run, SPARE, is_aftermath};
use crate::common::hooked::{Call, Verdict};
use crate::common::pattern::difference;
use crate::common::restless::restless;
use crate::common::world::{LONG, outcome_of};

impl Run {
    pub(super) fn create(&mut self) {
        let name = self.any_name();
        let level = LEVELS[self.random.below(3) as usize];
        let data = self.any_bytes(OBJECT_BYTES_MAX / 3);
        let size_hint_bytes = self.random.chance(0.5).then_some(data.len() as u64);
        self.note(format!("create {name} at {level}, then {} bytes", data.len()));
        let semantics = Semantics::at_level(level);
        let how = Open { create: Create::New, semantics, size_hint_bytes, ..Open::default() };
        let is_there = self.objects.contains_key(&name);
        match self.stack().open(&name, &how) {
            Ok(_) if is_there => self.fail("it was created though it exists"),
            Ok(object) => {
                self.lives += 1;
                let life = self.lives;
                let held =
                    Held { data: Vec::new(), level, life, is_pinned: false, is_promised: true };
                self.objects.insert(name.clone(), held);
                self.may_return.remove(&name);
                let result = object.write(0, &data);
                let (access, key) = (Access::Write, name.clone());
                let handle = Handle {
                    key,
                    life,
                    object,
                    access,
                    has_failed_sync: false,
                    ghost: None,
                    file: None,
                };
                self.handles.push(handle);
                self.conclude(&name, Some(data), result);
            }
            Err(error) if is_there && error.kind() == ErrorKind::Exists => {}
            Err(error) => {
                self.note(format!("… failed: {}", error.chain()));
                self.check_failure(&name, level, Some(&[]), &error);
                self.heal();
                let found = self.found(&name);
                let before = self.objects.get(&name).map(|held| held.data.clone());
                // A creation that failed may leave an empty object, nothing else.
                if is_there && found != before {
                    self.fail(&format!("a failed creation changed {name}"));
                }
                if !is_there && found.is_some_and(|data| !data.is_empty()) {
                    self.fail(&format!("a failed creation left bytes in {name}"));
                }
                if !is_there {
                    self.stack().delete_if_exists(&name).expect("cleans up");
                }
            }
        }
    }

    pub(super) fn open_handle(&mut self) {
        let Some(name) = self.any_object() else { return };
        let access = if self.random.chance(0.5) { Access::Read } else { Access::Write };
        self.note(format!("open {name} for {access:?}"));
        let held = &self.objects[&name];
        let level = held.level;
        let semantics = Semantics::at_level(level);
        let (life, how) = (held.life, Open { access, semantics, ..Open::default() });
        match self.stack().open(&name, &how) {
            Ok(object) => self.handles.push(Handle {
                key: name,
                life,
                object,
                access,
                has_failed_sync: false,
                ghost: None,
                file: None,
            }),
            Err(error) => self.check_failure(&name, level, None, &error),
        }
    }

    pub(super) fn close_handle(&mut self) {
        if !self.handles.is_empty() {
            let index = self.random.below(self.handles.len() as u64) as usize;
            let handle = self.handles.swap_remove(index);
            self.note(format!("close {}", handle.key));
        }
    }

    pub(super) fn write(&mut self) {
        let Some(name) = self.any_object() else { return };
        let mut next = self.objects[&name].data.clone();
        // Sometimes far behind the end: that leaves a hole.
        let beyond = if self.random.chance(0.2) { OBJECT_BYTES_MAX } else { 5000 };
        let at = self.random.below(next.len() as u64 + beyond).min(OBJECT_BYTES_MAX - 8000);
        let data = self.any_bytes(8000);
        self.note(format!("write {name} at {at}, {} bytes", data.len()));
        let end = at as usize + data.len();
        next.resize(next.len().max(end), 0);
        next[at as usize..end].copy_from_slice(&data);
        // In one piece or in several.
        let cut = self.random.below(data.len() as u64) as usize;
        let parts = [IoSlice::new(&data[..cut]), IoSlice::new(&data[cut..])];
        let result = self.with_object(&name, |object| object.write_at(at, &parts));
        self.conclude(&name, Some(next), result);
    }

    pub(super) fn append(&mut self) {
        let Some(name) = self.any_object() else { return };
        let mut next = self.objects[&name].data.clone();
        let (end, data) = (next.len() as u64, self.any_bytes(6000));
        if end + data.len() as u64 > OBJECT_BYTES_MAX {
            return;
        }
        self.note(format!("append to {name}, {} bytes", data.len()));
        next.extend(&data);
        let result = self.with_object(&name, |object| object.append(&[IoSlice::new(&data)]));
        if let Ok(at) = &result
            && *at != end
        {
            self.fail(&format!("appended to {name} at {at} instead of {end}"));
        }
        self.conclude(&name, Some(next), result.map(drop));
    }

    pub(super) fn set_len(&mut self) {
        let Some(name) = self.any_object() else { return };
        let mut next = self.objects[&name].data.clone();
        let bytes = match self.random.below(4) {
            0 => 0,
            1 => self.random.below(OBJECT_BYTES_MAX),
            _ => self.random.below(next.len() as u64 + 1),
        };
        let before = next.len();
        self.note(format!("set the length of {name} from {before} to {bytes}"));
        next.resize(bytes as usize, 0);
        let result = self.with_object(&name, |object| object.set_len(bytes));
        self.conclude(&name, Some(next), result);
    }

    pub(super) fn punch(&mut self) {
        let Some(name) = self.any_object() else { return };
        let mut next = self.objects[&name].data.clone();
        let start = self.random.below(next.len() as u64 + 10);
        let range = start..start + self.random.below(20_000);
        self.note(format!("punch {name} {range:?}"));
        let size = next.len() as u64;
        next[start.min(size) as usize..range.end.min(size) as usize].fill(0);
        let result = self.with_object(&name, |object| object.punch(range));
        self.conclude(&name, Some(next), result);
    }

    pub(super) fn allocate(&mut self) {
        let Some(name) = self.any_object() else { return };
        let mut next = self.objects[&name].data.clone();
        let start = self.random.below(next.len() as u64 + 10);
        let range = start..start + 1 + self.random.below(5000);
        let end = if self.random.chance(0.5) { End::Grows } else { End::Stays };
        self.note(format!("allocate {name} {range:?} {end:?}"));
        if end == End::Grows {
            next.resize(next.len().max(range.end as usize), 0);
        }
        let result = self.with_object(&name, |object| object.allocate(range, end));
        let is_refused = matches!(&result, Err(error)
            if [ErrorKind::Unsupported, ErrorKind::NoSpace].contains(&error.kind()));
        // Where tiers are closed, the segment that is to be added may find none after those before
        // it have grown; what is only promised is taken back then.
        let is_closed = self.stack().tiers().iter().any(|tier| tier.drain.is_some());
        let has_no_space = matches!(&result, Err(error) if error.kind() == ErrorKind::NoSpace);
        if !is_refused || is_closed && has_no_space && end == End::Grows {
            return self.conclude(&name, Some(next), result);
        }
        // A promise of room may be refused where a write would not be; then nothing changes.
        self.note("… refused".into());
        self.heal();
        if self.found(&name).as_ref() != Some(&self.objects[&name].data) {
            self.fail("a refused promise of room changed the object");
        }
    }

    pub(super) fn read(&mut self) {
        let bytes = 1 + self.random.below(20_000);
        let mut buffer = vec![0xee; bytes as usize];
        if self.handles.is_empty() {
            return;
        }
        let index = self.random.below(self.handles.len() as u64) as usize;
        let handle = &self.handles[index];
        let held = self.objects.get(&handle.key).filter(|held| held.life == handle.life);
        let expected = held.map(|held| &held.data).or(handle.ghost.as_ref());
        let Some(expected) = expected.cloned() else { return };
        let is_live = held.is_some();
        let key = handle.key.clone();
        let at = self.random.below(expected.len() as u64 + 100);
        self.note(format!("read {key} at {at}, {bytes} bytes"));
        match self.handles[index].object.read(at, &mut buffer) {
            Ok(count) => {
                let from = (at as usize).min(expected.len());
                let expected = &expected[from..expected.len().min(from + bytes as usize)];
                // A deleted object may be gone in part; it is never another one.
                let is_right = buffer[..count] == *expected || (!is_live && count == 0);
                if !is_right {
                    let what = difference(&buffer[..count], expected);
                    self.fail(&format!("read {key} at {at}: {what}"));
                }
            }
            Err(error) if !is_live && error.kind() == ErrorKind::NotFound => {}
            Err(error) if self.has_faults && error.kind() == ErrorKind::Io => {}
            Err(error) => self.fail(&format!("cannot read {key}: {}", error.chain())),
        }
    }

    pub(super) fn read_whole(&mut self) {
        let name = self.any_name();
        self.note(format!("read all of {name}"));
        let expected = self.objects.get(&name).map(|held| &held.data);
        match (self.stack().read_all(&name), expected) {
            (Ok(found), Some(expected)) if found == *expected => {}
            (Ok(found), Some(expected)) => {
                self.fail(&format!("{name}: {}", difference(&found, expected)));
            }
            (Ok(_), None) => self.fail(&format!("{name} is back")),
            (Err(error), None) if error.kind() == ErrorKind::NotFound => {}
            (Err(error), _) if self.has_faults && error.kind() == ErrorKind::Io => {}
            (Err(error), _) => self.fail(&format!("cannot read {name}: {}", error.chain())),
        }
    }

    pub(super) fn stat(&mut self) {
        let name = self.any_name();
        self.note(format!("stat {name}"));
        let expected = self.objects.get(&name).map(|held| held.data.len() as u64);
        let found = self.stack().stat(&name);
        match found {
            Ok(stat) if Some(stat.size_bytes) == expected => {}
            Err(error) if error.kind() == ErrorKind::NotFound && expected.is_none() => {}
            Err(error) if self.has_faults && error.kind() == ErrorKind::Io => {}
            other => self.fail(&format!("{name}: {other:?} instead of {expected:?}")),
        }
    }

    pub(super) fn delete(&mut self) {
        let name = self.any_name();
        self.note(format!("delete {name}"));
        let is_there = self.objects.contains_key(&name);
        match self.stack().delete(&name) {
            Err(error) if error.kind() == ErrorKind::NotFound && !is_there => {}
            Ok(()) if !is_there => self.fail("what is not there was deleted"),
            result => self.conclude(&name, None, result),
        }
    }

    pub(super) fn list(&mut self) {
        let prefix = ["", "a", "a/", "cut-", "no"][self.random.below(5) as usize];
        let max = 1 + self.random.below(6) as usize;
        self.note(format!("list {prefix:?} by {max}"));
        let (mut found, mut cursor) = (Vec::new(), Cursor::start());
        loop {
            let page = self.stack().list("test", prefix, &cursor, max).expect("lists");
            assert!(page.keys.len() <= max, "a page is bounded");
            found.extend(page.keys);
            let Some(next) = page.next else { break };
            cursor = next;
        }
        let expected = self.objects.keys().filter(|key| key.name().starts_with(prefix));
        if !found.iter().eq(expected) {
            self.fail(&format!("listed {found:?}"));
        }
    }

    pub(super) fn migrate(&mut self) {
        let name = self.any_name();
        let to = TierIndex(self.random.below(3) as u8);
        let kind = KINDS[self.random.below(3) as usize];
        let priority = self.random.below(3) as i32;
        let is_waited_for = self.random.chance(0.5);
        self.note(format!("{kind:?} {name} to {to}, waiting: {is_waited_for}"));
        let before = self.stack().stat(&name).ok();
        let tickets = match self.stack().migrate(&name, to, kind, priority, "model") {
            Ok(tickets) => tickets,
            Err(error) => {
                self.note(format!("… refused: {}", error.chain()));
                let kinds = [
                    ErrorKind::NotFound,
                    ErrorKind::Busy,
                    ErrorKind::Denied,
                    ErrorKind::Unsupported,
                    ErrorKind::Invalid,
                ];
                if !kinds.contains(&error.kind()) {
                    self.fail("this is no reason to refuse a migration");
                }
                return;
            }
        };
        if !is_waited_for {
            self.tickets.extend(tickets);
            return;
        }
        let mut are_done = true;
        for ticket in tickets {
            let ended = self.stack().wait(ticket, LONG).expect("known");
            let Some(ended) = ended else { self.fail("a migration does not end") };
            self.note(format!("… segment {} {}", ended.segment, outcome_of(&ended)));
            are_done &= outcome_of(&ended) == "done";
        }
        // A policy may have moved it on.
        if are_done && !self.has_policy {
            let explanation = self.stack().explain(&name).expect("exists");
            let tier = self.stack().tiers().swap_remove(to.index());
            let place = tier.name;
            // The stack drops clean copies where it needs their room.
            let is_small = tier.capacity_bytes.is_some_and(|bytes| bytes < 1 << 20);
            let is_there = explanation.segments.iter().all(|segment| match kind {
                MoveKind::Copy => {
                    is_small || segment.tier == place || segment.copies.contains(&place)
                }
                _ => segment.tier == place,
            });
            if !is_there {
                self.fail(&format!("done, but not there: {explanation:?}"));
            }
        }
        let after = self.stack().stat(&name).ok();
        if let (Some(before), Some(after)) = (before, after)
            && (before.modified_ns, before.created_ns) != (after.modified_ns, after.created_ns)
        {
            self.fail(&format!("times changed by migration: {before:?}, {after:?}"));
        }
    }

    pub(super) fn drop_copy(&mut self) {
        let Some(name) = self.any_object() else { return };
        let tier = TierIndex(self.random.below(3) as u8);
        self.note(format!("drop the copy of {name} on {tier}"));
        if let Err(error) = self.stack().drop_copy(&name, tier) {
            self.note(format!("… refused: {}", error.chain()));
        }
    }

    pub(super) fn cancel(&mut self) {
        if self.random.chance(0.3) {
            self.note("cancel all".into());
            self.stack().cancel_all();
        } else if let Some(ticket) = self.tickets.pop() {
            self.note(format!("cancel {ticket:?}"));
            match self.stack().cancel(ticket) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    self.fail(&format!("cannot cancel: {}", error.chain()));
                }
                _ => {}
            }
        }
    }

    pub(super) fn pin(&mut self) {
        let Some(name) = self.any_object() else { return };
        let is_pinned = self.random.chance(0.4);
        self.note(format!("pin {name}: {is_pinned}"));
        let stack = self.stack();
        let result = if is_pinned { stack.pin(&name) } else { stack.unpin(&name) };
        result.expect("pins");
        self.objects.get_mut(&name).expect("is there").is_pinned = is_pinned;
    }

    pub(super) fn sync(&mut self) {
        if self.handles.is_empty() {
            return;
        }
        let index = self.random.below(self.handles.len() as u64) as usize;
        self.note(format!("sync {}", self.handles[index].key));
        let result = self.handles[index].object.sync();
        let handle = &mut self.handles[index];
        match result {
            Ok(()) if handle.has_failed_sync => self.fail("a failed sync is sticky"),
            Ok(()) => {}
            Err(error) => {
                let is_ghost = handle.ghost.is_some() && error.kind() == ErrorKind::NotFound;
                let was_expected =
                    self.has_faults || handle.has_failed_sync || is_ghost || is_aftermath(&error);
                handle.has_failed_sync = true;
                if !was_expected {
                    self.fail(&format!("cannot sync: {}", error.chain()));
                }
            }
        }
    }

    pub(super) fn sync_all(&mut self) {
        self.note("sync all".into());
        if let Err(error) = self.stack().sync()
            && !self.has_faults
            && !is_aftermath(&error)
        {
            self.fail(&format!("cannot sync all: {}", error.chain()));
        }
    }

    pub(super) fn execute(&mut self) {
        let (Some(name), other) = (self.any_object(), self.any_name()) else { return };
        let held = self.objects[&name].clone();
        if held.data.is_empty() || other == name {
            return;
        }
        self.note(format!("a batch on {name} and {other}"));
        let at = self.random.below(held.data.len() as u64);
        let data = self.any_bytes(300);
        let mut next = held.data.clone();
        let end = at as usize + data.len();
        next.resize(next.len().max(end), 0);
        next[at as usize..end].copy_from_slice(&data);
        let mut buffer = vec![0; next.len()];
        let mut operations = [
            Op::new(Request::Write { key: &name, offset_bytes: at, data: &data }),
            Op::new(Request::Read { key: &name, offset_bytes: 0, buffer: &mut buffer }),
            Op::new(Request::Stat { key: &name }),
            Op::new(Request::Create { key: &name, data: b"no", hint: Hint::default() }),
            Op::new(Request::Stat { key: &other }),
        ];
        self.stack().execute(&mut operations, &Semantics::at_level(held.level));
        let outcomes = operations.map(|operation| operation.outcome.expect("is filled"));
        let [write, read, stat, create, stat_other] = outcomes;
        match create {
            Err(error) if error.kind() == ErrorKind::Exists => {}
            Err(error) if self.has_faults && error.kind() == ErrorKind::Io => {}
            other => self.fail(&format!("created what exists: {other:?}")),
        }
        if stat_other.is_ok() != self.objects.contains_key(&other) && !self.has_faults {
            self.fail(&format!("{other}: {stat_other:?}"));
        }
        if write.is_ok() && read.is_ok() {
            if buffer != next {
                self.fail(&format!("a batch read: {}", difference(&buffer, &next)));
            }
            if let Ok(Reply::Stat(stat)) = stat
                && stat.size_bytes != next.len() as u64
            {
                self.fail(&format!("a batch found {stat:?}"));
            }
        }
        self.conclude(&name, Some(next), write.map(drop));
    }

    pub(super) fn pair(&mut self) {
        let name = vec![b'p', self.random.below(6) as u8];
        let level = LEVELS[1 + self.random.below(2) as usize];
        match self.random.below(4) {
            0 => {
                self.note(format!("remove pair {name:?}"));
                let found = self.stack().kv_remove("pairs", &name, level).expect("removes");
                assert_eq!(found, self.pairs.remove(&name).is_some());
            }
            1 => {
                self.note("scan pairs".into());
                let found = self.stack().kv_scan("pairs", b"p", None, 100).expect("scans");
                let expected: Vec<_> = self.pairs.clone().into_iter().collect();
                assert_eq!(found, expected);
            }
            _ => {
                let value = self.any_bytes(100);
                self.note(format!("put pair {name:?}"));
                self.stack().kv_put("pairs", &name, &value, level).expect("puts");
                self.pairs.insert(name, value);
            }
        }
    }

    /// From now on a tier fails now and then, or none does.
    pub(super) fn faults(&mut self) {
        if self.has_faults {
            self.note("faults end".into());
            return self.heal();
        }
        let tier = self.random.below(3) as usize;
        let seed = self.random.next_u64();
        self.note(format!("tier {tier} fails now and then"));
        self.has_faults = true;
        let random = Arc::new(Mutex::new(Random::new(seed)));
        self.world.tier(tier).on(move |moment| {
            let is_failure = random.lock().expect("never poisoned").chance(0.1);
            // After the fact only where the effect may stay: the failed call was carried out.
            let may_fail = !moment.is_done || matches!(moment.call, Call::Write | Call::SetLen);
            if is_failure && may_fail { Verdict::Fail(ErrorKind::Io) } else { Verdict::Go }
        });
    }

    pub(super) fn heal(&mut self) {
        self.has_faults = false;
        (0..3).for_each(|tier| self.world.tier(tier).heal());
    }

    pub(super) fn scrub(&mut self) {
        self.note("scrub".into());
        let options = ScrubOptions { bytes_per_s: f64::INFINITY, namespace: None };
        match self.stack().scrub(&options, &mut |_, _| true) {
            Ok(report) if report.problem_count == 0 || self.has_faults => {}
            Ok(report) => self.fail(&format!("a scrub found {report:?}")),
            Err(error) => self.fail(&format!("a scrub fails: {}", error.chain())),
        }
    }

    pub(super) fn quota(&mut self) {
        let limit = |random: &mut Random, around: u64| {
            random.chance(0.6).then(|| around / 2 + random.below(around + 2))
        };
        let held_bytes = self.objects.values().map(|held| held.data.len() as u64).sum();
        let bytes_max = limit(&mut self.random, held_bytes);
        let objects_max = limit(&mut self.random, self.objects.len() as u64);
        self.note(format!("quota of {bytes_max:?} bytes and {objects_max:?} objects"));
        let result = match (bytes_max, objects_max) {
            (None, None) => self.stack().clear_quota("test"),
            _ => self.stack().set_quota("test", bytes_max, objects_max),
        };
        match result {
            Ok(report) => {
                let held = self.stack().quotas().into_iter().find(|one| one.namespace == "test");
                assert!(held.is_none_or(|held| held == report), "{report:?}");
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => self.fail(&format!("the quota is refused: {}", error.chain())),
        }
    }

    pub(super) fn policy(&mut self) {
        self.note("swap the policy".into());
        let tactics = restless(self.random.next_u64());
        self.stack().set_policy(tactics).expect("swaps");
        self.has_policy = true;
    }

    /// Begins or ends the drain of a tier.
    pub(super) fn drain(&mut self) {
        let tiers = self.stack().tiers();
        let tier = &tiers[self.random.below(tiers.len() as u64) as usize];
        if tier.drain.is_some() {
            self.note(format!("drain {} no longer", tier.name));
            return self.stack().undrain_tier(&tier.name).expect("ends");
        }
        self.note(format!("drain {}", tier.name));
        match self.stack().drain_tier(&tier.name) {
            Err(error) if error.kind() != ErrorKind::Invalid => {
                self.fail(&format!("cannot drain: {}", error.chain()));
            }
            // It is the last one that takes anything.
            _ => {}
        }
    }

    /// Adds the spare tier, or removes it.
    pub(super) fn spare(&mut self) {
        if self.has_spare {
            self.note("remove the spare tier".into());
            match self.stack().remove_tier(SPARE) {
                Ok(()) => self.has_spare = false,
                Err(error) => {
                    self.note(format!("… refused: {}", error.chain()));
                    if ![ErrorKind::Invalid, ErrorKind::Busy].contains(&error.kind()) {
                        self.fail("this is no reason to keep a tier");
                    }
                }
            }
            return;
        }
        self.note("add the spare tier".into());
        let tier = self.world.tier_to_add(SPARE);
        let tactics = self.has_policy.then(|| restless(self.random.next_u64()));
        match self.stack().add_tier(tier, tactics) {
            Ok(()) => self.has_spare = true,
            // It was added and removed too often since the last opening.
            Err(error) if error.kind() == ErrorKind::Busy => {}
            Err(error) => self.fail(&format!("cannot add: {}", error.chain())),
        }
    }
}
