// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is asked of the metadata of a file system, and what comes back.
//!
//! Values, so that a request is carried out here or sent to the server: in the
//! encoding of postcard, in the order of the fields. A new request or field is a new version of
//! the service.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::node::{Kind, Marking, Marks, Node, Time};

/// An operation on metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request<'a> {
    /// What a name in a directory leads to. `.` is the directory itself, `..` the one that it is in.
    Lookup {
        /// The directory.
        directory: u64,
        /// The name.
        #[serde(borrow)]
        name: &'a [u8],
    },
    /// What is known of a node.
    Node {
        /// Its number.
        number: u64,
    },
    /// Changes what is known of a node.
    Change {
        /// Its number.
        number: u64,
        /// How.
        changes: Changes,
    },
    /// Makes a node, and with it a name.
    Make {
        /// The directory.
        directory: u64,
        /// The name; empty for a file that gets none yet.
        #[serde(borrow)]
        name: &'a [u8],
        /// What is made.
        made: Made<'a>,
    },
    /// Gives a node one more name.
    Link {
        /// The node.
        number: u64,
        /// The directory.
        directory: u64,
        /// The name.
        #[serde(borrow)]
        name: &'a [u8],
    },
    /// Takes a name away.
    Remove {
        /// The directory.
        directory: u64,
        /// The name.
        #[serde(borrow)]
        name: &'a [u8],
        /// Whether it must be that of an empty directory, or must not be that of a directory.
        is_directory: bool,
    },
    /// Moves a name.
    Rename {
        /// The directory that it is in.
        from_directory: u64,
        /// The name there.
        #[serde(borrow)]
        from: &'a [u8],
        /// The directory that it comes to.
        to_directory: u64,
        /// The name there.
        #[serde(borrow)]
        to: &'a [u8],
        /// What to do with what has that name already.
        how: RenameHow,
        /// The caller: owner of what is left in its place with [`RenameHow::leaves_whiteout`].
        user: u32,
        /// And the group.
        group: u32,
    },
    /// Entries of a directory behind a position, in order.
    List {
        /// The directory.
        directory: u64,
        /// The position; 0 for all.
        after: u64,
        /// How many at most.
        max: u32,
        /// Whether the nodes come with the names.
        with_nodes: bool,
    },
    /// Where a symbolic link leads.
    Target {
        /// The link.
        number: u64,
    },
    /// The value of an extended attribute.
    Xattr {
        /// The node.
        number: u64,
        /// The attribute.
        #[serde(borrow)]
        name: &'a [u8],
    },
    /// The names of all extended attributes, each with a NUL behind it.
    Xattrs {
        /// The node.
        number: u64,
    },
    /// Sets an extended attribute.
    SetXattr {
        /// The node.
        number: u64,
        /// The attribute.
        #[serde(borrow)]
        name: &'a [u8],
        /// Its value.
        #[serde(borrow)]
        value: &'a [u8],
        /// What must be there already.
        how: SetHow,
        /// Whether the set-group-ID bit goes where an access control list is set.
        clears_set_group: bool,
    },
    /// Removes an extended attribute.
    RemoveXattr {
        /// The node.
        number: u64,
        /// The attribute.
        #[serde(borrow)]
        name: &'a [u8],
    },
    /// Sets all that is asked of the tiers: of two at once the last one stays. For servers of before
    /// [`Request::MarkOne`].
    Mark {
        /// The node.
        number: u64,
        /// All of it.
        marks: Marks,
    },
    /// Opens a file: it stays while it has no name, until it is closed as often.
    Open {
        /// The file.
        number: u64,
        /// Whether its object may change from now on.
        is_for_writing: bool,
    },
    /// A file and its bytes, where those are with the metadata.
    Content {
        /// The file.
        number: u64,
    },
    /// Closes files, and notes what was read; returns the numbers of those files whose objects are
    /// now to be deleted. Asked again, because no answer came, it closes nothing twice.
    Close {
        /// What is closed.
        closed: Vec<Closed>,
        /// What was read, if it is still as it was then.
        read: Vec<WasRead>,
        /// Distinguishes it from other requests to close of the same client.
        id: u64,
        /// Those with a smaller id will not be asked again.
        acknowledged: u64,
    },
    /// Takes account of what the object of a file says.
    Settle {
        /// The file.
        number: u64,
        /// What it says.
        settled: Settled,
    },
    /// Writes into a small file.
    Write {
        /// The file.
        number: u64,
        /// Where.
        offset: u64,
        /// What.
        #[serde(borrow, with = "serde_bytes")]
        data: &'a [u8],
        /// Whether at the end, wherever that is; `offset` then means nothing.
        at_end: bool,
        /// Whether set-user-ID and set-group-ID bits go.
        clears_set_id: bool,
    },
    /// From now on the bytes of a file are in its object, which holds them already.
    MoveOut {
        /// The file.
        number: u64,
        /// How many bytes it had when they were copied; where it has others, nothing is changed.
        size: u64,
        /// The bytes that were copied.
        #[serde(borrow, with = "serde_bytes")]
        content: &'a [u8],
        /// When the object was last changed, nanoseconds since 1970.
        object_modified_ns: u64,
    },
    /// Takes, changes or gives back a lock. Does not wait.
    Lock {
        /// The node.
        number: u64,
        /// Its owner, among the locks of the same client.
        owner: u64,
        /// Whether it is a lock of `flock`, which those of `fcntl` do not see.
        is_flock: bool,
        /// What is wanted.
        locked: Locked,
    },
    /// What is in the way of a lock.
    FindLock {
        /// The node.
        number: u64,
        /// Whose it would be.
        owner: u64,
        /// Whether it would be a lock of `flock`.
        is_flock: bool,
        /// What would be wanted.
        range: LockRange,
    },
    /// Reserves numbers of nodes, for objects that are made before their files.
    Reserve {
        /// How many.
        count: u32,
    },
    /// Some of the objects that are to be deleted.
    Garbage {
        /// How many at most.
        max: u32,
    },
    /// These objects were deleted.
    Collected {
        /// Their numbers.
        numbers: Vec<u64>,
    },
    /// Everything that was acknowledged is to survive a loss of power.
    Sync,
    /// The object of a small file is about to be made: whatever becomes of that, from now on it is
    /// deleted with the file. Returns what is known of the file. A server of before does not know this
    /// request.
    NoteObject {
        /// The file.
        number: u64,
    },
    /// Opens small files for reading ahead of their use, and has them delegated to the
    /// client: until [`DELEGATED_FOR`] after this, or after the last [`Request::RenewAhead`], no other client gets
    /// the answer that a change of one of them is done. A server of before does not know this request.
    OpenAhead {
        /// The files.
        numbers: Vec<u64>,
        /// With which others they are delegated: the client counts these, and relies on the last alone.
        grant: u64,
        /// Whether they are the first of them. Else they are opened only if the others still are
        /// delegated.
        is_first: bool,
    },
    /// Prolongs what is delegated by [`Request::OpenAhead`]: done, or not here, where it has ended.
    RenewAhead {
        /// What it was delegated with.
        grant: u64,
    },
    /// Sets one thing that is asked of the tiers, and leaves the others as they are. A server of before
    /// does not know this request.
    MarkOne {
        /// The node.
        number: u64,
        /// It.
        marking: Marking,
    },
    /// Gives numbers to a client that makes files with [`Request::MakeNumbered`]; one that is not used names
    /// nothing. A server of before does not know this request.
    Numbers {
        /// How many.
        count: u32,
    },
    /// Makes a file that is opened at once, of a number that was given for that, with its first bytes where
    /// they fit. It is made once, however often that is asked for: where it is there, it is
    /// opened. A server of before does not know this request.
    MakeNumbered {
        /// The directory.
        directory: u64,
        /// The name.
        #[serde(borrow)]
        name: &'a [u8],
        /// What is made, without an object.
        made: Made<'a>,
        /// Its number.
        number: u64,
        /// What it begins with.
        #[serde(borrow, with = "serde_bytes")]
        content: &'a [u8],
    },
    /// Takes names of files away, each where it still leads to that file: what else has the name by now
    /// stays. So does the file if it has changed, or is open for writing, and it is too late for the client to
    /// have acknowledged the unlink ([`MAY_SAY_GONE_FOR`]). A server of before does not know this request.
    RemoveNumbered {
        /// The directory.
        directory: u64,
        /// The names, [`REMOVED_MAX`] at most.
        #[serde(borrow)]
        removed: Vec<NamedFile<'a>>,
        /// When the directory changed by that, as far as the client has returned it already.
        changed: Option<Time>,
    },
    /// Lists directories ahead of their use, each as a whole, and has them delegated to the client: until
    /// [`DELEGATED_FOR`] after this no other client gets the answer that a change of a name there is done. What was
    /// delegated with the one before is no more. A server of before does not know this request.
    ListAhead {
        /// The directories, [`LISTED_AHEAD_MAX`] at most.
        directories: Vec<u64>,
        /// Whether what is below a directory comes before the next one, and in which order.
        below: Option<Order>,
        /// How many directories at most come of all that.
        count: u32,
        /// And how many entries of them together, [`ENTRIES_AHEAD_MAX`] at most.
        max: u32,
        /// The client counts these: one that comes late is refused.
        grant: u64,
    },
}

impl Request<'_> {
    /// Whether it claims the object of a small file, to make it, or gives it back.
    pub fn is_claim(&self) -> bool {
        matches!(self, Request::Lock { number, .. } if number & CLAIMED != 0)
    }
}

/// A name, and the file that it is to lead to, as last known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedFile<'a> {
    /// The name.
    #[serde(borrow)]
    pub name: &'a [u8],
    /// The file.
    pub number: u64,
    /// When that had changed last.
    pub changed: Time,
}

/// Names that are taken away with one [`Request::RemoveNumbered`], at most.
pub const REMOVED_MAX: usize = 64;

/// Files that are opened with one [`Request::OpenAhead`], at most.
pub const OPENED_AHEAD_MAX: usize = 256;

/// Directories that are listed with one [`Request::ListAhead`], at most.
pub const LISTED_AHEAD_MAX: usize = 32;

/// Entries of all of them, at most.
pub const ENTRIES_AHEAD_MAX: u32 = 1024;

/// The order in which directories of one directory come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// That of its listing.
    #[default]
    Listed,
    /// That of the bytes of their names.
    Names,
}

/// What is locked where a user claims the object of a small file, beside the file's number: those
/// stay below.
pub(crate) const CLAIMED: u64 = 1 << 63;

/// The lock that is a claim, or gives it back.
pub(crate) fn claim(kind: LockKind) -> Locked {
    Locked { range: LockRange { start: 0, end: u64::MAX, kind }, process: 0 }
}

/// A file that is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// The file.
    pub number: u64,
    /// As it was opened.
    pub is_for_writing: bool,
    /// What is known of its object.
    pub left: Left,
}

/// How a close of a file left its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Left {
    /// Unknown: it cannot have been changed where it was open for reading alone, and else it
    /// could not be asked.
    Unknown,
    /// As it says.
    Settled(Settled),
    /// As it was: it was open for writing, and not written. A server of before does not know this.
    Untouched,
}

/// A node that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WasRead {
    /// The node.
    pub number: u64,
    /// When it had changed last then.
    pub changed: Time,
}

/// A lock and its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locked {
    /// Which bytes, and how.
    pub range: LockRange,
    /// The process, as its own machine numbers it.
    pub process: u32,
}

/// Bytes of a file, and how they are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRange {
    /// The first byte.
    pub start: u64,
    /// The last one.
    pub end: u64,
    /// How.
    pub kind: LockKind,
}

/// How a range is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockKind {
    /// Others may read.
    Read,
    /// Exclusive.
    Write,
    /// Not at all.
    Unlock,
}

/// What is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made<'a> {
    /// What it is.
    pub kind: Kind,
    /// Its permissions before `umask`.
    pub permissions: u32,
    /// Permissions that are taken away, unless the directory has a default access control list.
    pub umask: u32,
    /// Its owner.
    pub user: u32,
    /// Its group, unless the directory passes on its own.
    pub group: u32,
    /// Of a device: which.
    pub device: u32,
    /// Of a symbolic link: where it leads.
    #[serde(borrow)]
    pub target: &'a [u8],
    /// Of a file: whether it is opened at once, for writing.
    pub is_opened: bool,
    /// Of a file: the object that is there for it, from [`Request::Reserve`].
    pub object: Option<ReadyObject>,
}

/// An object that was made before its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyObject {
    /// The number that is the object's name and becomes the file's.
    pub number: u64,
    /// When the object was last changed, nanoseconds since 1970.
    pub modified_ns: u64,
}

/// Changes to a node. `None` leaves as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Permissions, 12 bits.
    pub permissions: Option<u32>,
    /// Owner.
    pub user: Option<u32>,
    /// Group.
    pub group: Option<u32>,
    /// Length of a file whose bytes are with the metadata.
    pub size: Option<u64>,
    /// When it was last read.
    pub accessed: Option<When>,
    /// When its bytes last changed.
    pub modified: Option<When>,
    /// When the object was last changed, where `modified` is to stand instead of it.
    pub settled_ns: Option<u64>,
    /// Whether set-user-ID and set-group-ID bits go.
    pub clears_set_id: bool,
}

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum When {
    /// The moment at which it is carried out.
    Now,
    /// This one.
    At(Time),
}

/// What is done with what has the new name already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenameHow {
    /// It makes the call fail.
    pub keeps_existing: bool,
    /// It gets the old name.
    pub exchanges: bool,
    /// A character device 0:0 is left under the old name, as overlay file systems want it.
    pub leaves_whiteout: bool,
}

/// What must be there when an extended attribute is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetHow {
    /// Anything.
    #[default]
    Any,
    /// No attribute of that name.
    Create,
    /// An attribute of that name.
    Replace,
}

/// What the object of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// How long it is.
    pub size: u64,
    /// Room that it takes.
    pub allocated_bytes: u64,
    /// When it was last changed, nanoseconds since 1970.
    pub modified_ns: u64,
}

/// For so long after a request whose answer delegated a directory, counted from when it was made,
/// no other client changes the names there.
pub const DELEGATED_FOR: Duration = Duration::from_millis(20);

/// For so long after a request that [`Reply::Removed`] answered so, counted from when it was made, the client may
/// acknowledge unlinks of other names in the directory, and have them carried out: until
/// [`SAID_GONE_FOR`] later no other client finds them.
pub const MAY_SAY_GONE_FOR: Duration = Duration::from_millis(10);

/// For so long lookups of other clients wait for acknowledged unlinks: what comes later may come behind
/// what they have done with it.
pub const SAID_GONE_FOR: Duration = Duration::from_millis(30);

/// What is delegated to the maker of a node: no other client has ever changed the names there, and none
/// does for [`DELEGATED_FOR`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegated {
    /// The directory that it was made in.
    pub directory: bool,
    /// The node, where it is a directory.
    pub node: bool,
}

/// What a request returns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Nothing.
    Done,
    /// A node.
    Node(Node),
    /// A node that was made.
    Made {
        /// The node.
        node: Node,
        /// The directory that it was made in, as it is now.
        directory: Node,
        /// What of these is delegated to the client.
        delegated: Delegated,
    },
    /// No node: the name leads nowhere, in a directory that is delegated to the client.
    Nowhere,
    /// A node and, of a file whose bytes are with the metadata, those.
    Opened {
        /// The node.
        node: Node,
        /// The bytes.
        #[serde(with = "serde_bytes")]
        content: Vec<u8>,
    },
    /// The node, where there is one still, and an object that is now to be deleted.
    Gone {
        /// Number of the node that lost a name.
        number: u64,
        /// Whether its object is to be deleted.
        has_garbage: bool,
        /// The directory that lost the name, as it is now, where that is known.
        directory: Option<Node>,
        /// Whether that is delegated to the client, where it is known.
        is_delegated: bool,
    },
    /// A value, names or a target.
    Bytes(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Entries.
    Listing(Vec<Listed>),
    /// Numbers of nodes.
    Numbers(Vec<u64>),
    /// A lock that is in the way.
    InTheWay(Option<Locked>),
    /// The bytes of the file are not, or no longer, with the metadata, or do not fit there; or what
    /// was delegated is no longer.
    NotHere,
    /// Files that were opened ahead: those that are there, and small.
    OpenedAhead(Vec<OpenedAhead>),
    /// What became of [`Request::RemoveNumbered`].
    Removed {
        /// The directory, as it is now.
        directory: Node,
        /// How many of the names led to their files, and are gone.
        count: u32,
        /// How many lead to them still, because others may have changed these since.
        kept: u32,
        /// Whether the directory is delegated to the client.
        is_delegated: bool,
        /// Whether the client may acknowledge unlinks of other names there before they are applied, for
        /// [`MAY_SAY_GONE_FOR`].
        may_say_gone: bool,
    },
    /// Directories that were listed ahead: those that are there, and not too long.
    ListedAhead(Vec<ListedAhead>),
}

/// A file that was opened ahead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedAhead {
    /// The file.
    pub node: Node,
    /// Its bytes, those that are with the metadata.
    #[serde(with = "serde_bytes")]
    pub content: Vec<u8>,
}

/// A directory that was listed ahead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedAhead {
    /// The directory.
    pub directory: Node,
    /// All that is in it, in order, with the nodes.
    pub entries: Vec<Listed>,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Its name.
    pub name: Vec<u8>,
    /// Where a walk goes on behind it.
    pub position: u64,
    /// The node.
    pub number: u64,
    /// What that is.
    pub kind: Kind,
    /// What is known of it, where that was asked for.
    pub node: Option<Node>,
}
