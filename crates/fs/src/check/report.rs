// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a check of a file system finds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::paths::Reached;

/// Most findings that are reported one by one; of the others only the number is.
const TOLD_MAX: usize = 1000;

/// What is wrong with a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DamageKind {
    /// The superblock is missing or cannot be read. It is made anew.
    DamagedSuperblock,
    /// A number would be given a second time. It will not.
    UsedNumber,
    /// The root directory is missing or is none. It is made anew.
    MissingRoot,
    /// The record of a node cannot be read. It is made anew from what else is known.
    DamagedNode,
    /// Entries, an object or bytes are there without a node. They get one, in `lost+found`.
    MissingNode,
    /// Attributes or marks are there without a node. They are removed.
    StrayPair,
    /// Bytes are with the metadata that belong elsewhere, or are too many.
    WrongContent,
    /// A symbolic link has no target. It is removed.
    MissingTarget,
    /// The object with the bytes of a file is missing. The file is empty from now on, or
    /// removed where the objects decide what there is. Where some of its bytes are there still it is
    /// left alone.
    MissingObject,
    /// An object cannot be looked at, as on a tier that is missing. It is left alone, and its file.
    UnreadableObject,
    /// A file has another length than its object. The object is right.
    WrongLength,
    /// The object of a file is marked for deletion. It is not any more.
    WrongGarbage,
    /// What a node says of its attributes is wrong, or one of them cannot be read.
    WrongAttributes,
    /// Entries of a directory cannot be read. They are removed.
    DamagedEntry,
    /// Entries are those of something that is no directory. They are removed.
    StrayEntry,
    /// An entry has a name that no entry can have. It is removed.
    ImpossibleName,
    /// A name is there twice in a directory. One of them is removed.
    DuplicateName,
    /// An entry is not where its name is looked for. It is moved there.
    MisplacedEntry,
    /// An entry leads to nothing. It is removed.
    DanglingEntry,
    /// An entry says something else than its node about what that is. The node is right.
    WrongEntryKind,
    /// A directory has more than one name. It keeps one.
    ExtraName,
    /// Directories are in each other. One of them comes to `lost+found`.
    Circle,
    /// A node has no name. It gets one, in `lost+found`.
    Unreached,
    /// A node counts its names wrongly.
    WrongLinks,
    /// A directory counts its entries wrongly.
    WrongSize,
    /// A directory says that it is in another one.
    WrongParent,
    /// A node with names is marked as one without.
    WrongNameless,
    /// The record of the servers over which it lies cannot be read. It is left alone.
    DamagedServers,
    /// Names are of an earlier time than the objects, as after a restore that was cut off. The objects
    /// decide.
    RestoredNames,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// What is wrong.
    pub kind: DamageKind,
    /// The node that it is about.
    pub node: u64,
    /// How that is reached, after what was mended.
    #[serde(flatten)]
    pub reached: Reached,
    /// What was found, for people.
    pub detail: String,
}

/// What a check of a file system found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeReport {
    /// Directories.
    pub directories: u64,
    /// All other nodes.
    pub files: u64,
    /// Names in directories.
    pub entries: u64,
    /// Whether objects were compared, too: not where they may be on several servers.
    pub has_objects_checked: bool,
    /// What is wrong: the first thousand.
    pub damages: Vec<Damage>,
    /// How often each kind was found.
    pub counts: BTreeMap<DamageKind, u64>,
    /// Nodes that came to `lost+found`.
    pub adopted: u64,
    /// Pairs and objects that are not those of a file system; they are left alone.
    pub foreign: u64,
}

impl TreeReport {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.counts.is_empty()
    }

    /// How much is wrong.
    pub fn damage_count(&self) -> u64 {
        self.counts.values().sum()
    }

    pub(super) fn add(&mut self, kind: DamageKind, node: u64, detail: String) {
        *self.counts.entry(kind).or_default() += 1;
        if self.damages.len() < TOLD_MAX {
            let reached = Reached::default();
            self.damages.push(Damage { kind, node, reached, detail });
        }
    }
}

impl DamageKind {
    /// The kind as a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::DamagedSuperblock => "damaged-superblock",
            Self::RestoredNames => "restored-names",
            Self::DamagedServers => "damaged-servers",
            Self::UsedNumber => "used-number",
            Self::MissingRoot => "missing-root",
            Self::DamagedNode => "damaged-node",
            Self::MissingNode => "missing-node",
            Self::StrayPair => "stray-pair",
            Self::WrongContent => "wrong-content",
            Self::MissingTarget => "missing-target",
            Self::MissingObject => "missing-object",
            Self::UnreadableObject => "unreadable-object",
            Self::WrongLength => "wrong-length",
            Self::WrongGarbage => "wrong-garbage",
            Self::WrongAttributes => "wrong-attributes",
            Self::DamagedEntry => "damaged-entry",
            Self::StrayEntry => "stray-entry",
            Self::ImpossibleName => "impossible-name",
            Self::DuplicateName => "duplicate-name",
            Self::MisplacedEntry => "misplaced-entry",
            Self::DanglingEntry => "dangling-entry",
            Self::WrongEntryKind => "wrong-entry-kind",
            Self::ExtraName => "extra-name",
            Self::Circle => "circle",
            Self::Unreached => "unreached",
            Self::WrongLinks => "wrong-links",
            Self::WrongSize => "wrong-size",
            Self::WrongParent => "wrong-parent",
            Self::WrongNameless => "wrong-nameless",
        }
    }
}
