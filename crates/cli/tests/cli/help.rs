// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Help, completions, manual pages and the reference.

use crate::scene::{Scene, values};

/// The verbs, as the overview lists them.
fn verbs(scene: &Scene) -> Vec<String> {
    let overview = scene.ok([] as [&str; 0]);
    let (listed, _) = overview.split_once("\nOptions:").expect("options come after the verbs");
    let indented = listed.lines().filter_map(|line| line.strip_prefix("  "));
    let names = indented.filter_map(|line| line.split_whitespace().next());
    let verbs: Vec<_> = names.map(String::from).collect();
    assert!(verbs.len() > 15, "{overview}");
    verbs
}

/// The parts of a verb, as its help lists them.
fn subcommands(scene: &Scene, verb: &str) -> Vec<String> {
    let help = scene.ok([verb, "--help"]);
    let Some((_, listed)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let (listed, _) = listed.split_once("\n\n").expect("options come after the parts");
    // What is indented further goes on from the line before.
    let lines = listed.lines().filter_map(|line| line.strip_prefix("  "));
    let lines = lines.filter(|line| !line.starts_with(' '));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    let subcommands: Vec<_> = names.filter(|name| *name != "help").map(String::from).collect();
    assert!(!subcommands.is_empty(), "{help}");
    subcommands
}

#[test]
fn the_help_of_a_verb_lists_its_parts() {
    let scene = Scene::empty();
    let parts = subcommands(&scene, "bench");
    for part in ["object", "hsm-study", "mount", "net", "cluster", "prediction"] {
        assert!(parts.iter().any(|one| one == part), "{part} in {parts:?}");
    }
    assert_eq!(subcommands(&scene, "kv"), ["put", "get", "scan", "rm"]);
    assert!(subcommands(&scene, "ls").is_empty());
    let with_parts = verbs(&scene).into_iter().filter(|verb| !subcommands(&scene, verb).is_empty());
    assert!(with_parts.count() >= 8);
}

#[test]
fn every_verb_has_help_with_examples_and_statuses() {
    let scene = Scene::empty();
    for verb in verbs(&scene) {
        let mut commands = vec![vec![verb.as_str()]];
        let subcommands = subcommands(&scene, &verb);
        commands.extend(subcommands.iter().map(|sub| vec![verb.as_str(), sub]));
        for words in commands {
            let help = scene.ok(words.iter().copied().chain(["--help"]));
            let example = format!("\n  terrace {}", words.join(" "));
            for expected in ["Usage: terrace", "Examples:", &example, "Exit status:"] {
                assert!(help.contains(expected), "{expected:?} in\n{help}");
            }
            assert!(scene.ok(words.iter().copied().chain(["-h"])).len() < help.len());
        }
    }
}

#[test]
fn a_wrong_command_line_is_one_line_and_status_2() {
    let scene = Scene::empty();
    for arguments in [
        &["frobnicate"][..],
        &["kv"],
        &["policy"],
        &["trace"],
        &["put"],
        &["put", "a", "b", "c"],
        &["ls", "--no-such"],
    ] {
        scene.fails(2, arguments);
        let ran = scene.run(arguments.iter().copied().chain(["--json"]));
        assert_eq!(ran.status, Some(2));
        assert_eq!(values(&ran.stderr)[0]["error"]["kind"], "usage");
    }
    assert!(scene.fails(2, ["migrat", "--to", "x"]).contains("'migrate'"));
}

#[test]
fn completions_exist_for_every_shell() {
    let scene = Scene::empty();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = scene.ok(["completions", shell]);
        assert!(script.contains("migrate") && script.contains("drop-copy"), "{shell}");
    }
    scene.fails(2, ["completions", "tcsh"]);
}

#[test]
fn manual_pages_are_written_for_every_verb() {
    let scene = Scene::empty();
    scene.ok(["man", "pages/man1"]);
    for verb in verbs(&scene) {
        let page = scene.read(&format!("pages/man1/terrace-{verb}.1"));
        let page = String::from_utf8(page).expect("UTF-8");
        for expected in [".TH", "EXAMPLES", "EXIT STATUS"] {
            assert!(page.contains(expected), "{expected} in {verb}");
        }
        for subcommand in subcommands(&scene, &verb) {
            assert!(scene.path(&format!("pages/man1/terrace-{verb}-{subcommand}.1")).is_file());
        }
    }
    assert_eq!(scene.ok(["man"]).into_bytes(), scene.read("pages/man1/terrace.1"));
}

#[test]
fn the_reference_names_every_verb_and_status() {
    let reference = include_str!("../../../../docs/reference/cli.md");
    let scene = Scene::empty();
    for verb in verbs(&scene) {
        assert!(reference.contains(&format!("### `{verb}")), "{verb}");
    }
    let help = scene.ok(["help", "ls"]);
    let (_, statuses) = help.split_once("Exit status:\n").expect("the table is there");
    for line in statuses.lines().filter(|line| !line.trim().is_empty()) {
        let (status, meaning) = line.trim().split_once(' ').expect("two columns");
        let row = format!("| {status} | {} |", meaning.trim());
        assert!(reference.contains(&row), "{row}");
    }
}

#[test]
fn the_version_is_printed() {
    let scene = Scene::empty();
    assert_eq!(scene.ok(["--version"]), concat!("terrace ", env!("CARGO_PKG_VERSION"), "\n"));
}
