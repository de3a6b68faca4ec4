// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Inputs that are like those of a corpus, by chance from a seed.

use terrace_core::Random;

/// Longest input.
const INPUT_BYTES_MAX: usize = 64 << 10;

/// Numbers at which decoders go wrong.
const NUMBERS: [u64; 10] =
    [0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 63, u64::MAX];

/// Makes inputs out of those of a corpus.
#[derive(Debug)]
pub struct Mutator<'a> {
    corpus: &'a [Vec<u8>],
    random: Random,
}

impl<'a> Mutator<'a> {
    /// Starts the sequence of a seed.
    ///
    /// # Panics
    ///
    /// Where there is no corpus.
    pub fn new(corpus: &'a [Vec<u8>], seed: u64) -> Self {
        assert!(!corpus.is_empty(), "mutations need something to mutate");
        Self { corpus, random: Random::new(seed) }
    }

    /// The next input.
    pub fn make(&mut self) -> Vec<u8> {
        let mut input = self.pick().to_vec();
        for _ in 0..1 + self.random.below(4) {
            self.change(&mut input);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn pick(&mut self) -> &'a [u8] {
        &self.corpus[self.below(self.corpus.len())]
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        let end = at + self.below(input.len() - at + 1).min(32);
        match self.random.below(8) {
            0 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << self.random.below(8);
                }
            }
            1 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = self.random.next_u64() as u8;
                }
            }
            2 => {
                let number = NUMBERS[self.below(NUMBERS.len())].to_le_bytes();
                let width = 1 << self.random.below(4);
                for (byte, new) in input[at..].iter_mut().zip(&number[..width]) {
                    *byte = *new;
                }
            }
            3 => drop(input.drain(at..end)),
            4 => input.truncate(at),
            5 => {
                let again = input[at..end].to_vec();
                input.splice(at..at, again);
            }
            6 => {
                let byte = self.random.next_u64() as u8;
                input.insert(at, byte);
            }
            _ => {
                let other = self.pick();
                let from = self.below(other.len() + 1);
                let to = from + self.below(other.len() - from + 1);
                input.splice(at..end, other[from..to].iter().copied());
            }
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_sequence_of_different_inputs() {
        let corpus = [b"namespace/name".to_vec(), Vec::new()];
        let inputs = |seed| {
            let mut mutator = Mutator::new(&corpus, seed);
            (0..100).map(|_| mutator.make()).collect::<Vec<_>>()
        };
        assert_eq!(inputs(7), inputs(7));
        let mut different = inputs(7);
        different.sort();
        different.dedup();
        assert!(different.len() > 50, "{}", different.len());
    }
}
