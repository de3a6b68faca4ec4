// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How new objects are spread over the servers.

use terrace_core::{Error, Result};

use super::layout::{Layout, PATTERN_MAX, PIECES_MAX, STRIPE_BYTES_MAX};

/// How new objects are spread over the servers. The layout is stored with each object, so that a
/// change of this changes nothing that is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distribution {
    /// Whole, on its home.
    #[default]
    Single,
    /// In stripes over the servers in turn, from the home on.
    RoundRobin {
        /// Length of a stripe.
        stripe_bytes: u64,
    },
    /// In stripes over the servers in proportion to their weights, well mixed.
    Weighted {
        /// Length of a stripe.
        stripe_bytes: u64,
    },
    /// A small head on the home, which is hinted as hot, then stripes over the servers in turn.
    Progressive {
        /// Length of the head.
        head_bytes: u64,
        /// Length of a stripe.
        stripe_bytes: u64,
    },
}

/// Most servers of one object: a head and a piece on each fit a label.
const SERVERS_MAX: usize = PIECES_MAX - 1;

impl Distribution {
    /// # Errors
    ///
    /// `Invalid` for a length of 0, or one that is out of bounds.
    pub(super) fn check(&self) -> Result<()> {
        let bounds = 1..=STRIPE_BYTES_MAX;
        let lengths = match self {
            Distribution::Single => return Ok(()),
            Distribution::RoundRobin { stripe_bytes } | Distribution::Weighted { stripe_bytes } => {
                [*stripe_bytes; 2]
            }
            Distribution::Progressive { head_bytes, stripe_bytes } => [*head_bytes, *stripe_bytes],
        };
        match lengths.into_iter().find(|length| !bounds.contains(length)) {
            None => Ok(()),
            Some(length) => Err(Error::invalid("distribute objects", "a length is out of bounds")
                .with("length_bytes", length)
                .with("length_bytes_max", STRIPE_BYTES_MAX)),
        }
    }

    /// The same with stripes of this length, if there is one.
    pub(super) fn in_pieces_of(self, stripe_bytes: Option<u64>) -> Self {
        let Some(stripe_bytes) = stripe_bytes else { return self };
        match self {
            Distribution::Single => self,
            Distribution::RoundRobin { .. } => Distribution::RoundRobin { stripe_bytes },
            Distribution::Weighted { .. } => Distribution::Weighted { stripe_bytes },
            Distribution::Progressive { head_bytes, .. } => {
                Distribution::Progressive { head_bytes, stripe_bytes }
            }
        }
    }

    /// Bytes that an object may have without any on another server than its home.
    pub(super) fn first_bytes(&self) -> u64 {
        match self {
            Distribution::Single => u64::MAX,
            Distribution::RoundRobin { stripe_bytes } | Distribution::Weighted { stripe_bytes } => {
                *stripe_bytes
            }
            Distribution::Progressive { head_bytes, .. } => *head_bytes,
        }
    }

    /// The layout of a new object over servers with their weights, its home first; `None` where it
    /// lies on its home alone.
    pub(super) fn lay_out(&self, object_id: u128, servers: &[(u128, u32)]) -> Option<Layout> {
        let servers = &servers[..servers.len().min(SERVERS_MAX)];
        let count = servers.len() as u8;
        if count < 2 {
            return None;
        }
        let mut ids: Vec<u128> = servers.iter().map(|(id, _)| *id).collect();
        let (head_bytes, stripe_bytes, pattern) = match *self {
            Distribution::Single => return None,
            Distribution::RoundRobin { stripe_bytes } => (0, stripe_bytes, (0..count).collect()),
            Distribution::Weighted { stripe_bytes } => {
                let weights: Vec<u32> = servers.iter().map(|(_, weight)| *weight).collect();
                (0, stripe_bytes, mixed(&weights))
            }
            Distribution::Progressive { head_bytes, stripe_bytes } => {
                // The head is a piece of its own, so that a policy can keep it apart; the stripes
                // begin on another server.
                ids.insert(0, ids[0]);
                (head_bytes, stripe_bytes, (2..=count).chain([1]).collect())
            }
        };
        let layout = Layout::new(object_id, head_bytes, stripe_bytes, ids, pattern);
        Some(layout.expect("lengths and servers were checked"))
    }
}

/// Pieces in proportion to their weights, each as evenly spread as can be, from piece 0 on.
///
/// In each step every piece earns its weight, and the richest is chosen and pays for all (smooth
/// weighted round-robin, as in nginx since 1.3.1).
fn mixed(weights: &[u32]) -> Vec<u8> {
    let shares = scaled(weights);
    let total: i64 = shares.iter().sum();
    let mut earned = vec![0; shares.len()];
    let mut pattern = Vec::new();
    for _ in 0..total {
        for (earned, share) in earned.iter_mut().zip(&shares) {
            *earned += share;
        }
        let richest = (0..earned.len()).rev().max_by_key(|piece| earned[*piece]);
        let richest = richest.expect("there are pieces");
        earned[richest] -= total;
        pattern.push(richest as u8);
    }
    // The first bytes are to be on the home.
    let home = pattern.iter().position(|piece| *piece == 0).expect("no share is zero");
    pattern.rotate_left(home);
    pattern
}

/// The weights as shares of a pattern that is not too long, none of them zero.
fn scaled(weights: &[u32]) -> Vec<i64> {
    let divisor = weights.iter().copied().fold(0, greatest_common_divisor).max(1);
    let shares: Vec<i64> = weights.iter().map(|weight| i64::from(weight / divisor)).collect();
    let total: i64 = shares.iter().sum();
    // Each share may be rounded up by one.
    let room = (PATTERN_MAX - weights.len()) as i64;
    if total <= PATTERN_MAX as i64 {
        return shares;
    }
    shares.iter().map(|share| (share * room / total).max(1)).collect()
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_mixed_in_proportion() {
        assert_eq!(mixed(&[1, 1, 1]), [0, 1, 2]);
        assert_eq!(mixed(&[2, 4]), [0, 1, 1]);
        assert_eq!(mixed(&[5, 1, 1]), [0, 0, 1, 0, 2, 0, 0]);
        for weights in [vec![1000, 1, 999], vec![7; 16], vec![1000, 3], (1..17).collect()] {
            let pattern = mixed(&weights);
            assert!(pattern.len() <= PATTERN_MAX, "{weights:?}");
            assert_eq!(pattern[0], 0);
            let total: u32 = weights.iter().sum();
            for (piece, weight) in weights.iter().enumerate() {
                let count = pattern.iter().filter(|other| **other == piece as u8).count();
                let share = f64::from(*weight) * pattern.len() as f64 / f64::from(total);
                // One for the rounding of each, and one for a share that must not be zero.
                assert!(
                    (count as f64 - share).abs() < 2.0 + share / 7.0,
                    "{weights:?} {pattern:?}"
                );
                assert!(count > 0);
            }
        }
    }

    #[test]
    fn each_distribution_has_its_layout() {
        let servers: Vec<_> = (1..=40).map(|id| (id, 1)).collect();
        let even = Distribution::RoundRobin { stripe_bytes: 10 };
        let (head_bytes, stripe_bytes) = (3, 10);
        let head = Distribution::Progressive { head_bytes, stripe_bytes };
        assert_eq!(Distribution::Single.lay_out(0, &servers), None);
        assert_eq!(even.lay_out(0, &servers[..1]), None, "one server has everything");
        for distribution in [even, Distribution::Weighted { stripe_bytes }, head] {
            distribution.check().expect("legal");
            let layout = distribution.lay_out(0, &servers).expect("over several");
            assert_eq!(layout.servers()[0], 1, "the home");
            let server = |offset| layout.servers()[layout.run_at(offset).piece];
            let first_bytes = distribution.first_bytes();
            assert!((0..first_bytes).all(|offset| server(offset) == 1));
            assert_ne!(server(first_bytes), 1);
            assert_eq!(layout.servers().last(), Some(&16), "as many as fit a label");
        }
        assert!(Distribution::RoundRobin { stripe_bytes: 0 }.check().is_err());
        assert!(Distribution::Progressive { head_bytes: 0, stripe_bytes }.check().is_err());
    }
}
