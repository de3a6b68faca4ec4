// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;

/// A message of the kernel.
struct Message {
    opcode: u32,
    node: u64,
    body: Vec<u8>,
    extensions: Vec<u8>,
}

impl Message {
    fn new(opcode: u32) -> Self {
        Self { opcode, node: 5, body: Vec::new(), extensions: Vec::new() }
    }

    fn u32(mut self, value: u32) -> Self {
        self.body.extend(value.to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.body.extend(value.to_ne_bytes());
        self
    }

    fn put(mut self, bytes: &[u8]) -> Self {
        self.body.extend(bytes);
        self
    }

    fn extension(mut self, kind: u32, content: &[u32]) -> Self {
        let bytes = (8 + content.len() * 4).next_multiple_of(8);
        let end = self.extensions.len() + bytes;
        self.extensions.extend((bytes as u32).to_ne_bytes());
        self.extensions.extend(kind.to_ne_bytes());
        content.iter().for_each(|number| self.extensions.extend(number.to_ne_bytes()));
        self.extensions.resize(end, 0);
        self
    }

    /// As it comes from the device: with unique 9, of user 1, group 2 and process 3.
    fn bytes(&self) -> Vec<u8> {
        let length = 40 + self.body.len() + self.extensions.len();
        let mut bytes = Vec::new();
        bytes.extend((length as u32).to_ne_bytes());
        bytes.extend(self.opcode.to_ne_bytes());
        bytes.extend(9_u64.to_ne_bytes());
        bytes.extend(self.node.to_ne_bytes());
        [1_u32, 2, 3].iter().for_each(|number| bytes.extend(number.to_ne_bytes()));
        bytes.extend(((self.extensions.len() / 8) as u16).to_ne_bytes());
        bytes.extend([0; 2]);
        bytes.extend(&self.body);
        bytes.extend(&self.extensions);
        bytes
    }

    /// What is decoded, as text: every field of it is to be right.
    fn decoded(&self) -> String {
        self.decoded_with(InitFlags::NONE)
    }

    fn decoded_with(&self, flags: InitFlags) -> String {
        match decode(&self.bytes(), flags).expect("is well formed") {
            Decoded::Request(request) => {
                assert_eq!((request.unique, request.node), (9, self.node));
                assert_eq!((request.uid, request.gid, request.pid), (1, 2, 3));
                format!("{:?}", request.operation)
            }
            other => format!("{other:?}"),
        }
    }

    fn refused(&self) -> &'static str {
        let malformed = decode(&self.bytes(), InitFlags::NONE).expect_err("is malformed");
        assert_eq!((malformed.unique, malformed.opcode), (9, self.opcode));
        malformed.reason
    }
}

fn operation(bytes: &[u8]) -> Operation<'_> {
    match decode(bytes, InitFlags::NONE) {
        Ok(Decoded::Request(request)) => request.operation,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_operation_is_read_field_by_field() {
    let cases = [
        (Message::new(1).put(b"a\0"), "Lookup { name: [97] }"),
        (Message::new(2).u64(7), "Forget { count: 7 }"),
        (Message::new(3).u32(0).u32(0).u64(8), "GetAttr { handle: None }"),
        (Message::new(3).u32(1).u32(0).u64(8), "GetAttr { handle: Some(8) }"),
        (
            Message::new(52).u32(1).u32(0).u64(8).u32(0x4000).u32(0xfff),
            "Statx { handle: Some(8), flags: 16384, mask: 4095 }",
        ),
        (Message::new(5), "ReadLink"),
        (Message::new(6).put(b"a\0b/c\0"), "SymLink { name: [97], target: [98, 47, 99] }"),
        (
            Message::new(8).u32(0o100_644).u32(259).u32(0o22).u32(0).put(b"a\0"),
            "MkNod { name: [97], mode: 33188, device: 259, umask: 18 }",
        ),
        (
            Message::new(9).u32(0o755).u32(0o22).put(b"a\0"),
            "MkDir { name: [97], mode: 493, umask: 18 }",
        ),
        (Message::new(10).put(b"a\0"), "Unlink { name: [97] }"),
        (Message::new(11).put(b"a\0"), "RmDir { name: [97] }"),
        (
            Message::new(12).u64(6).put(b"a\0b\0"),
            "Rename { name: [97], new_parent: 6, new_name: [98], flags: 0 }",
        ),
        (
            Message::new(45).u64(6).u32(2).u32(0).put(b"a\0b\0"),
            "Rename { name: [97], new_parent: 6, new_name: [98], flags: 2 }",
        ),
        (Message::new(13).u64(6).put(b"a\0"), "Link { target: 6, new_name: [97] }"),
        (Message::new(14).u32(2).u32(1), "Open { flags: 2, kills_suid_sgid: true }"),
        (
            Message::new(35).u32(65).u32(0o100_600).u32(0o22).u32(0).put(b"a\0"),
            "Create { name: [97], flags: 65, mode: 33152, umask: 18, kills_suid_sgid: false }",
        ),
        (
            Message::new(51).u32(2).u32(0o100_600).u32(0o22).u32(0).put(b"/\0"),
            "TmpFile { flags: 2, mode: 33152, umask: 18 }",
        ),
        (
            Message::new(15).u64(8).u64(4096).u32(512).u32(2).u64(77).u32(3).u32(0),
            "Read { handle: 8, offset: 4096, bytes: 512, flags: 3, lock_owner: Some(77) }",
        ),
        (
            Message::new(16).u64(8).u64(4096).u32(2).u32(5).u64(77).u32(3).u32(0).put(b"xy"),
            "Write { handle: 8, offset: 4096, data: [120, 121], flags: 3, lock_owner: None, \
             is_from_cache: true, kills_suid_sgid: true }",
        ),
        (Message::new(17), "StatFs"),
        (
            Message::new(18).u64(8).u32(3).u32(2).u64(77),
            "Release { handle: 8, flags: 3, lock_owner: 77, ends_flock: true }",
        ),
        (Message::new(20).u64(8).u32(1).u32(0), "Fsync { handle: 8, is_data_only: true }"),
        (
            Message::new(22).u32(64).u32(0).put(b"u.a/b\0"),
            "GetXattr { name: [117, 46, 97, 47, 98], bytes: 64 }",
        ),
        (Message::new(23).u32(64).u32(0), "ListXattr { bytes: 64 }"),
        (Message::new(24).put(b"a\0"), "RemoveXattr { name: [97] }"),
        (Message::new(25).u64(8).u32(0).u32(0).u64(77), "Flush { handle: 8, lock_owner: 77 }"),
        (Message::new(27).u32(3).u32(0), "OpenDir { flags: 3 }"),
        (
            Message::new(28).u64(8).u64(4).u32(512).u32(0).u64(0).u32(0).u32(0),
            "ReadDir { handle: 8, offset: 4, bytes: 512 }",
        ),
        (
            Message::new(44).u64(8).u64(4).u32(512).u32(0).u64(0).u32(0).u32(0),
            "ReadDirPlus { handle: 8, offset: 4, bytes: 512 }",
        ),
        (Message::new(29).u64(8).u32(0).u32(0).u64(0), "ReleaseDir { handle: 8 }"),
        (Message::new(30).u64(8).u32(0).u32(0), "FsyncDir { handle: 8, is_data_only: false }"),
        (Message::new(34).u32(4).u32(0), "Access { mask: 4 }"),
        (
            Message::new(43).u64(8).u64(4).u64(6).u32(3).u32(0),
            "Fallocate { handle: 8, offset: 4, length: 6, mode: 3 }",
        ),
        (Message::new(46).u64(8).u64(4).u32(3).u32(0), "Seek { handle: 8, offset: 4, whence: 3 }"),
        (
            Message::new(39).u64(8).u32(16).u32(0x1234).u64(5).u32(2).u32(64).put(b"in"),
            "Ioctl { handle: 8, command: 4660, argument: 5, input: [105, 110], \
             output_bytes_max: 64, is_directory: true }",
        ),
        (Message::new(50).u64(0), "SyncFs"),
        (Message::new(36).u64(4), "Interrupt { interrupted: 4 }"),
        (Message::new(38), "Destroy { unique: 9 }"),
        (Message::new(40).u64(1).u64(2), "Unknown { unique: 9, opcode: 40 }"),
        (Message::new(u32::MAX), "Unknown { unique: 9, opcode: 4294967295 }"),
    ];
    for (message, expected) in cases {
        assert_eq!(message.decoded(), expected);
        // A message that ends too early is refused, wherever it ends.
        for length in 0..message.body.len() {
            let short =
                Message { body: message.body[..length].to_vec(), ..Message::new(message.opcode) };
            if let Ok(Decoded::Request(request)) = decode(&short.bytes(), InitFlags::NONE) {
                // Only padding was missing, or what is never read.
                assert_eq!(format!("{:?}", request.operation), expected);
            }
        }
    }
}

#[test]
fn attributes_are_changed_where_their_bits_are_set() {
    let changes = |valid: u32| {
        let message = Message::new(4).u32(valid).u32(0).u64(8).u64(4096).u64(77);
        let message = message.u64(1).u64(u64::MAX).u64(3).u32(4).u32(5).u32(6);
        match operation(&message.u32(0o644).u32(0).u32(10).u32(20).u32(0).bytes()) {
            Operation::SetAttr(changes) => changes,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(changes(0), SetAttr::default());
    let at = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
    let all = SetAttr {
        handle: Some(8),
        mode: Some(0o644),
        uid: Some(10),
        gid: Some(20),
        size_bytes: Some(4096),
        accessed: Some(SetTime::At(at(1, 4))),
        modified: Some(SetTime::At(at(-1, 5))),
        changed: Some(at(3, 6)),
        lock_owner: Some(77),
        kills_suid_sgid: true,
    };
    assert_eq!(changes(0b1110_0111_1111), all);
    let now = SetAttr {
        accessed: Some(SetTime::Now),
        modified: Some(SetTime::Now),
        ..SetAttr::default()
    };
    assert_eq!(changes(0b1_1000_0000), now);
    assert_eq!(changes(0b1_1011_0000), now, "with the bits of a time as well");
}

#[test]
fn locks_are_of_three_kinds_and_two_families() {
    let lock = |opcode, kind, flags| {
        let message = Message::new(opcode).u64(8).u64(77).u64(1).u64(2).u32(kind).u32(3);
        message.u32(flags).u32(0)
    };
    let request = |kind, is_flock| {
        let lock = Lock { start: 1, end: 2, kind, pid: 3 };
        LockRequest { handle: 8, owner: 77, lock, is_flock }
    };
    let expected = format!("GetLock({:?})", request(LockKind::Read, false));
    assert_eq!(lock(31, 0, 0).decoded(), expected);
    let expected = request(LockKind::Write, true);
    let expected = format!("SetLock {{ lock: {expected:?}, is_waiting: false }}");
    assert_eq!(lock(32, 1, 1).decoded(), expected);
    let expected = request(LockKind::Unlock, false);
    let expected = format!("SetLock {{ lock: {expected:?}, is_waiting: true }}");
    assert_eq!(lock(33, 2, 0).decoded(), expected);
    assert_eq!(lock(33, 3, 0).refused(), "there is no such kind of lock");
}

#[test]
fn a_copy_asks_for_no_more_than_its_answer_can_say() {
    let copied = |opcode| {
        let message = Message::new(opcode).u64(8).u64(1).u64(6).u64(9).u64(2);
        match operation(&message.u64(u64::MAX).u64(0).bytes()) {
            Operation::CopyFileRange(range) => range,
            other => panic!("{other:?}"),
        }
    };
    let wide = CopyFileRange {
        handle: 8,
        offset: 1,
        target_node: 6,
        target_handle: 9,
        target_offset: 2,
        length: u64::MAX,
        flags: 0,
        is_64_bit: true,
    };
    assert_eq!(copied(53), wide);
    assert_eq!(copied(47), CopyFileRange { length: COPY_32_BIT_MAX, is_64_bit: false, ..wide });
}

#[test]
fn several_nodes_are_forgotten_in_one_message() {
    let message = Message::new(42).u32(2).u32(0).u64(5).u64(1).u64(6).u64(3);
    match operation(&message.bytes()) {
        Operation::BatchForget(forgets) => {
            assert_eq!(forgets.collect::<Vec<_>>(), [(5, 1), (6, 3)])
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(Message::new(42).u32(2).u32(0).u64(5).u64(1).u64(6).refused(), TOO_SHORT);
    assert_eq!(Message::new(42).u32(u32::MAX).u32(0).refused(), TOO_SHORT);
}

#[test]
fn what_was_agreed_on_changes_the_layout_of_setxattr() {
    let expected = "SetXattr { name: [97], value: [120, 121], flags: 1, kills_sgid: ";
    let short = Message::new(21).u32(2).u32(1).put(b"a\0xy");
    assert_eq!(short.decoded(), format!("{expected}false }}"));
    let long = Message::new(21).u32(2).u32(1).u32(1).u32(0).put(b"a\0xy");
    assert_eq!(long.decoded_with(InitFlags::SETXATTR_EXT), format!("{expected}true }}"));
    assert_eq!(Message::new(21).u32(3).u32(1).put(b"a\0xy").refused(), TOO_SHORT);
}

#[test]
fn the_greeting_has_the_upper_flags_where_it_says_so() {
    let flags = InitFlags::INIT_EXT.0 as u32;
    let long = Message::new(26).u32(7).u32(45).u32(131_072).u32(flags).u32(0x20).u64(0);
    let expected = format!(
        "Init {{ unique: 9, major: 7, minor: 45, max_readahead_bytes: 131072, flags: {:?} }}",
        InitFlags::INIT_EXT | InitFlags::PASSTHROUGH
    );
    assert_eq!(long.decoded(), expected);
    let short = Message::new(26).u32(7).u32(31).u32(131_072).u32(1);
    let expected = format!(
        "Init {{ unique: 9, major: 7, minor: 31, max_readahead_bytes: 131072, flags: {:?} }}",
        InitFlags::ASYNC_READ
    );
    assert_eq!(short.decoded(), expected);
}

#[test]
fn a_supplementary_group_comes_behind_the_operation() {
    let group = |message: &Message| match decode(&message.bytes(), InitFlags::NONE) {
        Ok(Decoded::Request(request)) => request.supplementary_group,
        other => panic!("{other:?}"),
    };
    let make = || Message::new(9).u32(0o755).u32(0).put(b"a\0");
    assert_eq!(group(&make()), None);
    assert_eq!(group(&make().extension(32, &[1, 1000])), Some(1000));
    assert_eq!(group(&make().extension(32, &[0])), None);
    assert_eq!(group(&make().extension(1, &[7, 7]).extension(32, &[1, 1000])), Some(1000));
    let mut wrong = make().extension(32, &[1, 1000]);
    wrong.extensions[0] = 7;
    assert_eq!(wrong.refused(), TOO_SHORT);
    wrong.extensions[0] = 200;
    assert_eq!(wrong.refused(), TOO_SHORT);
}

#[test]
fn names_are_whole_and_lead_nowhere_else() {
    assert_eq!(Message::new(1).put(b"a").refused(), "a name has no end");
    assert_eq!(Message::new(1).put(b"\0").refused(), "a name is empty");
    assert_eq!(Message::new(1).put(b"a/b\0").refused(), "a name contains a slash");
    assert_eq!(Message::new(12).u64(6).put(b"a\0b/\0").refused(), "a name contains a slash");
    assert_eq!(Message::new(6).put(b"a\0b").refused(), "a name has no end");
}

#[test]
fn a_length_that_is_not_the_message_s_is_refused() {
    let mut bytes = Message::new(17).bytes();
    bytes.push(0);
    let malformed = decode(&bytes, InitFlags::NONE).expect_err("one byte more");
    assert_eq!(
        malformed.to_string(),
        "cannot decode request: its length is not the one it names opcode=17 unique=9"
    );
    for length in 0..40 {
        decode(&bytes[..length], InitFlags::NONE).expect_err("no header");
    }
    let mut bytes = Message::new(17).bytes();
    bytes[36] = 1;
    let malformed = decode(&bytes, InitFlags::NONE).expect_err("extensions that are not there");
    assert_eq!(malformed.reason, TOO_SHORT);
}
