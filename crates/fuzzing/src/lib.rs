// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What must hold for any bytes that a decoder is given.
//!
//! [`TARGETS`] has a line for each: `make fuzz` searches for inputs that break it, guided by
//! coverage, and `tests/short.rs` tries the corpus and mutations of it. A target takes bytes and
//! panics where a promise is broken. `docs/how-to/fuzzing.md` tells how to add one.

mod backup;
mod configuration;
mod control;
mod files;
mod foreign;
mod fuse;
mod input;
mod items;
mod logs;
mod mutate;
mod names;
mod policies;
mod records;
mod trace;
mod units;
mod wire;

pub use mutate::Mutator;

/// What must hold for any bytes that one decoder, or a few that belong together, are given.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: of its corpus, too.
    pub name: &'static str,
    /// Gives the bytes to the decoder and panics where it breaks a promise. Returns whether they
    /// were taken for something.
    pub run: fn(&[u8]) -> bool,
    /// Most memory that it may take at a time for an empty input, …
    pub base_bytes: u64,
    /// … and for each byte of the input besides.
    pub bytes_per_byte: u64,
    /// Mutated inputs that an ordinary test run tries.
    pub mutations: u32,
}

/// Every target; the corpus of each is in `corpus/NAME`.
pub const TARGETS: &[Target] = &[
    target("name", names::name, 16 << 10, 32, 20_000),
    target("path", names::path, 16 << 10, 32, 20_000),
    target("unit", units::unit, 16 << 10, 32, 20_000),
    // Each value of the text becomes a node of a tree.
    target("configuration", configuration::configuration, 256 << 10, 4096, 20_000),
    target("catalog-record", records::catalog, 16 << 10, 64, 20_000),
    target("file-identity", records::identity, 16 << 10, 32, 20_000),
    target("file-superblock", records::superblock, 16 << 10, 32, 20_000),
    // Reading takes a step at a time, and a frame has 16 KiB at most.
    target("frames", records::frames, 4 << 20, 512, 5_000),
    target("layout", records::layout, 16 << 10, 64, 20_000),
    target("item-record", items::record, 16 << 10, 32, 20_000),
    target("item-place", items::place, 16 << 10, 32, 20_000),
    target("backup", backup::backup, 256 << 10, 256, 20_000),
    target("catalog-log", logs::log, 256 << 10, 512, 20_000),
    // A block has 64 KiB, and a search behind damage looks at twice as many at a time. A record of
    // a few bytes takes a hundred.
    target("trace-file", trace::file, 1 << 20, 512, 5_000),
    target("trace-blocks", trace::blocks, 64 << 20, 4096, 5_000),
    // Gzip packs a thousand to one, and what is not in the order of time is sorted in memory.
    target("foreign-trace", foreign::trace, 2 << 20, 64 << 10, 5_000),
    // Names are copied into strings and these into lists.
    target("bucket-listing", foreign::listing, 64 << 10, 64, 20_000),
    target("control-calls", control::calls, 128 << 20, 4096, 150),
    // A frame may announce 1 MiB of head and 256 KiB of payload before it brings them, and what is
    // read ahead has 16 KiB.
    target("wire-frames", wire::frames, 2 << 20, 256, 10_000),
    // An operation of two bytes takes some hundred.
    target("wire-operations", wire::operations, 16 << 10, 1024, 20_000),
    target("wire-outcomes", wire::outcomes, 16 << 10, 1024, 20_000),
    target("wire-greeting", wire::greeting, 64 << 10, 256, 20_000),
    // Counts the client only; the server has its own bounds.
    target("wire-session", wire::session, 32 << 20, 4096, 150),
    target("fuse-request", fuse::request, 16 << 10, 64, 20_000),
    target("files-servers", files::servers, 256 << 10, 256, 10_000),
    // A file system is made for each input, and a request for numbers of a few bytes brings 4096.
    target("files-requests", files::requests, 16 << 20, 4096, 2_000),
    target("policy-state", policies::state, 512 << 10, 256, 10_000),
    target("policy-message", policies::message, 512 << 10, 256, 10_000),
    target("policy-parameter", policies::parameter, 512 << 10, 256, 10_000),
];

const fn target(
    name: &'static str,
    run: fn(&[u8]) -> bool,
    base_bytes: u64,
    bytes_per_byte: u64,
    mutations: u32,
) -> Target {
    Target { name, run, base_bytes, bytes_per_byte, mutations }
}

impl Target {
    /// The target of this name.
    pub fn find(name: &str) -> Option<&'static Target> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// Runs the target and looks at the memory that it takes. Returns whether the bytes were taken
    /// for something.
    ///
    /// # Panics
    ///
    /// Where a promise is broken.
    pub fn check(&self, input: &[u8]) -> bool {
        let mut is_taken = false;
        let used = allocation_counter::measure(|| is_taken = (self.run)(input));
        let most_bytes = self.base_bytes + self.bytes_per_byte * input.len() as u64;
        assert!(
            used.bytes_max <= most_bytes,
            "{} bytes of memory for {} bytes of input; at most {most_bytes} were expected",
            used.bytes_max,
            input.len(),
        );
        is_taken
    }
}
