// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The short form of fuzzing: every target over its corpus, and over mutations of it by seed.
//!
//! `TERRACE_SEED=7` replays the mutations of one seed, `TERRACE_SEEDS=100` tries that many from
//! `TERRACE_SEED_FIRST` on; `TERRACE_TARGET=name` takes one target only.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use terrace_fuzzing::{Mutator, TARGETS, Target};
use terrace_testkit::seeds;

/// Those that were asked for.
fn targets() -> Vec<&'static Target> {
    match std::env::var("TERRACE_TARGET") {
        Ok(name) => vec![Target::find(&name).expect("there is a target of this name")],
        Err(_) => TARGETS.iter().collect(),
    }
}

fn corpus_directory(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

/// The corpus, by the names of its files: the same on every machine.
fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let directory = corpus_directory(target);
    let entries =
        fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut inputs: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("readable").path();
            (path.display().to_string(), fs::read(&path).expect("readable"))
        })
        .collect();
    inputs.sort();
    inputs
}

fn check(target: &Target, origin: &str, input: &[u8]) -> bool {
    catch_unwind(AssertUnwindSafe(|| target.check(input))).unwrap_or_else(|_| {
        panic!("the target {} fails on {origin}: b\"{}\"", target.name, input.escape_ascii())
    })
}

#[test]
fn every_target_holds_over_its_corpus() {
    for target in targets() {
        let corpus = corpus(target);
        let taken = corpus.iter().filter(|(name, input)| check(target, name, input)).count();
        assert!(taken > 0, "nothing in the corpus of {} is legal", target.name);
        check(target, "nothing", &[]);
    }
}

#[test]
fn every_target_holds_over_mutations_of_its_corpus() {
    for target in targets() {
        let corpus: Vec<_> = corpus(target).into_iter().map(|(_, input)| input).collect();
        for seed in seeds(1) {
            let mut mutator = Mutator::new(&corpus, seed);
            let mut taken = 0;
            for number in 0..target.mutations {
                let origin = format!("mutation {number} of seed {seed}");
                taken += u32::from(check(target, &origin, &mutator.make()));
            }
            println!("{}: {taken} of {} inputs were taken", target.name, target.mutations);
            assert!(taken > 0, "no mutation gets past the first check");
        }
    }
}

#[test]
fn every_corpus_has_a_target() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for entry in fs::read_dir(directory).expect("it is there") {
        let name = entry.expect("readable").file_name();
        let name = name.to_str().expect("an ASCII name");
        assert!(Target::find(name).is_some(), "nothing reads the corpus {name}");
    }
}
