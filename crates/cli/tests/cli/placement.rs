// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `tiers`, `explain`, `migrate`, `pin`, `unpin` and `policy`.

use serde_json::json;

use crate::scene::Scene;

fn tier(scene: &Scene, key: &str) -> String {
    scene.json(["stat", key])[0]["tiers"][0].as_str().expect("a tier").to_string()
}

#[test]
fn tiers_are_shown_in_order_with_their_use() {
    let scene = Scene::new();
    scene.ok_with(&[1; 100_000], ["put", "a/x"]);
    let printed = scene.ok(["tiers"]);
    let lines: Vec<_> = printed.lines().collect();
    assert!(lines[0].starts_with("tier") && lines[0].ends_with("target"), "{printed}");
    assert!(lines[1].starts_with("fast") && lines[1].contains("1.00 MB"), "{printed}");
    assert!(lines[2].starts_with("slow") && lines[2].contains("online"), "{printed}");
    assert!(scene.ok(["tiers", "--long"]).contains("modelled energy"));
    let tiers = &scene.json(["tiers"])[0]["tiers"];
    assert_eq!((&tiers[0]["name"], &tiers[1]["name"]), (&json!("fast"), &json!("slow")));
    assert_eq!(tiers[0]["used_bytes"], 100_000);
    assert_eq!(tiers[0]["capacity_bytes"], 1_000_000);
    assert_eq!(tiers[1]["segments"], 0);
}

#[test]
fn tiers_warn_of_more_than_the_capacity() {
    let scene = Scene::new();
    scene.ok_with(&[1; 800_000], ["put", "a/x"]);
    assert!(!scene.ok(["tiers"]).contains("warning"));
    assert_eq!(scene.json(["tiers"])[0]["warnings"], json!([]));
    let settings = String::from_utf8(scene.read("store/terrace.toml")).expect("text");
    let less = settings.replacen("1.00 MB", "100kB", 1).replacen("1MB", "100kB", 1);
    assert_ne!(less, settings, "it has a capacity");
    std::fs::write(scene.path("store/terrace.toml"), less).expect("there is room");
    let printed = scene.ok(["tiers"]);
    let warning = "warning: tier fast takes 800 kB, more than its capacity of 100 kB";
    assert!(printed.contains(warning), "{printed}");
    let warnings = scene.json(["tiers"])[0]["warnings"].clone();
    assert_eq!(warnings.as_array().map(Vec::len), Some(1), "{warnings}");
}

#[test]
fn migrate_moves_and_explain_says_who_did_it() {
    let scene = Scene::new();
    scene.ok_with(&[1; 100_000], ["put", "a/x"]);
    assert_eq!(tier(&scene, "a/x"), "fast");
    assert_eq!(scene.ok(["migrate", "a/x", "--to", "slow"]), "a/x: fast -> slow (100 kB)\n");
    assert_eq!(tier(&scene, "a/x"), "slow");
    let explained = scene.ok(["explain", "a/x"]);
    assert!(explained.contains("on slow") && explained.contains("by user"), "{explained}");
    let explained = &scene.json(["explain", "a/x"])[0];
    let segment = &explained["segments"][0];
    let (tier, path) = (segment["tier"].as_str(), segment["path"].as_str());
    let path = path.expect("its tier is a directory");
    assert!(scene.path(tier.expect("a name")).join(path).is_file(), "{path}");
    assert!(scene.ok(["explain", "a/x"]).contains(&format!("  stored as {path}\n")));
    assert_eq!(explained["key"], "a/x");
    assert_eq!(explained["segments"][0]["tier"], "slow");
    let history = explained["segments"][0]["history"].as_array().expect("a list");
    assert!(history.iter().any(|event| event["by"] == "user"), "{explained}");
    let again = scene.json(["migrate", "a/x", "--to", "slow"]);
    assert_eq!(again[0]["outcome"], "already");
}

#[test]
fn getting_an_object_is_as_many_accesses_as_it_takes_and_no_more() {
    let scene = Scene::new();
    let held = scene.hold();
    for (key, size) in [("a/empty", 0), ("a/small", 1000), ("a/large", 3 << 20)] {
        scene.ok_with(&vec![1; size], ["put", key]);
        scene.ok(["get", key, "got"]);
        assert_eq!(scene.read("got"), vec![1; size], "{key}");
        let ledger = &scene.json(["explain", key])[0]["ledger"];
        assert_eq!(ledger["read_bytes"], size, "{key}");
        let reads = ledger["reads"].as_u64().expect("a number");
        match size {
            // Also to find out that it is empty.
            0 | 1000 => assert_eq!(reads, 1),
            _ => assert!(reads >= 1 && ledger["device_ns"].as_u64() > Some(0), "{ledger}"),
        }
    }
    held.stop();
}

#[test]
fn migrate_reports_each_object_as_json() {
    let scene = Scene::new();
    for key in ["a/1", "a/2", "b/1"] {
        scene.ok_with(b"hello", ["put", key]);
    }
    let moved = scene.json(["migrate", "-r", "a", "--to", "slow"]);
    let keys: Vec<_> = moved.iter().map(|report| report["key"].clone()).collect();
    assert_eq!(keys, [json!("a/1"), json!("a/2")]);
    for report in &moved {
        assert_eq!((&report["from"], &report["to"]), (&json!("fast"), &json!("slow")));
        assert_eq!((&report["outcome"], &report["size_bytes"]), (&json!("done"), &json!(5)));
    }
    assert_eq!(tier(&scene, "b/1"), "fast");
}

#[test]
fn migrate_dry_run_moves_nothing() {
    let scene = Scene::new();
    scene.ok_with(&[1; 1000], ["put", "a/x"]);
    let printed = scene.ok(["migrate", "-r", "a", "--to", "slow", "--dry-run"]);
    let expected = "a/x: would move, fast -> slow (1.00 kB)\n1 segment would move, 1.00 kB\n";
    assert_eq!(printed, expected);
    assert_eq!(tier(&scene, "a/x"), "fast");
    let planned = scene.json(["migrate", "a/x", "--to", "fast", "--dry-run"]);
    assert_eq!(planned[0]["would"], "stay");
    scene.ok(["pin", "a/x"]);
    let planned = scene.json(["migrate", "a/x", "--to", "slow", "--dry-run"]);
    assert_eq!(planned[0]["would"], "refuse");
}

#[test]
fn migrate_keeps_makes_and_drops_copies() {
    let scene = Scene::new();
    let copies = || scene.json(["explain", "a/x"])[0]["segments"][0]["copies"].clone();
    scene.ok_with(&[1; 1000], ["put", "a/x"]);
    scene.ok(["migrate", "a/x", "--to", "slow", "--copy"]);
    assert_eq!((tier(&scene, "a/x").as_str(), copies()), ("fast", json!(["slow"])));
    scene.ok(["migrate", "a/x", "--drop-copy", "slow"]);
    assert_eq!(copies(), json!([]));
    scene.ok(["migrate", "a/x", "--to", "slow", "--promote"]);
    assert_eq!((tier(&scene, "a/x").as_str(), copies()), ("slow", json!(["fast"])));
    scene.fails(2, ["migrate", "a/x", "--to", "fast", "--promote", "--copy"]);
}

#[test]
fn migrate_says_what_is_wrong() {
    let scene = Scene::new();
    scene.ok_with(b"hello", ["put", "a/x"]);
    let error = scene.fails(3, ["migrate", "a/x", "--to", "tape"]);
    assert!(error.contains("fast") && error.contains("slow"), "{error}");
    scene.fails(3, ["migrate", "a/x", "--to", "tape", "--dry-run"]);
    scene.fails(3, ["migrate", "nope", "--to", "slow"]);
    scene.fails(2, ["migrate", "a/x"]);
    scene.fails(2, ["migrate", "--to", "slow"]);
    let error = scene.fails(2, ["migrate", "a/x", "--to", "slow", "--no-wait"]);
    assert!(error.contains("terrace hold"), "{error}");
    scene.ok_with(&[1; 2_000_000], ["put", "a/large"]);
    scene.ok(["migrate", "a/large", "--to", "slow"]);
    scene.fails(4, ["migrate", "a/large", "--to", "fast"]);
    assert_eq!(tier(&scene, "a/large"), "slow");
}

#[test]
fn migrations_are_listed_and_cancelled() {
    let scene = Scene::new();
    assert_eq!(scene.ok(["migrate", "--list"]), "no migrations\n");
    assert_eq!(scene.json(["migrate", "--list"]), [json!({ "moves": [] })]);
    assert_eq!(scene.ok(["migrate", "--cancel", "all"]), "cancelled 0 migrations\n");
    assert_eq!(scene.json(["migrate", "--cancel", "all"]), [json!({ "cancelled": 0 })]);
    scene.fails(3, ["migrate", "--cancel", "123456"]);
    scene.fails(2, ["migrate", "--cancel", "some"]);
}

#[test]
fn a_pinned_object_stays_until_it_is_unpinned() {
    let scene = Scene::new();
    scene.ok_with(b"hello", ["put", "a/x"]);
    assert_eq!(scene.json(["pin", "a/x"]), [json!({ "key": "a/x", "is_pinned": true })]);
    assert_eq!(scene.json(["stat", "a/x"])[0]["is_pinned"], true);
    assert!(scene.fails(7, ["migrate", "a/x", "--to", "slow"]).contains("pinned"));
    assert_eq!(tier(&scene, "a/x"), "fast");
    scene.ok(["unpin", "-r", "a"]);
    scene.ok(["migrate", "a/x", "--to", "slow"]);
    assert_eq!(tier(&scene, "a/x"), "slow");
    scene.fails(3, ["pin", "nope"]);
    scene.fails(3, ["unpin", "nope"]);
}

#[test]
fn policies_are_listed_and_shown() {
    let scene = Scene::with_policy();
    let listed = scene.ok(["policy", "list"]);
    for name in ["pinned", "lru", "write-buffer", "size"] {
        assert!(listed.lines().any(|line| line.starts_with(name)), "{listed}");
    }
    let policies = scene.json(["policy", "list"])[0]["policies"].clone();
    assert!(policies[0]["name"].is_string() && policies[0]["description"].is_string());
    let shown = scene.ok(["policy", "show"]);
    assert!(shown.starts_with("policy lru, called after "), "{shown}");
    let report = &scene.json(["policy", "show"])[0];
    assert_eq!(report["name"], "lru");
    assert_eq!(report["is_dry_run"], false);
    assert!(report["parameters"].as_array().is_some_and(|list| !list.is_empty()), "{report}");
}

#[test]
fn a_store_without_a_policy_says_so() {
    let scene = Scene::new();
    let error = scene.fails(2, ["policy", "show"]);
    assert!(error.contains("terrace policy use"), "{error}");
}

#[test]
fn a_policy_is_changed_and_replaced_while_the_store_is_held() {
    let scene = Scene::with_policy();
    let held = scene.hold();
    let parameter = &scene.json(["policy", "show"])[0]["parameters"][0];
    let (name, value) = (parameter["name"].as_str().expect("text"), &parameter["value"]);
    // A value that the policy prints is one that it takes.
    let assignment = format!("{name}={}", value.as_str().expect("text"));
    let set = scene.json(["policy", "set", &assignment, "--every", "2s", "--after-events", "7"]);
    assert_eq!(set[0]["every_ns"], 2_000_000_000_u64);
    assert_eq!(set[0]["after_events"], 7);
    scene.ok(["policy", "set", "--dry-run", "on"]);
    assert_eq!(scene.json(["policy", "show"])[0]["is_dry_run"], true);
    scene.fails(3, ["policy", "set", "no-such-parameter=1"]);
    scene.fails(2, ["policy", "set", "novalue"]);
    scene.fails(2, ["policy", "set"]);
    scene.ok(["policy", "use", "pinned"]);
    assert_eq!(scene.json(["policy", "show"])[0]["name"], "pinned");
    scene.fails(3, ["policy", "use", "no-such-policy"]);
    // What `terrace init` knows.
    let said = scene.fails(3, ["policy", "use", "none"]);
    assert!(said.contains("`pinned` never moves anything"), "{said}");
    scene.fails(2, ["policy", "use"]);
    assert_eq!(scene.json(["policy", "show"])[0]["name"], "pinned");
    held.stop();
}

#[test]
fn policy_run_prints_what_was_decided() {
    let scene = Scene::with_policy();
    let ran = &scene.json(["policy", "run", "--dry-run"])[0];
    assert_eq!(*ran, json!({ "actions": 0, "decisions": [] }));
    assert_eq!(scene.ok(["policy", "run"]), "the policy asks for nothing\n");
    assert_eq!(scene.json(["policy", "show"])[0]["is_dry_run"], false);
}

#[test]
fn a_message_of_an_unknown_kind_is_refused() {
    let scene = Scene::with_policy();
    scene.fails(10, ["policy", "message", "no-such-kind", "body"]);
    scene.fails(2, ["policy", "message", "stage", "no JSON"]);
}

#[test]
fn a_message_gets_its_reply() {
    let scene = Scene::with_policy();
    let reply = scene.ok(["policy", "message", "status"]);
    let status: serde_json::Value = serde_json::from_str(&reply).expect("JSON");
    assert!(status.is_object(), "{reply}");
    let same = scene.json(["policy", "message", "status"])[0]["reply"].clone();
    assert!(same.as_str().is_some_and(|same| same.starts_with('{')), "{same}");
    let body = r#"{"keys": ["a/x"], "tier": "fast", "until": "10min"}"#;
    let staged = scene.ok_with(body.as_bytes(), ["policy", "message", "stage", "-"]);
    assert!(staged.contains("missing"), "{staged}");
}

#[test]
fn a_plan_is_sent_from_a_file_and_the_rules_of_a_site_are_in_one() {
    let scene = Scene::with_policy();
    let held = scene.hold();
    scene.ok(["policy", "use", "workflow", "lease=10min"]);
    scene.ok_with(b"hello", ["put", "run/a"]);
    let plan = r#"{"steps": [{"keep": {"glob": "*"}}, {"done": {"glob": "*/none"}}]}"#;
    let reply = scene.ok_with(plan.as_bytes(), ["policy", "message", "plan", "-"]);
    assert!(reply.contains("\"segments\":1"), "{reply}");

    let rules = "[[rule]]\nname = \"all, said = so\"\naction = \"never\"\n";
    scene.ok(["policy", "use", "rules"]);
    let error = scene.fails(2, ["policy", "set", "rules=[[rule]]"]);
    assert!(error.contains("rule=1"), "{error}");
    scene.ok(["policy", "set", &format!("rules={rules}")]);
    held.stop();
    let shown = scene.json(["policy", "show"])[0]["parameters"][0].clone();
    assert_eq!((&shown["name"], &shown["value"]), (&"rules".into(), &rules.trim_end().into()));
    let status = scene.ok(["policy", "message", "status"]);
    assert!(status.contains("all, said = so"), "{status}");
}

#[test]
fn files_of_nobody_are_not_pinned() {
    let scene = Scene::new();
    let file = scene.file("foreign/file", b"text");
    let path = file.to_str().expect("UTF-8");
    let directory = scene.path("foreign");
    let directory = directory.to_str().expect("UTF-8");
    std::fs::create_dir(scene.path("empty")).expect("made");
    for verb in ["pin", "unpin"] {
        let error = scene.fails(2, [verb, path]);
        assert!(error.contains("no file of a mounted store"), "{error}");
        for arguments in [[verb, "-r", directory], [verb, "-r", "./empty"]] {
            scene.fails(2, arguments);
        }
    }
    let mut names = [0; 1024];
    let count = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or_default();
    let names = String::from_utf8_lossy(&names[..count]);
    assert!(!names.contains("terrace"), "{names}");
}
