// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The axes of the semantics, each with its words and its codes.

use std::fmt;
use std::str::FromStr;

use crate::{ATOMIC_BYTES_MAX, Error, ErrorKind, Result};

/// Defines an axis: its values with the codes that formats use and the words that people use.
macro_rules! axis {
    (
        $(#[$about:meta])*
        $name:ident, $operation:literal {
            $($(#[$about_value:meta])* $value:ident = $code:literal, $word:literal;)+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$about_value])* $value = $code,)+
        }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$value),+];

            /// The word used in configuration, commands and benchmark rows.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }

            /// The number used in formats; it never changes.
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// The value with this number; `None` for one that this version does not know.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$value),)+
                    _ => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                Self::ALL.iter().copied().find(|value| value.word() == text).ok_or_else(|| {
                    let words: Vec<_> = Self::ALL.iter().map(|value| value.word()).collect();
                    let reason = format!("one of {} is expected", words.join(", "));
                    Error::invalid($operation, reason).with("value", text)
                })
            }
        }
    };
}

axis! {
    /// What others see of operations while they are carried out; a stronger one is greater.
    #[derive(PartialOrd, Ord)]
    Atomicity, "read an atomicity" {
        /// Any part of an operation may be seen before the rest.
        #[default]
        None = 0, "none";
        /// An operation on one object is seen whole or not at all by all others that ask for this,
        /// also when its caller dies in between. It has at most
        /// [`ATOMIC_BYTES_MAX`] bytes of data.
        Operation = 1, "operation";
        /// A batch is seen whole or not at all.
        Batch = 2, "batch";
    }
}

impl Atomicity {
    /// Refuses more data than one operation may have that is to be seen whole.
    ///
    /// # Errors
    ///
    /// `Unsupported` above [`ATOMIC_BYTES_MAX`].
    pub fn check_bytes(self, operation: &'static str, bytes: usize) -> Result<()> {
        if self == Atomicity::None || bytes <= ATOMIC_BYTES_MAX {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unsupported, operation)
            .because("an operation with so many bytes cannot be seen whole; make several of it")
            .with("bytes", bytes)
            .with("bytes_max", ATOMIC_BYTES_MAX))
    }
}

axis! {
    /// What an application promises about accesses to one object at the same time.
    Concurrency, "read a concurrency" {
        /// Nothing: they may touch the same bytes.
        #[default]
        Overlapping = 0, "overlapping";
        /// They touch different bytes, unless all of them read.
        NonOverlapping = 1, "non-overlapping";
        /// There are none.
        None = 2, "none";
    }
}

axis! {
    /// When others see what was acknowledged.
    Consistency, "read a consistency" {
        /// At once.
        #[default]
        Immediate = 0, "immediate";
        /// The writer at once; others once they open the object anew after it was closed.
        Session = 1, "session";
        /// At some time.
        Eventual = 2, "eventual";
    }
}

axis! {
    /// In which order the operations of a batch take effect.
    BatchOrdering, "read an ordering" {
        /// Those on one object in the order given, others in any.
        #[default]
        Relaxed = 0, "relaxed";
        /// All in the order given: each begins after the one before has ended, well or not.
        Strict = 1, "strict";
    }
}

axis! {
    /// What an acknowledged operation survives; a stronger one is greater.
    #[derive(PartialOrd, Ord)]
    Persistency, "read a persistency" {
        /// May be lost by a crash of the process.
        None = 0, "none";
        /// Survives a crash of the process, not a loss of power.
        #[default]
        Process = 1, "process";
        /// Survives a loss of power: data, catalog and directories are on stable storage.
        Storage = 2, "storage";
        /// Survives the loss of the machine: data and catalog are on storage that other machines
        /// reach. Only tiers give it so far; no store promises it to an object.
        Shared = 3, "shared";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_codes_name_each_value() {
        macro_rules! check {
            ($($name:ident)+) => {$(
                assert!($name::ALL.contains(&$name::default()));
                for (index, value) in $name::ALL.iter().enumerate() {
                    assert_eq!(usize::from(value.code()), index);
                    assert_eq!($name::from_code(value.code()), Some(*value));
                    assert_eq!(value.to_string().parse::<$name>().expect("its word"), *value);
                }
                assert_eq!($name::from_code($name::ALL.len() as u8), None);
            )+};
        }
        check!(Atomicity Concurrency Consistency BatchOrdering Persistency);
    }

    /// Formats hold these numbers.
    #[test]
    fn codes_stay() {
        assert_eq!(
            Atomicity::ALL.iter().map(|one| one.word()).collect::<Vec<_>>(),
            ["none", "operation", "batch"]
        );
        assert_eq!(Concurrency::from_code(1), Some(Concurrency::NonOverlapping));
        assert_eq!(Consistency::from_code(1), Some(Consistency::Session));
        assert_eq!(BatchOrdering::from_code(1), Some(BatchOrdering::Strict));
        assert_eq!(Persistency::from_code(2), Some(Persistency::Storage));
        assert_eq!(Persistency::from_code(3), Some(Persistency::Shared));
    }

    #[test]
    fn an_unknown_word_is_told_the_known_ones() {
        let error = "disk".parse::<Persistency>().expect_err("no level").to_string();
        assert!(error.contains("one of none, process, storage, shared"), "{error}");
        assert!(error.contains("value=disk"), "{error}");
    }

    #[test]
    fn atomicity_and_persistency_order_by_strength() {
        assert!(Atomicity::None < Atomicity::Operation && Atomicity::Operation < Atomicity::Batch);
        assert!(Persistency::None < Persistency::Process);
        assert!(Persistency::Process < Persistency::Storage);
        assert!(Persistency::Storage < Persistency::Shared);
    }
}
