// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of the kernel to a file system that is a program.

use terrace_fuse::{Decoded, InitFlags, Operation, decode};

use crate::input::Input;

/// A message is read, or refused with a reason; its names lead nowhere else, and one that is cut
/// short does not mean something else.
pub(crate) fn request(input: &[u8]) -> bool {
    let mut input = Input::new(input);
    let flags = [InitFlags::NONE, InitFlags::SETXATTR_EXT][input.choice(2)];
    let message = with_length(input.rest());
    let decoded = match decode(&message, flags) {
        Ok(decoded) => decoded,
        Err(malformed) => {
            assert!(!malformed.reason.is_empty());
            return false;
        }
    };
    if let Decoded::Request(request) = &decoded {
        look_at_names(&request.operation);
        if let Operation::BatchForget(forgets) = &request.operation {
            assert!(forgets.clone().count() * 16 <= message.len());
        }
        let meaning = format!("{:?}", request.operation);
        let short = with_length(&message[..message.len() - 1]);
        if let Ok(Decoded::Request(short)) = decode(&short, flags) {
            let short_meaning = format!("{:?}", short.operation);
            assert_eq!(short_meaning, meaning, "only what nobody reads may be missing");
        }
    }
    !matches!(decoded, Decoded::Unknown { .. })
}

/// The message with its length in its first field, which chance would hardly hit.
fn with_length(message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    if let Some(field) = message.first_chunk_mut() {
        *field = length.to_ne_bytes();
    }
    message
}

fn look_at_names(operation: &Operation<'_>) {
    let names = match operation {
        Operation::Lookup { name }
        | Operation::MkNod { name, .. }
        | Operation::MkDir { name, .. }
        | Operation::SymLink { name, .. }
        | Operation::Create { name, .. }
        | Operation::Unlink { name }
        | Operation::RmDir { name } => vec![name],
        Operation::Link { new_name, .. } => vec![new_name],
        Operation::Rename { name, new_name, .. } => vec![name, new_name],
        _ => return,
    };
    for name in names {
        assert!(!name.is_empty());
        assert!(!name.contains(&b'/') && !name.contains(&0), "{}", name.escape_ascii());
    }
}
