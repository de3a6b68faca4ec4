// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The demo, in small.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use terrace_testkit::s3::{BUCKET, KEY_ID, REGION, S3Server, SECRET};

fn demo(dir: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_terrace"))
        .args(["demo", "--json", "--checkpoints", "12", "--grid", "16", "--interval", "2"])
        .args(["--latency", "1ms", "--dir"])
        .arg(dir)
        .args(more)
        .output()
        .expect("the command starts")
}

fn found(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("one line of JSON")
}

#[test]
fn it_measures_every_policy_and_its_commands_work() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path().join("demo");
    let found = found(&demo(&dir, &[]));

    let runs = found["report"]["runs"].as_array().expect("runs");
    let ids: Vec<_> = runs.iter().map(|run| run["id"].as_str().expect("an id")).collect();
    for id in ["fast", "slow", "pinned", "lru-off", "lru-on", "write-buffer-deduced", "reread-lru"]
    {
        assert!(ids.contains(&id), "{id} is missing of {ids:?}");
    }
    let ran: Vec<_> = runs.iter().filter(|run| run["skipped"].is_null()).collect();
    let checksums = |scenario: &str| {
        let of = ran.iter().filter(|run| run["scenario"] == scenario);
        let mut list: Vec<_> = of.map(|run| run["checksum"].to_string()).collect();
        list.dedup();
        list
    };
    assert_eq!(checksums("checkpoints").len(), 1);
    assert_eq!(found["report"]["verdicts"].as_array().map(Vec::len), Some(7));

    let page = fs::read_to_string(dir.join("demo-report.html")).expect("the page is there");
    // Twelve in every run, twenty where they are read again and again.
    let objects: usize =
        ran.iter().map(|run| if run["scenario"] == "reread" { 20 } else { 12 }).sum();
    let pictures: Vec<Value> = page
        .split("<script type=\"application/json\">")
        .skip(1)
        .map(|rest| rest.split_once("</script>").expect("it ends").0)
        .map(|data| serde_json::from_str(data).expect("it is JSON"))
        .collect();
    let sum = |of: &dyn Fn(&Value) -> &Value| -> u64 {
        pictures.iter().map(|picture| of(picture).as_u64().expect("a count")).sum()
    };
    assert_eq!(sum(&|picture| &picture["objects"]), objects as u64);
    let moves: u64 = ran.iter().map(|run| run["moves"].as_u64().expect("a count")).sum();
    assert!(moves > 0);
    assert_eq!(sum(&|picture| &picture["moves"]["n"]), moves);

    let commands = found["commands"].as_array().expect("commands");
    for command in &commands[..3] {
        let command = command.as_str().expect("text");
        let output = Command::new("sh").args(["-c", command]).output().expect("a shell");
        assert!(output.status.success(), "{command}: {output:?}");
    }
}

#[test]
fn the_slow_tier_can_be_a_bucket_and_leaves_nothing_in_it() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path().join("demo");
    let server = S3Server::start();
    let keys = temporary.path().join("keys");
    let text = format!("[default]\naws_access_key_id={KEY_ID}\naws_secret_access_key={SECRET}\n");
    fs::write(&keys, text).expect("written");
    let (endpoint, keys) = (server.endpoint(), keys.display());
    let slow = format!(
        "s3://{BUCKET}/demos,endpoint={endpoint},region={REGION},credentials={keys},latency=30ms,bandwidth=100MB/s"
    );
    let first = found(&demo(&dir, &["--slow", &slow]));
    let simulated = first["report"]["simulated"].as_str().expect("text");
    assert!(simulated.contains(&format!("s3:{BUCKET}/demos")), "{simulated}");
    let runs = first["report"]["runs"].as_array().expect("runs");
    let run = |id: &str| runs.iter().find(|run| run["id"] == id).expect("a run");
    let reason = run("slow")["skipped"].as_str().expect("a reason");
    assert!(reason.contains("in place"), "{reason}");
    assert!(run("pinned")["moves"].as_u64() > Some(0), "new objects go to the bucket");
    assert_eq!(run("pinned")["checksum"], run("fast")["checksum"]);

    let part = |name: &String| name.split('/').nth(1).map(str::to_owned);
    let parts = |server: &S3Server| {
        let mut parts: Vec<_> = server.names().iter().filter_map(part).collect();
        parts.dedup();
        parts
    };
    let is_of_the_kept = |name: &String| name.contains("/write-buffer-deduced/");
    assert!(server.names().iter().all(is_of_the_kept), "{:?}", server.names());
    let before = parts(&server);
    assert_eq!(before.len(), 1);
    found(&demo(&dir, &["--slow", &slow]));
    let after = parts(&server);
    assert!(after.len() == 1 && after != before, "{before:?} {after:?}");
    // As one that failed leaves it; then a simulated tier again.
    fs::create_dir(dir.join("runs")).expect("made");
    fs::rename(dir.join("store"), dir.join("runs/lru-on")).expect("moved");
    found(&demo(&dir, &[]));
    assert_eq!(server.names(), Vec::<String>::new());
}

#[test]
fn the_slow_tier_can_be_a_directory_and_leaves_nothing_in_it() {
    let temporary = tempfile::tempdir().expect("a directory");
    let (dir, disk) = (temporary.path().join("demo"), temporary.path().join("disk"));
    fs::create_dir(&disk).expect("made");
    fs::write(disk.join("other"), "mine").expect("written");
    let slow = disk.to_str().expect("text");
    let first = found(&demo(&dir, &["--slow", slow]));
    let runs = first["report"]["runs"].as_array().expect("runs");
    let has_run = |id: &str| runs.iter().any(|run| run["id"] == id && run["skipped"].is_null());
    assert!(has_run("slow") && has_run("pinned"));
    let entries = || fs::read_dir(&disk).expect("listed").count();
    assert_eq!(entries(), 2, "that of the store that stays");
    found(&demo(&dir, &[]));
    assert_eq!(entries(), 1);
}

#[test]
fn a_slow_tier_that_cannot_be_one_is_refused_before_anything_is_made() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path().join("demo");
    for slow in ["memory:", "disk,latency"] {
        let output = demo(&dir, &["--slow", slow]);
        assert!(!output.status.success(), "{slow}");
        assert!(!dir.exists(), "{slow}");
    }
}

#[test]
fn a_policy_that_is_not_built_is_skipped_with_what_builds_it() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path().join("demo");
    let found = found(&demo(&dir, &["--example-policy", "nowhere/lru.so"]));
    let runs = found["report"]["runs"].as_array().expect("runs");
    let example = runs.iter().find(|run| run["id"] == "example").expect("the row is there");
    let reason = example["skipped"].as_str().expect("a reason");
    assert!(reason.contains("make -C ") && reason.contains("/nowhere` builds it"), "{reason}");
}

#[test]
fn only_a_directory_of_its_own_is_replaced() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path().join("demo");
    fs::create_dir(&dir).expect("made");
    fs::write(dir.join("thesis.tex"), "mine").expect("written");
    let output = demo(&dir, &[]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("was not made by the demo"));
    assert_eq!(fs::read_to_string(dir.join("thesis.tex")).expect("still there"), "mine");

    fs::remove_file(dir.join("thesis.tex")).expect("removed");
    found(&demo(&dir, &[]));
    fs::write(dir.join("rubbish"), "of the first run").expect("written");
    found(&demo(&dir, &[]));
    assert!(!dir.join("rubbish").exists());
}
