// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traces and listings of other programs.

use std::io::Cursor;

use terrace_backends::s3_fuzzing::names_of_listing;
use terrace_core::ErrorKind;
use terrace_replay::{Columns, Format, Options, Trace};

use crate::input::Input;

/// Any file is read to its end, or refused with a reason. The first byte chooses the format, which
/// otherwise is recognised, or columns.
pub(crate) fn trace(input: &[u8]) -> bool {
    let mut input = Input::new(input);
    let choice = input.choice(Format::ALL.len() + 2);
    let columns = (choice == Format::ALL.len())
        .then(|| Columns::parse("id=2,size=1,time=3").expect("as users are to write it"));
    let format = Format::ALL.get(choice).copied();
    let options = Options { format, columns, ..Options::default() };
    let stream = Box::new(Cursor::new(input.rest().to_vec()));
    let mut requests = Vec::new();
    let mut count = 0;
    let read = Trace::from_stream(stream, "input", &options).and_then(|mut trace| {
        loop {
            trace.read(&mut requests)?;
            if requests.is_empty() {
                return Ok(());
            }
            count += requests.len();
        }
    });
    if let Err(error) = read {
        let kinds = [ErrorKind::Corrupt, ErrorKind::Invalid, ErrorKind::Unsupported];
        assert!(kinds.contains(&error.kind()), "{error}");
    }
    count > 0
}

/// A page of a bucket's listing is refused, or brings names that are no longer than what they were read from.
pub(crate) fn listing(input: &[u8]) -> bool {
    let text = String::from_utf8_lossy(input);
    let listed = ["", "sets/"].map(|prefix| names_of_listing(&text, prefix));
    for names in listed.iter().flatten() {
        let bytes: usize = names.iter().map(String::len).sum();
        assert!(bytes <= text.len(), "{names:?}");
    }
    // What begins with the prefix is listed without one, too.
    assert!(listed[1].is_none() || listed[0].is_some());
    listed[0].is_some()
}
