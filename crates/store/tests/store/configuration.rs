// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of the policy outlive the process that made them.

use std::time::Duration;

use terrace_store::{PolicyReport, PolicySource, Store};

use crate::scene::{Scene, TIERS};

const SETTINGS: &str = "
# What decides.
[policy]
name = \"lru\" # for now
[policy.parameters]
high = 0.95
";

fn policy(store: &Store) -> PolicyReport {
    store.admin().policy().expect("readable").expect("it has one")
}

fn value(store: &Store, name: &str) -> String {
    let parameters = policy(store).parameters;
    parameters.into_iter().find(|parameter| parameter.name == name).expect(name).value
}

fn change(store: &Store) {
    store.admin().set_parameter("high", "0.75").expect("legal");
    store.admin().set_parameter("idle", "7s").expect("legal");
    store.admin().set_calls(Some(77), Some(Duration::from_millis(1500))).expect("legal");
    store.admin().set_dry_run(true).expect("legal");
}

fn assert_changed(store: &Store) {
    assert_eq!((value(store, "high").as_str(), value(store, "idle").as_str()), ("0.75", "7s"));
    let policy = policy(store);
    assert_eq!((policy.after_events, policy.every_ns), (77, 1_500_000_000));
    assert!(policy.is_dry_run);
}

#[test]
fn changes_of_an_owner_are_kept() {
    let scene = Scene::with(&format!("{TIERS}{SETTINGS}"));
    let store = scene.open();
    change(&store);
    drop(store);
    let text = scene.settings();
    assert!(text.contains("\n# What decides.\n[policy]\nname = \"lru\" # for now\n"), "{text}");
    assert_changed(&scene.open());
}

#[test]
fn changes_of_an_attached_process_are_kept() {
    let scene = Scene::with(&format!("{TIERS}{SETTINGS}"));
    let attached = scene.attached();
    change(&attached);
    assert_changed(&attached);
    drop(attached);
    assert_changed(&scene.open());
}

#[test]
fn another_policy_is_kept_with_its_parameters() {
    let scene = Scene::with(&format!("{TIERS}{SETTINGS}"));
    let store = scene.open();
    store
        .admin()
        .set_policy(&PolicySource::named("pinned"), &[("tier".into(), "slow".into())])
        .expect("it is built in");
    drop(store);
    let store = scene.open();
    assert_eq!((policy(&store).name.as_str(), value(&store, "tier").as_str()), ("pinned", "slow"));
}

#[test]
fn a_store_without_a_policy_gets_one() {
    let scene = Scene::with(TIERS);
    let store = scene.open();
    store.admin().set_policy(&PolicySource::named("lru"), &[]).expect("it is built in");
    assert_eq!(policy(&store).name, "lru");
    drop(store);
    assert_eq!(policy(&scene.open()).name, "lru");
}

#[test]
fn what_is_refused_is_not_kept() {
    let scene = Scene::with(&format!("{TIERS}{SETTINGS}"));
    let before = scene.settings();
    let store = scene.open();
    store.admin().set_parameter("hihg", "0.75").expect_err("no such parameter");
    store.admin().set_parameter("high", "7").expect_err("above one");
    store.admin().set_policy(&PolicySource::named("lfu"), &[]).expect_err("no such policy");
    store.admin().set_calls(Some(0), None).expect_err("never");
    drop(store);
    assert_eq!(scene.settings(), before);
}
