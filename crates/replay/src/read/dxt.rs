// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Darshan's extended traces, as `darshan-dxt-parser` prints them.
//!
//! A file is an object. Accesses through MPI-IO are left out where there are such of POSIX, because
//! they appear there again.

use terrace_core::Result;

use super::sorted::Sorted;
use crate::input::Input;
use crate::request::{Operation, Request};

const FILE_SIGN: &[u8] = b"# DXT, file_id:";
const SIGNS: [&[u8]; 3] = [FILE_SIGN, b"# darshan log version:", b"# DXT_"];

/// Whether a line is one that only such files have.
pub(crate) fn is_sign(line: &[u8]) -> bool {
    SIGNS.iter().any(|sign| line.starts_with(sign))
}

pub(super) fn read(mut input: Input) -> Result<Sorted> {
    let (mut posix, mut mpi) = (Sorted::default(), Sorted::default());
    let (mut posix_count, mut mpi_count) = (0u64, 0u64);
    let mut file = None;
    while let Some(line) = input.line()? {
        let line = line.trim_ascii();
        if let Some(rest) = line.strip_prefix(FILE_SIGN) {
            let id = rest.split(|byte| *byte == b',').next().and_then(number);
            let Some(id) = id else { return Err(input.wrong("the id of the file is no number")) };
            file = Some(id);
            let name = rest.split(|byte| *byte == b',').find_map(|part| {
                Some(part.trim_ascii().strip_prefix(b"file_name:")?.trim_ascii().to_vec())
            });
            if let Some(name) = name.filter(|name| !name.is_empty()) {
                posix.name(id, &name);
                mpi.name(id, &name);
            }
            continue;
        }
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let access = match file {
            Some(file) => access(line, file),
            None => Err("an access comes before the line that names its file"),
        };
        match access.map_err(|reason| input.wrong(reason))? {
            (true, request) => {
                posix_count += 1;
                posix.push(request)?;
            }
            (false, request) => {
                mpi_count += 1;
                mpi.push(request)?;
            }
        }
    }
    if posix_count == 0 {
        return Ok(mpi.finish(Vec::new()));
    }
    let note = format!(
        "{mpi_count} accesses through MPI-IO are left out: they appear again as those of POSIX"
    );
    Ok(posix.finish(if mpi_count > 0 { vec![note] } else { Vec::new() }))
}

/// An access, and whether it is one of POSIX: module, rank, what, number, offset, length, start, end
/// and, on Lustre, targets.
fn access(line: &[u8], file: u64) -> Result<(bool, Request), &'static str> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let mut word = || words.next().ok_or("an access has fewer than eight columns");
    let is_posix = match word()? {
        b"X_POSIX" => true,
        b"X_MPIIO" => false,
        _ => return Err("the module is neither X_POSIX nor X_MPIIO"),
    };
    let rank = number(word()?).ok_or("the rank is no number")?;
    let operation = match word()? {
        b"read" => Operation::Read,
        b"write" => Operation::Write,
        _ => return Err("an access is neither a read nor a write"),
    };
    number(word()?).ok_or("the number of the segment is none")?;
    let offset_bytes = match word()? {
        // Collective accesses of MPI-IO do not tell.
        b"N/A" if !is_posix => 0,
        offset => number(offset).ok_or("the offset is no number")?,
    };
    let length_bytes = number(word()?).ok_or("the length is no number")?;
    let time_ns = super::csv::seconds(word()?).ok_or("the start is no time")?;
    let end_ns = super::csv::seconds(word()?).ok_or("the end is no time")?;
    let client = u32::try_from(rank).map_err(|_| "the rank is too large")?;
    let request = Request {
        time_ns,
        object: file,
        size_bytes: 0,
        offset_bytes,
        length_bytes,
        client,
        latency_ns: end_ns.saturating_sub(time_ns),
        operation,
    };
    Ok((is_posix, request))
}

fn number(word: &[u8]) -> Option<u64> {
    super::csv::whole(word.trim_ascii())
}
