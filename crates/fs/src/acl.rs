// SPDX-License-Identifier: Apache-2.0 OR MIT
//! POSIX access control lists in the form in which Linux passes them as extended attributes
//! (`include/uapi/linux/posix_acl_xattr.h`): version 2, then tag, permissions and id of each entry.
//! The kernel checks them; here they are inherited and kept in step with permissions.

use rustix::io::Errno;

use crate::failure::{Failure, Result};

/// The attribute with the list of a node.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";

/// The attribute with the list that is inherited in a directory.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    permissions: u16,
    id: u32,
}

fn decode(list: &[u8]) -> Result<Vec<Entry>> {
    let invalid = || Failure::of(Errno::INVAL);
    let (header, rest) = list.split_first_chunk::<HEADER_BYTES>().ok_or_else(invalid)?;
    if u32::from_le_bytes(*header) != VERSION {
        return Err(Errno::OPNOTSUPP.into());
    }
    let (entries, rest) = rest.as_chunks::<ENTRY_BYTES>();
    if !rest.is_empty() {
        return Err(invalid());
    }
    entries
        .iter()
        .map(|[t0, t1, p0, p1, id @ ..]| {
            let tag = u16::from_le_bytes([*t0, *t1]);
            let permissions = u16::from_le_bytes([*p0, *p1]);
            let is_known = [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER].contains(&tag);
            match is_known && permissions <= 7 {
                true => Ok(Entry { tag, permissions, id: u32::from_le_bytes(*id) }),
                false => Err(invalid()),
            }
        })
        .collect()
}

fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut list = VERSION.to_le_bytes().to_vec();
    for entry in entries {
        list.extend_from_slice(&entry.tag.to_le_bytes());
        list.extend_from_slice(&entry.permissions.to_le_bytes());
        list.extend_from_slice(&entry.id.to_le_bytes());
    }
    list
}

fn of(entries: &[Entry], tag: u16) -> Option<u32> {
    entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.permissions.into())
}

/// The lower nine bits of a mode that a list stands for.
fn bits(entries: &[Entry]) -> Result<u32> {
    let invalid = Failure::of(Errno::INVAL);
    let group = of(entries, MASK).or(of(entries, GROUP_OBJ));
    match (of(entries, USER_OBJ), group, of(entries, OTHER)) {
        (Some(user), Some(group), Some(other)) => Ok(user << 6 | group << 3 | other),
        _ => Err(invalid),
    }
}

fn says_more(entries: &[Entry]) -> bool {
    entries.iter().any(|entry| matches!(entry.tag, USER | GROUP | MASK))
}

/// Whether a list has no entries, which stands for none.
///
/// # Errors
///
/// `INVAL`.
pub(crate) fn is_empty(list: &[u8]) -> Result<bool> {
    let entries = decode(list)?;
    if !entries.is_empty() {
        bits(&entries)?;
    }
    Ok(entries.is_empty())
}

/// The lower nine bits of the mode that a list stands for, and whether it says more than they do.
///
/// # Errors
///
/// `INVAL`.
pub(crate) fn permissions(list: &[u8]) -> Result<(u32, bool)> {
    let entries = decode(list)?;
    Ok((bits(&entries)?, says_more(&entries)))
}

/// A list after its file got other permissions: those of the group are the mask, where there is one.
///
/// # Errors
///
/// `INVAL`.
pub(crate) fn with_permissions(list: &[u8], permissions: u32) -> Result<Vec<u8>> {
    let mut entries = decode(list)?;
    limit(&mut entries, permissions);
    Ok(encode(&entries))
}

/// Gives the entries that stand for a mode the bits of `permissions`.
fn limit(entries: &mut [Entry], permissions: u32) {
    let has_mask = entries.iter().any(|entry| entry.tag == MASK);
    for entry in entries {
        let shift = match entry.tag {
            USER_OBJ => 6,
            MASK => 3,
            GROUP_OBJ if !has_mask => 3,
            OTHER => 0,
            _ => continue,
        };
        entry.permissions = (permissions >> shift & 7) as u16;
    }
}

/// What a node gets in a directory with the default list `default`, if it was to have
/// `permissions`: its permissions, and a list where they do not say all.
///
/// # Errors
///
/// `INVAL`.
pub(crate) fn inherit(default: &[u8], permissions: u32) -> Result<(u32, Option<Vec<u8>>)> {
    let mut entries = decode(default)?;
    // What both the list and the program allow.
    let allowed = bits(&entries)? & permissions;
    limit(&mut entries, allowed);
    let access = says_more(&entries).then(|| encode(&entries));
    Ok((permissions & !0o777 | allowed, access))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: u32 = u32::MAX;

    fn entry(tag: u16, permissions: u16) -> Entry {
        Entry { tag, permissions, id: ANY }
    }

    fn wide() -> Vec<u8> {
        let user = Entry { tag: USER, permissions: 7, id: 1000 };
        encode(&[entry(USER_OBJ, 7), user, entry(GROUP_OBJ, 5), entry(MASK, 7), entry(OTHER, 1)])
    }

    #[test]
    fn the_mask_is_the_group_of_the_mode() {
        assert_eq!(permissions(&wide()), Ok((0o771, true)));
        let changed = with_permissions(&wide(), 0o640).unwrap();
        assert_eq!(permissions(&changed), Ok((0o640, true)));
        // The owning group keeps what it had: the mask limits it.
        assert_eq!(of(&decode(&changed).unwrap(), GROUP_OBJ), Some(5));
    }

    #[test]
    fn what_is_made_gets_what_list_and_program_allow() {
        let (permissions, access) = inherit(&wide(), 0o4664).unwrap();
        assert_eq!(permissions, 0o4660);
        assert_eq!(super::permissions(&access.unwrap()), Ok((0o660, true)));
    }

    #[test]
    fn a_list_that_says_no_more_than_a_mode_is_not_kept() {
        let plain = encode(&[entry(USER_OBJ, 7), entry(GROUP_OBJ, 5), entry(OTHER, 5)]);
        assert_eq!(inherit(&plain, 0o666), Ok((0o644, None)));
        assert_eq!(permissions(&plain), Ok((0o755, false)));
    }

    #[test]
    fn damaged_lists_are_refused() {
        let good = wide();
        for cut in 0..good.len() {
            // Also at the end of an entry: the last one is needed.
            assert!(permissions(&good[..cut]).is_err(), "cut at {cut}");
        }
        assert!(is_empty(&VERSION.to_le_bytes()).unwrap());
    }
}
