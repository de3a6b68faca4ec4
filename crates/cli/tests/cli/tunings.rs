// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `tune`: parameters of a policy that suit a trace.

use serde_json::Value;

use crate::scene::Scene;

const TIERS: &str = "
[[tier]]
name = \"fast\"
path = \"fast\"
capacity = \"4MB\"
bandwidth = \"100MB/s\"
idle_power = \"1W\"
active_power = \"3W\"

[[tier]]
name = \"slow\"
path = \"slow\"
latency = \"50ms\"
bandwidth = \"10MB/s\"
idle_power = \"2W\"
active_power = \"7W\"
";

/// Some objects that are read again and again, and others that come once.
fn with_load() -> Scene {
    let scene = Scene::empty();
    scene.file("store.toml", TIERS);
    let line = |at: u32| match at % 3 {
        0 => format!("{at},{},1000000,read\n", 1000 + at),
        _ => format!("{at},{},1000000,read\n", at % 4),
    };
    let lines: String = (0..960).map(line).collect();
    scene.file("load.csv", format!("time,id,size,op\n{lines}"));
    scene
}

const WORDS: &str = "tune load.csv --store store.toml --policy lru --budget 8";

fn candidate<'v>(found: &'v Value, name: &str) -> &'v Value {
    let all = found["candidates"].as_array().expect("a list");
    all.iter().find(|one| one["name"] == name).expect("it is there")
}

#[test]
fn a_search_reports_chance_defaults_and_pinned_and_comes_to_the_same_again() {
    let scene = with_load();
    let found = scene.json(WORDS.split_whitespace()).remove(0);
    assert_eq!((&found["budget"], &found["half_requests"][0]), (&8.into(), &480.into()));
    let objective = |name: &str, half: &str| {
        candidate(&found, name)[half]["objective"].as_f64().expect("a number")
    };
    for name in ["tuned", "random", "defaults", "pinned"] {
        assert!(objective(name, "judged").is_finite(), "{name}");
    }
    assert_eq!(found["random_requests"], 8 * 480);
    assert!(found["searched_requests"].as_u64() <= Some(8 * 480), "{found}");
    let best = found["best"].as_str().expect("a name");
    assert!(objective(best, "searched") <= objective("defaults", "searched"));
    let recommended = found["recommended"].as_str().expect("a name");
    assert!(objective(recommended, "judged") <= objective("defaults", "judged"));
    assert_eq!(scene.json(WORDS.split_whitespace()).remove(0), found, "the same comes to the same");
    let other = scene.json(WORDS.split_whitespace().chain(["--seed", "1"])).remove(0);
    assert_ne!(candidate(&other, "tuned"), candidate(&found, "tuned"));
}

#[test]
fn what_is_recommended_is_a_section_that_can_be_used() {
    let scene = with_load();
    let text = scene.ok(WORDS.split_whitespace());
    let section = &text[text.find("[policy]").expect("it ends with a section")..];
    scene.file("tuned.toml", format!("{TIERS}\n{section}"));
    let found = scene.json("replay load.csv --store tuned.toml".split_whitespace()).remove(0);
    let name = found["replays"][1]["policy"].as_str().expect("a name");
    assert!(section.contains(&format!("name = \"{name}\"")), "{section}");
    assert!(text.contains("\npinned  "), "{text}");
}

#[test]
fn a_page_has_every_candidate_and_fetches_nothing() {
    let scene = with_load();
    scene.ok(WORDS.split_whitespace().chain(["--html", "page.html"]));
    let page = String::from_utf8(scene.read("page.html")).expect("it is text");
    for name in ["tuned", "random", "defaults", "pinned"] {
        assert!(page.contains(&format!("<th scope=\"row\">{name}</th>")), "{name}");
    }
    assert_eq!(page.matches("<svg class=\"plot\"").count(), 2);
    for word in ["http:", "https:", "src=", "@import", "url(", "<script", "<link"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn a_search_for_cost_chooses_otherwise_than_one_for_time() {
    let scene = with_load();
    // The fast tier costs by what it stores, and so much that nothing should be there.
    let price = "name = \"fast\"\nprice_per_gb_month = 1e6";
    scene.file("store.toml", TIERS.replace("name = \"fast\"", price));
    let recommended = |objective: &str| {
        let words = "tune load.csv --store store.toml --policy lru --budget 8 --search gate";
        let found = scene.json(format!("{words} --objective {objective}").split_whitespace());
        let score = |name: &str, figure: &str| {
            candidate(&found[0], name)["judged"][figure].as_f64().expect("a number")
        };
        let best = found[0]["best"].as_str().expect("a name");
        (best == "pinned", score("defaults", "cost"), score("pinned", "cost"))
    };
    let (is_pinned, defaults, pinned) = recommended("time");
    assert!(!is_pinned && defaults > pinned && pinned == 0.0, "{defaults} {pinned}");
    assert!(recommended("cost").0);
}

#[test]
fn what_cannot_be_tuned_says_why() {
    let scene = with_load();
    let without_watts: Vec<_> = TIERS.lines().filter(|line| !line.contains("power")).collect();
    scene.file("still.toml", without_watts.join("\n"));
    scene.file("short.csv", "id,size\n1,10\n");
    for (status, words, why) in [
        (2, "load.csv --store store.toml", "--policy"),
        (3, "load.csv --store store.toml --policy ./no.py", "no.py"),
        (2, "load.csv --store store.toml --policy lru:idle", "behind the policy"),
        (3, "load.csv --store store.toml --policy lru --search idel=1s..2s", "only high, "),
        (2, "load.csv --store store.toml --policy lru --search high=0.5..2", "value=2"),
        (2, "load.csv --store store.toml --policy pinned", "no parameters"),
        (3, "load.csv --store store.toml --policy wrong", "pinned, lru"),
        (2, "short.csv --store store.toml --policy lru", "needs 320 requests"),
        (2, "load.csv --store still.toml --policy lru", "--objective time"),
        (2, "load.csv --store store.toml --policy lru --objective cost", "price_per_gb_month"),
        (2, "--live --store store.toml --objective cost", "name a trace"),
        (2, "load.csv --store store.toml --policy lru --budget 3", "--budget"),
        (2, "load.csv --store store.toml --policy lru --objective speed", "edp"),
        (2, "load.csv --store store.toml --policy lru --budget 9 --seconds 9", "--seconds"),
        (3, "load.csv --store nothing.toml --policy lru", "nothing.toml"),
    ] {
        let words = format!("tune {words}");
        let said = scene.fails(status, words.split_whitespace());
        assert!(said.contains(why), "{words}: {said}");
    }
    let timed = "tune load.csv --store still.toml --policy lru --budget 4 --objective time";
    scene.ok(timed.split_whitespace());
}
