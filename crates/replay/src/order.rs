// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The orders in which a cache may give up objects, by name.

use std::fmt;

use terrace_core::{Error, Result};

/// An order in which a cache gives up objects. `docs/reference/replay.md` defines each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// First in, first out.
    Fifo,
    /// Least recently used.
    Lru,
    /// First in, first out, with a second chance.
    Clock,
    /// A hand that passes by what was used.
    Sieve,
    /// Three queues, version 2.
    S3Fifo,
    /// Three queues, version 1.
    S3FifoV1,
    /// Recency and frequency, adaptively.
    Arc,
    /// Two queues, the full version.
    TwoQ,
    /// Least frequently used.
    Lfu,
    /// Greedy dual by size and frequency.
    Gdsf,
    /// A window and admission by frequency.
    WTinyLfu,
    /// What is needed again last, which only a replay knows.
    Belady,
}

impl Order {
    /// All of them.
    pub const ALL: [Order; 12] = [
        Order::Fifo,
        Order::Lru,
        Order::Clock,
        Order::Sieve,
        Order::S3Fifo,
        Order::S3FifoV1,
        Order::Arc,
        Order::TwoQ,
        Order::Lfu,
        Order::Gdsf,
        Order::WTinyLfu,
        Order::Belady,
    ];

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Order::Fifo => "fifo",
            Order::Lru => "lru",
            Order::Clock => "clock",
            Order::Sieve => "sieve",
            Order::S3Fifo => "s3-fifo",
            Order::S3FifoV1 => "s3-fifo-v1",
            Order::Arc => "arc",
            Order::TwoQ => "2q",
            Order::Lfu => "lfu",
            Order::Gdsf => "gdsf",
            Order::WTinyLfu => "w-tinylfu",
            Order::Belady => "belady",
        }
    }

    /// The order with this word.
    ///
    /// # Errors
    ///
    /// `Invalid`, with all words.
    pub fn from_word(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|order| order.word() == word).ok_or_else(|| {
            let words = Self::ALL.map(Self::word).join(", ");
            let reason = format!("the cache model has no such policy; it has {words}");
            Error::invalid("choose the policy", reason).with("policy", word)
        })
    }

    /// Whether it has to know what comes.
    pub(crate) fn needs_future(self) -> bool {
        self == Order::Belady
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
