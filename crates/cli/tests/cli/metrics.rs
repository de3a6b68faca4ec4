// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--metrics` of `serve` and `hold`: scrapes by a plain socket.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use terrace_core::{Clock, SystemClock};
use terrace_testkit::openmetrics::Scrape;

use crate::scene::{Scene, finish, signal};
use crate::serving::{Served, secret, with};
use crate::watched_names::watched_names;

/// Nothing that is waited for takes nearly as long.
const WAIT_TIME_MAX: Duration = Duration::from_secs(60);

/// Sizes that no other object of these tests has.
const PUT_BYTES: u64 = 1000;

/// The port behind a URL, as a host and a port.
fn address(ready: &Value) -> String {
    let url = ready["metrics"].as_str().expect("there are metrics");
    let address = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics"));
    address.expect("a URL").into()
}

/// A command that goes on, with metrics on a free port.
struct Watched {
    child: Child,
    metrics: String,
}

impl Watched {
    /// Starts a verb, which prints a line of JSON.
    fn start(scene: &Scene, arguments: &[&str]) -> Self {
        let mut command = scene.command(["--json"]);
        command.args(arguments).args(["--metrics", "127.0.0.1:0"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the binary runs");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("it prints a line");
        let ready: Value = serde_json::from_str(&line).expect("it begins");
        Self { child, metrics: address(&ready) }
    }

    fn scrape(&self) -> Scrape {
        Scrape::of(&self.metrics).unwrap_or_else(|wrong| panic!("{wrong}"))
    }

    /// Scrapes until a figure is there.
    fn scrape_until(&self, has_come: impl Fn(&Scrape) -> bool) -> Scrape {
        let clock = SystemClock::default();
        let end_ns = clock.now_ns() + WAIT_TIME_MAX.as_nanos() as u64;
        loop {
            let scrape = self.scrape();
            if has_come(&scrape) {
                return scrape;
            }
            assert!(clock.now_ns() < end_ns, "it does not come");
            clock.sleep(Duration::from_millis(20));
        }
    }

    fn stop(mut self) {
        signal(&self.child, Signal::TERM);
        assert!(self.child.wait().expect("it ends").success());
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // A test that failed; otherwise it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a scrape has more than the one before.
struct Since<'a>(&'a Scrape, &'a Scrape);

impl Since<'_> {
    #[track_caller]
    fn grew(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.1.value(name, labels) - self.0.get(name, labels).unwrap_or(0.0)
    }
}

#[test]
fn a_scrape_has_the_exact_counts_of_a_known_load() {
    let scene = Scene::new();
    secret(&scene);
    let content = vec![7; PUT_BYTES as usize];
    let served = Watched::start(
        &scene,
        &["serve", "--listen", "unix:socket", "--no-secret", "--log-level", "off"],
    );
    let store = format!("terrace+unix://{}", scene.path("socket").display());
    let ok = |arguments: &[&str]| scene.ok(with(&store, arguments));
    scene.file("in", &content);
    // The first command of a client asks for what later ones of it do not.
    ok(&["put", "run/0", "in"]);
    let before = served.scrape();
    for number in 1..=10 {
        ok(&["put", &format!("run/{number}"), "in"]);
    }
    ok(&["migrate", "run/1", "--to", "slow"]);
    ok(&["migrate", "run/2", "--to", "slow"]);
    ok(&["migrate", "run/2", "--to", "fast"]);
    scene.fails(3, with(&store, &["get", "run/none"]));
    let after = served.scrape();
    let since = Since(&before, &after);
    let [fast, slow] = ["fast", "slow"].map(|tier| [("tier", tier)]);
    let write = [("tier", "fast"), ("operation", "write")];
    assert_eq!(since.grew("terrace_tier_operation_bytes_total", &write), 10.0 * PUT_BYTES as f64);
    assert_eq!(since.grew("terrace_tier_operation_seconds_count", &write), 10.0);
    assert!(since.grew("terrace_tier_operation_seconds_sum", &write) > 0.0);
    assert_eq!(since.grew("terrace_tier_segments", &fast), 9.0);
    assert_eq!(since.grew("terrace_tier_segments", &slow), 1.0);
    let used = |tier| [("tier", tier), ("class", "used")];
    assert_eq!(since.grew("terrace_tier_bytes", &used("slow")), PUT_BYTES as f64);
    assert_eq!(since.grew("terrace_tier_bytes", &used("fast")), 9.0 * PUT_BYTES as f64);
    for (from, to, count) in [("fast", "slow", 2.0), ("slow", "fast", 1.0)] {
        let pair = [("from", from), ("to", to)];
        let ended = [pair[0], pair[1], ("action", "move"), ("outcome", "done")];
        assert_eq!(after.value("terrace_migrations_total", &ended), count, "{from} to {to}");
        let copied = after.value("terrace_migration_copied_bytes_total", &ended);
        assert_eq!(copied, count * PUT_BYTES as f64);
        assert_eq!(after.value("terrace_migration_duration_seconds_count", &pair), count);
        let out = [("tier", from), ("direction", "out")];
        assert_eq!(after.value("terrace_tier_migration_bytes_total", &out), copied);
    }
    assert_eq!(after.value("terrace_migrations_active", &[]), 0.0);
    let not_found = [("server", "network"), ("error", "not-found")];
    // Each put looks first whether there is a part of an object over several servers, which it refuses.
    assert_eq!(since.grew("terrace_server_errors_total", &not_found), 10.0 + 1.0);
    let reads = after
        .value("terrace_tier_operation_seconds_count", &[("tier", "fast"), ("operation", "read")]);
    // The command's counters are the same.
    let tiers = scene.json(with(&store, &["tiers"]))[0]["tiers"].clone();
    for tier in tiers.as_array().expect("tiers") {
        let name = tier["name"].as_str().expect("a name");
        for (word, count, bytes) in
            [("read", "reads", "read_bytes"), ("write", "writes", "written_bytes")]
        {
            let labels = [("tier", name), ("operation", word)];
            let value =
                |part: &str| after.value(&format!("terrace_tier_operation_{part}"), &labels);
            let ledger = |part: &str| tier["ledger"][part].as_f64().expect("a number");
            assert_eq!(value("seconds_count"), ledger(count), "{name} {word}");
            assert_eq!(value("bytes_total"), ledger(bytes), "{name} {word}");
        }
    }
    assert_eq!(reads, 0.0, "nothing was read");
    // One request more, and its answer: it is counted before its client has that.
    let status = scene.json(with(&store, &["server", "status"]));
    let requests = served.scrape().value("terrace_server_requests_total", &[("server", "network")]);
    assert!(requests > after.value("terrace_server_requests_total", &[("server", "network")]));
    assert_eq!(status[0]["requests"].as_f64().expect("a number"), requests);
    served.stop();
}

#[test]
fn every_documented_metric_of_a_store_occurs() {
    let scene = Scene::with_policy();
    let settings = scene.read("store/terrace.toml");
    let settings = String::from_utf8(settings).expect("text");
    let powered = settings
        .replace("name = \"fast\"", "name = \"fast\"\nidle_power = \"5W\"\nactive_power = \"9W\"");
    assert_ne!(settings, powered);
    scene.file("store/terrace.toml", powered);
    let held = Watched::start(&scene, &["hold"]);
    // Three of them are more than the policy leaves on the first tier, and less than the stack does.
    scene.file("in", vec![1; 320_000]);
    for number in 0..8 {
        scene.ok(["put", &format!("run/{number}"), "in"]);
    }
    scene.fails(3, ["get", "run/none"]);
    // A file of a tier that has lost its end.
    scene.ok(["put", "lost/one", "in"]);
    let explained = scene.json(["explain", "lost/one"]);
    let segment = &explained[0]["segments"][0];
    let (tier, path) = (segment["tier"].as_str(), segment["path"].as_str());
    let file = scene.path(tier.expect("a tier")).join(path.expect("a path"));
    scene.ok(["pin", "lost/one"]);
    let file = std::fs::File::options().write(true).open(file).expect("it is there");
    file.set_len(10).expect("it can be cut");
    assert_ne!(scene.run(["get", "lost/one", "out"]).status, Some(0));
    let done = [("outcome", "done")];
    let scrape = held.scrape_until(|scrape| {
        scrape.get("terrace_policy_receipts_total", &done).is_some_and(|count| count > 0.0)
    });
    let failed = [("tier", tier.expect("a tier")), ("error", "corrupt")];
    assert!(scrape.value("terrace_tier_errors_total", &failed) >= 1.0);
    let documented = documented();
    let is_here = |name: &&str| !name.starts_with("terrace_mount");
    let expected: BTreeSet<_> = documented.keys().map(String::as_str).filter(is_here).collect();
    let found: BTreeSet<_> = scrape.families.keys().map(String::as_str).collect();
    assert_eq!(found, expected);
    for (name, row) in documented.iter().filter(|(name, _)| is_here(&name.as_str())) {
        let family = &scrape.families[name];
        let unit = family.unit.clone().unwrap_or_default();
        assert_eq!((&family.kind, &unit, &scrape.labels(name)), (&row.0, &row.1, &row.2), "{name}");
    }
    for name in watched_names().iter().filter(|name| !name.starts_with("terrace_mount")) {
        assert!(scrape.names().contains(name.as_str()), "{name} is in a dashboard or a rule alone");
    }
    let energy = scrape.value("terrace_tier_modelled_energy_joules_total", &[("tier", "fast")]);
    assert!(energy > 0.0);
    assert_eq!(
        scrape.get("terrace_tier_idle_watts", &[("tier", "slow")]),
        None,
        "none was configured"
    );
    // Two tiers, one policy: what a large store has more are tiers and pairs of them.
    assert!(scrape.series() < 1000, "{} series", scrape.series());
    held.stop();
}

/// The rows of the reference: type, unit and labels by name.
fn documented() -> BTreeMap<String, (String, String, BTreeSet<String>)> {
    let page = include_str!("../../../../docs/reference/metrics.md");
    let is_row = |line: &&str| line.starts_with("| `terrace_") || line.starts_with("| `process_");
    let rows = page.lines().filter(is_row);
    let rows = rows.map(|line| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, unit, labels, _] = cells[..] else { panic!("five cells: {line}") };
        let labels = labels.split(", ").map(|label| label.trim_matches('`').to_string());
        let labels = labels.filter(|label| !label.is_empty()).collect();
        (name.trim_matches('`').to_string(), (kind.into(), unit.into(), labels))
    });
    rows.collect()
}

#[test]
fn scrapes_go_on_while_a_store_closes() {
    let scene = Scene::with_policy();
    secret(&scene);
    let served =
        Watched::start(&scene, &["serve", "--listen", "127.0.0.1:0", "--secret-file", "secret"]);
    scene.file("in", vec![1; 300_000]);
    for number in 0..4 {
        scene.ok(["put", &format!("run/{number}"), "in"]);
    }
    let (metrics, process) = (served.metrics.clone(), &served.child);
    let scrapes = thread::scope(|scope| {
        let scraping = scope.spawn(|| {
            let mut scrapes = 0;
            // Until nothing listens any more; each answer before that is whole and valid, or none came.
            loop {
                match Scrape::of(&metrics) {
                    Ok(_) => scrapes += 1,
                    Err(wrong) if wrong.starts_with("no connection: Connection refused") => {
                        return scrapes;
                    }
                    // The exporter ended before it had read the request.
                    Err(wrong) => assert!(
                        wrong.starts_with("no connection: ") || wrong == "no head",
                        "{wrong}"
                    ),
                }
            }
        });
        SystemClock::default().sleep(Duration::from_millis(200));
        signal(process, Signal::TERM);
        scraping.join().expect("every answer is valid")
    });
    assert!(scrapes > 0);
    let mut served = served;
    assert!(served.child.wait().expect("it ends").success());
    scene.ok(["fsck", "--verify"]);
}

#[test]
fn an_address_in_use_costs_only_the_metrics() {
    let scene = Scene::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = listener.local_addr().expect("an address").to_string();
    let hold = |address: &str| {
        let mut command = scene.command(["hold", "--for", "10ms", "--metrics"]);
        command.arg(address).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command.spawn().expect("the binary runs"))
    };
    let ran = hold(&taken);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("no metrics") && ran.stderr.contains(&taken), "{ran:?}");
    assert!(!ran.stdout.contains("metrics on"), "{ran:?}");
    // A wrong address is an error; an empty one is none.
    let ran = hold("here");
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    let ran = hold("");
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
}

#[test]
fn a_textfile_has_the_tiers_of_a_store_that_no_process_holds() {
    let scene = Scene::new();
    scene.ok_with(&[1; 5000], ["put", "run/1"]);
    for _ in 0..2 {
        assert_eq!(scene.ok(["tiers", "--textfile", "terrace.prom"]), "");
    }
    let text = String::from_utf8(scene.read("terrace.prom")).expect("text");
    assert!(text.contains("\nterrace_tier_bytes{tier=\"fast\",class=\"used\"} 5000\n"), "{text}");
    // The older format has counters by the names of their samples.
    assert!(text.contains("# TYPE terrace_tier_operation_bytes_total counter\n"), "{text}");
    let left = scene.files("").into_iter().filter(|name| name.contains(".terrace-tiers"));
    assert_eq!(left.count(), 0, "what it wrote first is left behind");
    let line = scene.fails(2, ["tiers", "--textfile", "store/terrace.prom"]);
    assert!(line.contains("store/terrace.prom"), "{line}");
}

#[test]
fn a_socket_of_a_directory_answers_scrapes() {
    use std::io::{Read, Write};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    let scene = Scene::new();
    secret(&scene);
    let served = Served::start_with(&scene, |command| {
        command.args(["--metrics", "unix:metrics"]);
    });
    let path = scene.path("metrics");
    let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it is taken");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let (_, body) = text.split_once("\r\n\r\n").expect("a body");
    Scrape::parse(body).expect("valid");
    assert_eq!(served.stop().0, Some(0));
    assert!(!path.exists());
}
