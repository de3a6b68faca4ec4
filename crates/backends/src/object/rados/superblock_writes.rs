// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Conditional writes of the superblock. Each has an instance of its own, so that a write whose answer is lost differs
//! from that of another process, which may have written the same text.

use terrace_core::Result;

use super::is_other_version;
use super::library::Errno;

/// What a write expects to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Missing,
    There(u64),
}

/// A superblock that was read.
pub(super) struct FoundSuperblock {
    pub(super) bytes: Vec<u8>,
    pub(super) instance: Vec<u8>,
    pub(super) version: u64,
}

/// What is known of the superblock.
#[derive(Default)]
pub(super) struct SuperblockWrites {
    /// As it was read or written last; `None` before.
    version: Option<Version>,
    /// Instances of the writes since the last one that was acknowledged: those that failed may have been carried out, or will be.
    attempts: Vec<Vec<u8>>,
}

impl SuperblockWrites {
    /// Notes what was read.
    pub(super) fn note(&mut self, found: Option<&FoundSuperblock>) {
        // Writes that are on their way may still be carried out, and stay known.
        self.version = Some(found.map_or(Version::Missing, |found| Version::There(found.version)));
    }

    /// Writes in the place of what was read or written last, and of nothing else; the inner result is that of the
    /// write.
    ///
    /// # Errors
    ///
    /// Those of `new_instance` and `read`.
    pub(super) fn write(
        &mut self,
        new_instance: impl Fn() -> Result<Vec<u8>>,
        read: impl Fn() -> Result<Option<FoundSuperblock>>,
        write: impl Fn(Version, &[u8]) -> Result<u64, Errno>,
    ) -> Result<Result<(), Errno>> {
        let mut expected = match self.version {
            Some(version) => version,
            None => read()?.map_or(Version::Missing, |found| Version::There(found.version)),
        };
        self.version = Some(expected);
        loop {
            let instance = new_instance()?;
            self.attempts.push(instance.clone());
            let failed = match write(expected, &instance) {
                Ok(version) => return Ok(self.done(version)),
                Err(errno) => errno,
            };
            // The answer may be lost, or that of an earlier try.
            match read()? {
                Some(found) if found.instance == instance => {
                    return Ok(self.done(found.version));
                }
                // An earlier write of this process was carried out: this one goes in its place.
                Some(found)
                    if is_other_version(failed)
                        && expected != Version::There(found.version)
                        && self.attempts.contains(&found.instance) =>
                {
                    expected = Version::There(found.version);
                    self.version = Some(expected);
                }
                _ => return Ok(Err(failed)),
            }
        }
    }

    fn done(&mut self, version: u64) -> Result<(), Errno> {
        self.version = Some(Version::There(version));
        // A write that is carried out later expects an earlier version.
        self.attempts.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use rustix::io::Errno as Number;
    use terrace_core::{Error, ErrorKind};

    use super::*;

    /// An object with a version.
    #[derive(Default)]
    struct Object {
        now: RefCell<Option<(Vec<u8>, u64)>>,
        instances: Cell<u8>,
        /// Whether writes are carried out and not answered, and reads fail.
        is_cut: Cell<bool>,
    }

    impl Object {
        fn read(&self) -> Result<Option<FoundSuperblock>> {
            if self.is_cut.get() {
                return Err(Error::new(ErrorKind::Io, "read").because("no answer"));
            }
            let found = |(instance, version): &(Vec<u8>, u64)| FoundSuperblock {
                bytes: b"text".to_vec(),
                instance: instance.clone(),
                version: *version,
            };
            Ok(self.now.borrow().as_ref().map(found))
        }

        fn write(&self, expected: Version, instance: &[u8]) -> Result<u64, Errno> {
            let mut now = self.now.borrow_mut();
            let there = now.as_ref().map_or(Version::Missing, |(_, at)| Version::There(*at));
            if there != expected {
                return Err(Number::RANGE.raw_os_error());
            }
            let version = now.as_ref().map_or(1, |(_, at)| at + 1);
            *now = Some((instance.to_vec(), version));
            match self.is_cut.get() {
                true => Err(Number::TIMEDOUT.raw_os_error()),
                false => Ok(version),
            }
        }

        /// A write of one process.
        fn set(&self, writes: &mut SuperblockWrites) -> Result<Result<(), Errno>> {
            let instance = || {
                self.instances.set(self.instances.get() + 1);
                Ok(vec![self.instances.get()])
            };
            writes.write(
                instance,
                || self.read(),
                |version, instance| self.write(version, instance),
            )
        }
    }

    #[test]
    fn a_write_whose_answer_is_lost_is_not_that_of_another_process() {
        let object = Object::default();
        let mut writes = SuperblockWrites::default();
        assert_eq!(object.set(&mut writes).expect("read"), Ok(()));
        let before = object.read();
        object.is_cut.set(true);
        for _ in 0..3 {
            object.set(&mut writes).expect_err("no answer");
        }
        object.is_cut.set(false);
        // A read that came before the first of them was carried out.
        writes.note(before.expect("read").as_ref());
        assert_eq!(object.set(&mut writes).expect("read"), Ok(()));
        assert_eq!(object.set(&mut writes).expect("read"), Ok(()));
    }

    #[test]
    fn the_same_text_of_another_process_is_refused() {
        let object = Object::default();
        let (mut one, mut other) = (SuperblockWrites::default(), SuperblockWrites::default());
        for writes in [&mut one, &mut other] {
            writes.note(object.read().expect("read").as_ref());
        }
        assert_eq!(object.set(&mut one).expect("read"), Ok(()));
        let refused = object.set(&mut other).expect("read").expect_err("it is another's");
        assert!(is_other_version(refused));
        assert_eq!(object.set(&mut one).expect("read"), Ok(()));
    }

    #[test]
    fn a_write_without_a_read_expects_what_is_there() {
        let object = Object::default();
        assert_eq!(object.set(&mut SuperblockWrites::default()).expect("read"), Ok(()));
        let expected = Cell::new(None);
        let written = SuperblockWrites::default().write(
            || Ok(vec![9]),
            || object.read(),
            |version, instance| {
                expected.set(Some(version));
                object.write(version, instance)
            },
        );
        assert_eq!(written.expect("read"), Ok(()));
        assert_eq!(expected.get(), Some(Version::There(1)));
    }
}
