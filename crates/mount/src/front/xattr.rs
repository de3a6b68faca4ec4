// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Extended attributes: those that programs set, and those through which tiers are seen.

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use terrace_fs::{CAPABILITY, Node, Reply as Told, Request as Ask, SetHow};

use super::{Front, Result, attributes};

/// Attributes that programs set begin with one of these.
const KEPT: [&[u8]; 3] = [b"user.", TRUSTED, b"security."];

/// The label of a file, by which SELinux decides about access.
const LABEL: &[u8] = b"security.selinux";

/// Where the kernel says whether it signs attributes, new and old.
const EVM: [&str; 2] = ["/sys/kernel/security/integrity/evm/evm", "/sys/kernel/security/evm"];

/// What root alone sees.
const TRUSTED: &[u8] = b"trusted.";

/// The number of that user.
const ROOT: u32 = 0;

/// Access control lists, which the kernel checks.
const LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

impl Front {
    pub(super) fn xattr(&self, number: u64, name: &[u8]) -> Result<Vec<u8>> {
        if let Some(name) = attributes::attribute(name) {
            let node = self.files.node(number)?;
            let outcome = attributes::get(self, &node, name);
            return outcome.map_err(|failure| self.files.failure(number, failure));
        }
        check(name)?;
        match self.kept_xattr(number, name) {
            // `ls -l` asks for the label of each file until it gets the answer once that there are no labels.
            Err(failure) if failure.errno() == Errno::NODATA && self.is_idle_label(name) => {
                Err(Errno::OPNOTSUPP.into())
            }
            // The kernel requests the lists of a directory before it looks up a name there.
            Err(failure)
                if failure.errno() == Errno::STALE
                    && LISTS.contains(&name)
                    && self.removed_directory(number).is_some() =>
            {
                Err(Errno::NODATA.into())
            }
            outcome => outcome,
        }
    }

    fn kept_xattr(&self, number: u64, name: &[u8]) -> Result<Vec<u8>> {
        if self.files.metadata().lacks_xattr(number, Some(name), self.cached_for) {
            return Err(Errno::NODATA.into());
        }
        let ask = || self.files.metadata().call(&Ask::Xattr { number, name });
        match self.files.on_inode(number, ask)? {
            Told::Bytes(value) => Ok(value),
            _ => Err(Errno::IO.into()),
        }
    }

    /// Whether an attribute is a label that this machine ignores.
    fn is_idle_label(&self, name: &[u8]) -> bool {
        name == LABEL && !self.heeds_labels
    }

    /// The names of the attributes that a user may see.
    pub(super) fn xattrs(&self, number: u64, user: u32) -> Result<Vec<u8>> {
        if self.files.metadata().lacks_xattr(number, None, self.cached_for) {
            return Ok(Vec::new());
        }
        let ask = || self.files.metadata().call(&Ask::Xattrs { number });
        match self.files.on_inode(number, ask)? {
            Told::Bytes(names) if user == ROOT => Ok(names),
            Told::Bytes(names) => Ok(without_trusted(&names)),
            _ => Err(Errno::IO.into()),
        }
    }

    pub(super) fn set_xattr(
        &self,
        number: u64,
        name: &[u8],
        value: &[u8],
        flags: u32,
        clears_set_group: bool,
    ) -> Result<()> {
        if let Some(name) = attributes::attribute(name) {
            let node = self.files.node(number)?;
            let outcome = attributes::set(self, &node, name, value);
            return outcome.map_err(|failure| self.files.failure(number, failure));
        }
        check(name)?;
        let flags = XattrFlags::from_bits_retain(flags);
        let how = match (flags.contains(XattrFlags::CREATE), flags.contains(XattrFlags::REPLACE)) {
            // Never: one that is there is not made, and one that is not is not replaced.
            (true, true) => return self.kept_xattr(number, name).and(Err(Errno::EXIST.into())),
            (true, false) => SetHow::Create,
            (false, true) => SetHow::Replace,
            (false, false) => SetHow::Any,
        };
        let request = Ask::SetXattr { number, name, value, how, clears_set_group };
        self.files.on_inode(number, || self.files.metadata().call(&request))?;
        if name == CAPABILITY {
            self.files.note_capability(number);
        }
        Ok(())
    }

    pub(super) fn remove_xattr(&self, number: u64, name: &[u8]) -> Result<()> {
        if let Some(name) = attributes::attribute(name) {
            let node = self.files.node(number)?;
            let outcome = attributes::remove(self, &node, name);
            return outcome.map_err(|failure| self.files.failure(number, failure));
        }
        check(name)?;
        let ask = || self.files.metadata().call(&Ask::RemoveXattr { number, name });
        self.files.on_inode(number, ask).map(drop)
    }

    /// Pins what was made where that is asked for.
    pub(super) fn pin_new(&self, node: &Node) {
        if node.marks.pin.is_some()
            && let Err(failure) = attributes::apply_pin(self, node)
        {
            tracing::warn!(file = node.number, %failure, "cannot pin a new file");
        }
    }
}

/// Whether the kernel uses labels: it has SELinux, and was not booted without, or signs what protects
/// files (EVM), labels among it.
pub(super) fn heeds_labels() -> bool {
    let systems = std::fs::read_to_string("/proc/filesystems");
    // Where that is unknown, files return whether they have labels.
    let has_selinux =
        systems.map_or(true, |systems| systems.split_whitespace().any(|word| word == "selinuxfs"));
    let signs = |state| std::fs::read_to_string(state).is_ok_and(|state| state.trim() != "0");
    has_selinux || EVM.into_iter().any(signs)
}

/// Names, each with a zero behind it.
fn without_trusted(names: &[u8]) -> Vec<u8> {
    let names = names.split_inclusive(|byte| *byte == 0);
    names.filter(|name| !name.starts_with(TRUSTED)).flatten().copied().collect()
}

fn check(name: &[u8]) -> Result<()> {
    if KEPT.contains(&name) {
        return Err(Errno::INVAL.into());
    }
    match KEPT.iter().any(|prefix| name.starts_with(prefix)) || LISTS.contains(&name) {
        true => Ok(()),
        false => Err(Errno::OPNOTSUPP.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_root_alone_sees_are_left_out() {
        let names = b"trusted.a\0user.trusted.\0trusted.\0security.b\0";
        assert_eq!(without_trusted(names), b"user.trusted.\0security.b\0");
        assert!(without_trusted(b"").is_empty());
    }
}
