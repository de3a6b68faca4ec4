// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store whose second tier is compressed and encrypted, from its settings.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use terrace_core::{BackendExt, ErrorKind, Key};
use terrace_store::{MoveKind, Store};

const KEY: [u8; 64] = [b'7'; 64];

fn write_key(path: &Path, text: &[u8], mode: u32) {
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
}

fn settings(cold: &str) -> String {
    format!(
        "[[tier]]\nname = \"fast\"\npath = \"fast\"\n\n[[tier]]\nname = \"cold\"\npath = \"cold\"\n{cold}"
    )
}

#[test]
fn a_tier_is_packed_accounted_and_opened_with_its_key_alone() {
    const FRAMED: &str = "compress = \"zstd:3\"\nencrypt = \"cold.key\"\n";
    let directory = tempfile::tempdir().expect("a directory");
    let store_at = directory.path().join("store");
    let key_file = store_at.join("cold.key");
    let address = store_at.to_str().expect("text");
    std::fs::create_dir(&store_at).expect("made");
    write_key(&key_file, &KEY, 0o600);
    Store::init(&store_at, &settings(FRAMED)).expect("made");
    let (name, data) = (Key::new("app", "text").expect("legal"), b"all work ".repeat(40_000));
    let store = Store::open(address).expect("opened");
    store.write_all(&name, &data).expect("written");
    store.admin().migrate(&name, "cold", MoveKind::Move, 0, "test").expect("queued");
    assert!(store.admin().wait_idle(Duration::from_secs(20)).expect("asked"));
    let cold = store.admin().tiers().expect("asked").remove(1);
    assert!(cold.packed && cold.writes == "whole");
    assert!((1..100_000).contains(&cold.used_bytes), "{}", cold.used_bytes);
    assert!(store.read_all(&name).expect("read") == data);
    assert!(store.admin().check(true, &mut |_, _| true).expect("checked").problems.is_empty());
    store.close().expect("closed");
    drop(store);
    let refused = |words: &[&str]| {
        let error = Store::open(address).err().expect("refused");
        let text = error.chain();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert!(text.contains("tier=cold") && !text.contains("7777"), "{text}");
        error.kind()
    };
    write_key(&key_file, &KEY, 0o644);
    assert_eq!(refused(&["chmod 600", "cold.key"]), ErrorKind::Denied);
    write_key(&key_file, &[b'8'; 64], 0o600);
    assert_eq!(refused(&["another key"]), ErrorKind::Denied);
    write_key(&key_file, b"short", 0o600);
    assert_eq!(refused(&["64 hexadecimal digits", "cold.key"]), ErrorKind::Invalid);
    write_key(&key_file, &KEY, 0o600);
    let file = store_at.join("terrace.toml");
    std::fs::write(&file, settings("")).expect("written");
    assert_eq!(refused(&["`compress` or `encrypt`"]), ErrorKind::Denied);
    std::fs::write(&file, settings("compress = \"zstd:9\"\n")).expect("written");
    assert_eq!(refused(&["set `encrypt`"]), ErrorKind::Denied);
    std::fs::write(&file, settings("encrypt = \"cold.key\"\n")).expect("written");
    let store = Store::open(address).expect("compression may change");
    assert!(store.read_all(&name).expect("read") == data);
}
