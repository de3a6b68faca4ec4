// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::path::{Path, PathBuf};
use std::time::Duration;

use terrace_backends::object::{OpendalSettings, RadosSettings, S3Settings};
use terrace_core::{Error, ErrorKind, Persistency, PostEvents, Prices};

use super::section::SECTIONS;
use super::*;

const TIER: &str = "[[tier]]\nname = \"t\"\npath = \"t\"\n";

/// Every wrong configuration with the place of the error and words of its message.
#[rustfmt::skip]
const REFUSED: &[(&str, &str, &[&str])] = &[
    // The text itself.
    ("", "1:1", &["no tier", "[[tier]]"]),
    ("[store\n", "1:7", &["]"]),
    ("[store]\npersistency = \n", "2:15", &[]),
    ("[[tier]]\nname = \"a\"\nname = \"b\"", "3:1", &["duplicate key"]),
    ("[[tier]]\nname = \"ä\" x", "2:12", &[]),
    // Keys.
    ("[stor]\n", "1:2", &["`stor`", "did you mean `store`? known are store, tier, catalog"]),
    ("[tiers]\n", "1:2", &["did you mean `tier`?"]),
    ("persistency = \"none\"\n", "1:1", &["`persistency`", "it belongs in [store]; known are store, tier"]),
    ("[store]\ncapacity = \"1GB\"", "2:1", &["`capacity`", "it belongs in [[tier]]; known are persistency"]),
    ("[store]\ncolour = 1", "2:1", &["`colour`", "known are persistency, move_threads"]),
    ("[store]\nmove-threads = 1", "2:1", &["did you mean `move_threads`?"]),
    ("[[tier]]\nname = \"a\"\n  capcity = \"1GB\"", "3:3", &["did you mean `capacity`? known are name, backend"]),
    ("[[tier]]\nname = \"a\"\nzeta = 1\nalpha = 1", "3:1", &["`zeta`"]),
    ("[[tier]]\nname = \"a\"\nwatermarks = { hihg = 0.9 }", "3:16", &["did you mean `high`? known are low, high, critical"]),
    ("[[tier]]\nname = \"a\"\nthrottle = { latncy = \"1s\" }", "3:14", &["did you mean `latency`? known are latency,"]),
    ("TIER[catalog]\nengin = \"fjall\"", "5:1", &["did you mean `engine`? known are engine, path"]),
    ("TIER[policy]\nname = \"lru\"\nevrey = \"1s\"", "6:1", &["did you mean `every`? known are name, library"]),
    // Types and units.
    ("store = 1\n", "1:9", &["`store` is the number 1", "one section [store] is expected"]),
    ("[tier]\nname = \"a\"", "1:1", &["[[tier]]", "expected"]),
    ("tier = [1]", "1:9", &["[[tier]]"]),
    ("[[store]]\npersistency = \"none\"", "1:1", &["an array", "one section [store]"]),
    ("[store]\npersistency = 1", "2:15", &["the number 1", "\"process\""]),
    ("[store]\npersistency = \"disk\"", "2:15", &["\"disk\"", "none, process, storage, shared"]),
    ("[store]\nmove_threads = 0", "2:16", &["a whole number from 1 to 1024"]),
    ("[store]\nobjects_in_memory = 63", "2:21", &["a whole number from 64 to 268435456"]),
    ("[store]\nmove_threads = \"4\"", "2:16", &["\"4\"", "a whole number"]),
    ("[store]\nmove_threads = 99999999999999999999", "2:16", &["from 1 to 1024"]),
    ("[store]\nmove_bandwidth = \"3GB\"\nTIER", "2:18", &["\"3GB\"", "\"3GB/s\""]),
    ("[store]\nmove_bandwidth = \"0B/s\"\nTIER", "2:18", &["above zero"]),
    ("[scrub]\nevery = \"0s\"\nTIER", "2:9", &["above zero"]),
    ("[scrub]\nbandwidth = \"0B/s\"\nTIER", "2:13", &["above zero"]),
    ("[store]\nmove_yields = \"no\"", "2:15", &["\"no\"", "true or false"]),
    ("TIERcapacity = 200", "4:12", &["tier \"t\"", "the number 200", "\"200GB\""]),
    ("TIERcapacity = \"0GB\"", "4:12", &["`capacity` is zero", "above zero"]),
    ("TIERcapacity = \"200\"", "4:12", &["\"200\"", "KiB"]),
    ("TIERlatency = \"80\"", "4:11", &["\"80us\""]),
    ("TIERlatency = \"999999d\"", "4:11", &["too long", "\"80us\""]),
    ("TIERlatency = \"1ms\"\nseek = \"2ms\"", "5:8", &["`seek` is above `latency`"]),
    ("TIERwrite_burst = \"1GB\"", "4:15", &["`sustained_write_bandwidth`", "both or none"]),
    ("TIERsustained_write_bandwidth = \"1GB/s\"", "4:29", &["`write_burst`"]),
    (
        "TIERread_bandwidth = \"2GB/s\"\ntotal_bandwidth = \"1GB/s\"",
        "5:19",
        &["`total_bandwidth` is below"],
    ),
    ("TIERmove_cpu = \"1ms\"", "4:12", &["says nothing without `move_latency`"]),
    ("TIERcpu_share = 1.5", "4:13", &["above 0 and at most 1"]),
    ("TIERtotal_bandwidth = \"1GB/s\"", "4:19", &["says nothing without the bandwidth"]),
    ("TIERcached_latency = \"1us\"", "4:18", &["`cached_bandwidth`", "both or none"]),
    ("TIERcached_bandwidth = \"1GB/s\"", "4:20", &["`cached_latency`"]),
    ("TIERrecently_used = 0.5", "4:17", &["recently_used"]),
    ("TIERrecently_used = { much = 0.5 }", "4:19", &["much = 0.5", "4MiB = 0.5"]),
    ("TIERrecently_used = { 4MiB = \"half\" }", "4:19", &["a size and a number"]),
    ("TIERrecently_used = { 4MiB = 1.5 }", "4:19", &["with 1.5", "at most 1"]),
    ("TIERrecently_used = { 0B = 0.5 }", "4:19", &["above zero"]),
    ("TIERparallelism = 0", "4:15", &["from 1 to 65536"]),
    ("TIERparallelism = 1.5", "4:15", &["the number 1.5", "a whole number"]),
    ("TIERidle_power = \"5\"", "4:14", &["\"5W\""]),
    ("TIERprice_per_gb_month = -0.01", "4:22", &["`price_per_gb_month` is the number -0.01", "at least 0"]),
    ("TIERprice_per_gb_read = inf", "4:21", &["`price_per_gb_read` is the number inf", "finite"]),
    ("TIERprice_per_1000_read_requests = nan", "4:32", &["`price_per_1000_read_requests`", "finite"]),
    ("TIERprice_per_1000_write_requests = \"1 EUR\"", "4:33", &["`price_per_1000_write_requests`", "such as 0.023"]),
    ("TIERprice_per_gb_reads = 1", "4:1", &["no `price_per_gb_reads`", "did you mean `price_per_gb_read`"]),
    ("TIERwatermarks = 0.9", "4:14", &["{ low = … }", "low, high, critical"]),
    ("TIERthrottle = true", "4:12", &["`throttle` is true", "latency"]),
    // Buckets.
    ("[[tier]]\nname = \"t\"\nbackend = \"s3\"", "1:1", &["no `bucket`", "the name of one"]),
    ("[[tier]]\nname = \"t\"\nbackend = \"s3\"\nregion = \"x\"", "4:10", &["says nothing without `bucket`"]),
    ("BUCKETpath = \"x\"", "5:8", &["a s3 tier", "no `path`"]),
    ("TIERbucket = \"b\"", "4:10", &["a file tier has no `bucket`", "the backend s3"]),
    ("[[tier]]\nname = \"t\"\nbucket = \"a b\"", "3:10", &["\"a b\"", "letters from a to z"]),
    ("BUCKETprefix = \"/a\"", "5:10", &["\"/a\"", "one `/` between"]),
    ("BUCKETprefix = \"a/../b\"", "5:10", &["one `/` between"]),
    ("BUCKETendpoint = \"s3.example.org\"", "5:12", &["http:// or https://"]),
    ("BUCKETendpoint = \"https://me:secret@host\"", "5:12", &["without user and password"]),
    ("BUCKETdeadline = \"6min\"", "5:12", &["at most 5min"]),
    ("BUCKET[catalog]\nengine = \"memory\"\n[store]\npersistency = \"none\"", "6:10", &["memory catalog forgets", "s3 tier"]),
    // Pools.
    ("[[tier]]\nname = \"t\"\nbackend = \"rados\"", "1:1", &["no `pool`", "the name of one"]),
    ("POOLpath = \"x\"", "5:8", &["a rados tier", "no `path`"]),
    ("POOLbucket = \"b\"", "5:10", &["a rados tier has no `bucket`", "the backend s3"]),
    ("BUCKETpool = \"p\"", "5:8", &["a s3 tier has no `pool`", "the backend rados"]),
    ("TIERpool = \"p\"", "4:8", &["a file tier has no `pool`", "the backend rados"]),
    ("TIERuser = \"u\"", "4:8", &["says nothing without `pool`"]),
    ("TIERdeadline = \"5s\"", "4:12", &["without `bucket`, `pool` or `service`"]),
    ("POOLnamespace = \"a/b\"", "5:13", &["\"a/b\"", "letters from a to z"]),
    ("POOLuser = \"client.\"", "5:8", &["letters from a to z"]),
    ("POOLkeyring = \"\"", "5:11", &["`keyring` is \"\"", "a path"]),
    ("POOLdeadline = \"500ms\"", "5:12", &["1s to 5min"]),
    ("POOL[catalog]\nengine = \"memory\"\n[store]\npersistency = \"none\"", "6:10", &["memory catalog forgets", "rados tier"]),
    ("POOL[store]\npersistency = \"shared\"", "6:15", &["\"shared\"", "a tier in a bucket"]),
    ("[store]\npersistency = \"shared\"\nTIER", "2:15", &["\"shared\"", "a tier in a bucket"]),
    // Services.
    ("[[tier]]\nname = \"t\"\nbackend = \"opendal\"", "1:1", &["no `service`"]),
    ("[[tier]]\nname = \"t\"\nservice = \"ftp\"", "3:11", &["\"ftp\"", "webdav is expected"]),
    ("[[tier]]\nname = \"t\"\nservice = \"webdav\"", "1:1", &["no `root`"]),
    ("TIERroot = \"x\"", "4:8", &["says nothing without `service`"]),
    ("TIERservice = \"webdav\"\nroot = \"x\"\nendpoint = \"https://h\"", "4:11", &["a file tier has no `service`", "the backend opendal"]),
    ("SERVICEpath = \"x\"", "7:8", &["a opendal tier", "no `path`"]),
    ("SERVICEbucket = \"b\"", "7:10", &["a opendal tier has no `bucket`", "the backend s3"]),
    ("SERVICEprefix = \"b\"", "7:10", &["says nothing without `bucket`"]),
    ("SERVICEdeadline = \"6min\"", "7:12", &["at most 5min"]),
    ("[store]\npersistency = \"shared\"\n[[tier]]\nname = \"f\"\npath = \"f\"\nSERVICE", "2:15", &["\"shared\"", "no conditional write"]),
    ("SERVICE[catalog]\nengine = \"memory\"\n[store]\npersistency = \"none\"", "8:10", &["memory catalog forgets", "opendal tier"]),
    ("[[tier]]\nname = \"t\"\nbackend = \"opendal\"\nservice = \"webdav\"\nroot = \"x\"", "1:1", &["no `endpoint`"]),
    ("[[tier]]\nname = \"t\"\nbackend = \"opendal\"\nservice = \"webdav\"\nroot = \"a/../b\"\nendpoint = \"https://h\"", "5:8", &["no directory", "below `endpoint`"]),
    ("[[tier]]\nname = \"t\"\nbackend = \"opendal\"\nservice = \"webdav\"\nroot = \"x\"\nendpoint = \"https://me:secret@h\"", "6:12", &["without user and password"]),
    // Tiers.
    ("[[tier]]\npath = \"a\"", "1:1", &["no `name`", "\"fast\""]),
    ("[[tier]]\nname = \"\"\npath = \"a\"", "2:8", &["letters"]),
    ("[[tier]]\nname = \"a/b\"\npath = \"a\"", "2:8", &["\"a/b\"", "letters"]),
    ("[[tier]]\nname = \"täglich\"\npath = \"a\"", "2:8", &["letters"]),
    ("TIER[[tier]]\nname = \"t\"\npath = \"u\"", "5:8", &["tiers 1 and 2", "different"]),
    ("TIERbackend = \"fiel\"", "4:11", &["did you mean \"file\"?", "file, memory, null"]),
    ("[[tier]]\nname = \"a\"", "1:1", &["no `path`", "directory"]),
    ("TIERbackend = \"memory\"", "3:8", &["a memory tier", "no `path`"]),
    ("TIERbackend = \"null\"", "3:8", &["a null tier", "no `path`"]),
    ("[[tier]]\nname = \"a\"\npath = \"\"", "3:8", &["a path such as"]),
    ("[[tier]]\nname = \"a\"\npath = \"a\\u0000\"", "3:8", &["a path such as"]),
    ("TIERactive_power = \"1W\"\nidle_power = \"2W\"", "4:16", &["below `idle_power`"]),
    ("TIERbandwidth = \"1GB/s\"\nread_bandwidth = \"1GB/s\"\nwrite_bandwidth = \"1GB/s\"", "4:13",
        &["`bandwidth`", "two of the three"]),
    ("TIERwatermarks = { low = 0.95 }", "4:22", &["`low` (0.95) is above `high` (0.9)", "<="]),
    ("TIERwatermarks = { high = 0.98 }", "4:23", &["`high` (0.98) is above `critical` (0.97)"]),
    ("TIERwatermarks = { low = 0 }", "4:22", &["above 0 and at most 1"]),
    ("TIERwatermarks = { critical = 1.01 }", "4:27", &["above 0 and at most 1"]),
    ("TIERwatermarks.high = nan", "4:19", &["above 0 and at most 1"]),
    ("TIERcompress = \"gzip\"", "4:12", &["`compress` is \"gzip\"", "\"zstd:1\" to \"zstd:19\""]),
    ("TIERcompress = \"zstd:20\"", "4:12", &["\"zstd:1\" to \"zstd:19\""]),
    ("TIERcompress = \"zstd:-1\"", "4:12", &["\"none\""]),
    ("TIERpacked_share = 0.5", "4:16", &["without `compress`"]),
    ("TIERcompress = \"zstd:1\"\npacked_share = 0", "5:16", &["above 0"]),
    ("TIERkeep_deleted = \"7d\"", "4:16", &["`keep_deleted`", "whole objects", "in place"]),
    ("POOLkeep_deleted = \"7d\"", "5:16", &["`keep_deleted`", "whole objects", "in place"]),
    ("TIERcompress = \"zstd:1\"\nkeep_deleted = \"0s\"", "5:16", &["above zero"]),
    ("TIERencrypt = \"\"", "4:11", &["`encrypt` is \"\"", "a path"]),
    ("TIERthrottle = {}", "4:12", &["slows nothing down", "`latency`"]),
    ("TIERthrottle = { latency = \"0s\" }", "4:24", &["slows nothing down"]),
    ("TIERthrottle = { parallelism = 3 }", "4:12", &["slows nothing down"]),
    ("TIERthrottle = { parallelism = 0 }", "4:28", &["from 1 to"]),
    ("TIERthrottle = { bandwidth = \"fast\" }", "4:26", &["\"3GB/s\""]),
    // Paths.
    ("TIER[[tier]]\nname = \"u\"\npath = \"./t/.\"", "6:8", &["also that of tier \"t\""]),
    ("TIER[[tier]]\nname = \"u\"\npath = \"t/u\"", "6:8", &["inside that of tier \"t\"", "own"]),
    ("[[tier]]\nname = \"u\"\npath = \"a/b\"\n[[tier]]\nname = \"o\"\npath = \"a\"", "6:8",
        &["tier \"o\"", "around that of tier \"u\""]),
    ("[[tier]]\nname = \"u\"\npath = \"catalog/x\"", "3:8", &["inside that of the catalog"]),
    ("TIER[catalog]\ncheckpoint = \"t/c\"", "5:14", &["inside that of tier \"t\""]),
    ("TIER[catalog]\ncheckpoint = 1", "5:14", &["a text such as", "true or false"]),
    ("TIER[catalog]\ncheckpoint = false\ncheckpoint_every = \"1min\"", "6:20",
        &["`checkpoint` is false"]),
    ("TIER[catalog]\npath = \"t/c\"", "3:8", &["around that of the catalog (t/c)"]),
    ("[[tier]]\nname = \"u\"\npath = \".\"", "3:8", &["around that of the store's own terrace.toml"]),
    ("[[tier]]\nname = \"u\"\npath = \"..\"", "3:8", &["around that of the store's own"]),
    ("[[tier]]\nname = \"u\"\npath = \"lock\"", "3:8", &["the store's own lock"]),
    ("TIER[catalog]\npath = \"control.sock\"", "5:8", &["the store's own control.sock"]),
    // Catalog and persistency.
    ("TIER[trace]\npath = \"t/x\"", "5:8", &["inside that of tier \"t\""]),
    ("TIER[trace]\nmax_size = \"1MB\"", "5:12", &["too small", "4MiB"]),
    ("TIER[trace]\ndecisions = true\nhash_names = true", "6:14", &["decisions tell the names"]),
    ("TIER[trace]\ndecision = true", "5:1", &["did you mean `decisions`? known are path, decisions"]),
    ("TIER[catalog]\nengine = \"fjal\"", "5:10", &["did you mean \"fjall\"?", "fjall, lmdb, memory"]),
    ("TIER[catalog]\nengine = \"memory\"\npath = \"c\"", "6:8", &["no `path`", "fjall"]),
    ("TIER[catalog]\nengine = \"memory\"", "5:10", &["lost with the process", "\"none\""]),
    ("[store]\npersistency = \"none\"\nTIER[catalog]\nengine = \"memory\"", "7:10",
        &["forgets", "tier \"t\"", "fjall"]),
    ("[store]\npersistency = \"storage\"\n[[tier]]\nname = \"m\"\nbackend = \"memory\"", "2:15",
        &["no tier gives persistency \"storage\"", "persistency = \"none\""]),
    ("[[tier]]\nname = \"m\"\nbackend = \"memory\"", "3:11", &["\"process\" (the default)"]),
    // Policy.
    ("TIER[policy]\n", "4:1", &["neither `name` nor `library` nor `program`"]),
    ("TIER[policy]\nname = \"lru\"\nprogram = \"a.py\"", "6:11", &["`name` and `program`"]),
    ("TIER[policy]\nlibrary = \"a.so\"\nprogram = \"a.py\"", "6:11", &["`library` and `program`"]),
    ("TIER[policy]\nname = \"lru\"\nlibrary = \"a.so\"", "6:11", &["one of them"]),
    ("TIER[policy]\nname = \"lur\"", "5:8",
        &["did you mean \"lru\"?", "pinned, lru, write-buffer, size"]),
    ("TIER[policy]\nname = \"magic\"", "5:8", &["known are pinned"]),
    ("TIER[policy]\nlibrary = \"\"", "5:11", &["./liblru.so"]),
    ("TIER[policy]\nname = \"lru\"\nafter_events = 0", "6:16", &["from 1 to 1000000000"]),
    ("TIER[policy]\nname = \"lru\"\nevery = \"0s\"", "6:9", &["`every` is zero", "above zero"]),
    ("TIER[policy]\nname = \"lru\"\npost_events = \"during\"", "6:15",
        &["`post_events` is \"during\"", "\"after\" or \"before\""]),
    ("TIER[policy]\nname = \"lru\"\nround_bytes = \"0B\"", "6:15", &["above zero"]),
    ("TIER[policy]\nname = \"lru\"\ncall_time_max = 5", "6:17", &["\"80us\""]),
    ("TIER[policy]\nname = \"lru\"\ndry_run = 1", "6:11", &["true or false"]),
    ("TIER[policy]\nname = \"lru\"\nparameters = 1", "6:14", &["one section [policy.parameters]"]),
    ("TIER[policy]\nname = \"lru\"\n[policy.parameters]\nhigh = 0.9\nhihg = 0.9", "8:1",
        &["hihg", "high, low"]),
    ("TIER[policy]\nname = \"rules\"\nparameters.rules = \"\"\nfiles.rules = \"a\"", "7:7",
        &["`rules` is in `parameters`, too"]),
    ("TIER[policy]\nname = \"rules\"\nfiles = \"a\"", "6:9", &["one section [policy.files]"]),
    ("TIER[policy]\nname = \"lru\"\n[policy.parameters]\nhigh = 9", "7:1", &["from 0 to 1"]),
    ("TIER[policy]\nname = \"lru\"\n[policy.parameters]\nlow = 0.8\nhigh = 0.5", "6:1",
        &["together", "low"]),
    ("TIER[policy]\nname = \"lru\"\n[policy.parameters]\nhigh = [0.5]", "7:8",
        &["`high` is an array", "a text, a number"]),
];

/// A tier in a bucket, without anything that need not be there.
const BUCKET: &str = "[[tier]]\nname = \"t\"\nbackend = \"s3\"\nbucket = \"b\"\n";

/// The same in a pool.
const POOL: &str = "[[tier]]\nname = \"t\"\nbackend = \"rados\"\npool = \"p\"\n";

/// The same on a server.
const SERVICE: &str = "[[tier]]\nname = \"t\"\nbackend = \"opendal\"\nservice = \"webdav\"\n\
                       endpoint = \"https://h/dav\"\nroot = \"t/one\"\n";

fn filled(text: &str) -> String {
    text.replace("SERVICE", SERVICE)
        .replace("TIER", TIER)
        .replace("BUCKET", BUCKET)
        .replace("POOL", POOL)
}

fn refusal(text: &str) -> Error {
    match Settings::parse(&filled(text), "terrace.toml") {
        Ok(settings) => panic!("accepted:\n{text}\nas {settings:?}"),
        Err(error) => error,
    }
}

fn legal(text: &str) -> Settings {
    Settings::parse(&filled(text), "terrace.toml").unwrap_or_else(|error| {
        panic!("refused: {error}\n{text}");
    })
}

#[test]
fn a_mistake_is_refused_with_its_place_and_what_would_be_right() {
    let mut wrong = Vec::new();
    for (text, place, words) in REFUSED {
        let error = refusal(text);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let message = error.to_string();
        let place = format!("terrace.toml:{place}: ");
        let chain = error.chain();
        let lacks = words.iter().any(|word| !chain.contains(word));
        if !message.contains(&place) || lacks || message.contains('\n') {
            wrong.push(format!("{text}\n  expected {place}{words:?}\n  got {chain}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), REFUSED.len(), wrong.join("\n\n"));
}

#[test]
fn a_bucket_is_read() {
    let text = "TIERBUCKETprefix = \"a/b\"\nendpoint = \"http://127.0.0.1:9000\"\nregion = \"eu\"\n\
                credentials = \"keys\"\nprofile = \"me\"\ndeadline = \"5s\"\nkeep_deleted = \"7d\"\n";
    // Both examples have one name.
    let text = filled(text).replacen("name = \"t\"", "name = \"first\"", 1);
    let settings = legal(&text);
    let expected = S3Settings {
        bucket: "b".into(),
        prefix: "a/b".into(),
        endpoint: Some("http://127.0.0.1:9000".into()),
        region: Some("eu".into()),
        credentials: Some("keys".into()),
        profile: Some("me".into()),
        deadline: Duration::from_secs(5),
    };
    assert_eq!(settings.tiers[1].s3, Some(expected));
    assert_eq!(settings.tiers[1].keep_deleted, Some(Duration::from_secs(7 * 86_400)));
    let resolved = settings.resolved(Path::new("/srv/s")).expect("they are apart");
    let bucket = resolved.tiers[1].s3.clone().expect("it is one");
    assert_eq!(bucket.credentials, Some(PathBuf::from("/srv/s/keys")));
    let least = legal(&filled("TIERBUCKET").replacen("name = \"t\"", "name = \"first\"", 1));
    assert_eq!(least.tiers[1].s3, Some(S3Settings::new("b")));
}

#[test]
fn a_pool_is_read() {
    let text = "POOLnamespace = \"one\"\nuser = \"client.me\"\nconf = \"/etc/ceph/other.conf\"\n\
                keyring = \"key\"\ndeadline = \"5s\"\n";
    let settings = legal(text);
    let expected = RadosSettings {
        namespace: "one".into(),
        user: "me".into(),
        configuration: Some("/etc/ceph/other.conf".into()),
        keyring: Some("key".into()),
        deadline: Duration::from_secs(5),
        ..RadosSettings::new("p")
    };
    assert_eq!(settings.tiers[0].rados, Some(expected));
    let resolved = settings.resolved(Path::new("/srv/s")).expect("they are apart");
    let pool = resolved.tiers[0].rados.clone().expect("it is one");
    assert_eq!(pool.keyring, Some(PathBuf::from("/srv/s/key")));
    assert_eq!(pool.configuration, Some(PathBuf::from("/etc/ceph/other.conf")));
    assert_eq!(legal("POOL").tiers[0].rados, Some(RadosSettings::new("p")));
}

#[test]
fn a_directory_of_a_service_is_read() {
    let settings =
        legal("SERVICEcredentials = \"keys\"\ndeadline = \"5s\"\nkeep_deleted = \"7d\"\n");
    let expected = OpendalSettings {
        credentials: Some("keys".into()),
        deadline: Duration::from_secs(5),
        ..OpendalSettings::webdav("https://h/dav", "t/one")
    };
    assert_eq!(settings.tiers[0].opendal, Some(expected));
    assert!(settings.tiers[0].is_whole());
    let resolved = settings.resolved(Path::new("/srv/s")).expect("they are apart");
    let service = resolved.tiers[0].opendal.clone().expect("it is one");
    assert_eq!(service.credentials, Some(PathBuf::from("/srv/s/keys")));
    assert_eq!(service.root, PathBuf::from("t/one"), "it is the server's");
}

#[test]
fn more_tiers_than_a_stack_takes_are_refused_at_the_first_too_many() {
    let tier = |index| format!("[[tier]]\nname = \"t{index}\"\npath = \"t{index}\"\n");
    let most: String = (0..32).map(tier).collect();
    assert_eq!(legal(&most).tiers.len(), 32);
    let error = refusal(&(most + &tier(32))).to_string();
    assert!(error.contains("terrace.toml:97:1: ") && error.contains("at most 32"), "{error}");
}

#[test]
fn a_text_that_is_too_long_is_refused() {
    let error = refusal(&format!("{TIER}{}", " ".repeat(1 << 20))).to_string();
    assert!(error.contains("longer than"), "{error}");
}

#[test]
fn the_example_is_legal_and_lists_two_file_tiers_and_lru() {
    let settings = legal(&Settings::example());
    let tiers: Vec<_> =
        settings.tiers.iter().map(|tier| (tier.name.as_str(), tier.backend.as_str())).collect();
    assert_eq!(tiers, [("fast", "file"), ("slow", "file")]);
    let policy = settings.policy.expect("the example has one");
    assert_eq!(policy.source, PolicySource::Name("lru".into()));
}

/// A comment in the example is a setting that users will uncomment.
#[test]
fn the_comments_of_the_example_are_legal_too() {
    let uncommented = |line: &str| match line.strip_prefix("# ") {
        Some(rest) if rest.starts_with('[') || rest.contains(" = ") && !rest.contains('`') => {
            format!("{rest}\n")
        }
        _ => format!("{line}\n"),
    };
    let text: String = Settings::example().lines().map(uncommented).collect();
    let settings = legal(&text);
    assert_eq!(settings.move_bandwidth, Some(5e8));
    assert!(settings.tiers[1].throttle.is_some());
    assert!(!settings.policy.expect("given").parameters.is_empty());
}

#[test]
fn what_is_not_said_is_as_the_stack_has_it() {
    let settings = legal("TIER[policy]\nname = \"lru\"");
    let defaults = terrace_stack::Settings::default();
    assert_eq!(settings.persistency, defaults.persistency);
    assert_eq!(settings.move_threads, defaults.move_threads);
    assert_eq!(settings.move_bandwidth, defaults.move_bytes_per_s);
    assert_eq!(settings.move_yields, defaults.move_yields);
    assert_eq!(settings.objects_in_memory, defaults.entries_max);
    assert_eq!(settings.scrub_every, defaults.scrub_every);
    assert_eq!(settings.scrub_bandwidth, defaults.scrub_bytes_per_s);
    assert_eq!(settings.degraded, defaults.degraded);
    assert_eq!(settings.tiers[0].figures, Figures::default());
    assert_eq!(settings.tiers[0].watermarks, Watermarks::default());
    assert_eq!(settings.catalog.path, Path::new("catalog"));
    let policy = settings.policy.expect("given");
    let view = terrace_core::View::new(Vec::new(), 0);
    let pinned = terrace_policies::create("pinned", &view, &[]).expect("no parameters");
    let tactics = terrace_stack::Tactics::new("pinned", pinned);
    assert_eq!(policy.after_events, tactics.after_events);
    assert_eq!(policy.every, tactics.every);
    assert_eq!(policy.post_events, tactics.post_events);
    assert_eq!(policy.round_bytes, tactics.round_bytes);
    assert_eq!(policy.call_time_max, tactics.call_time_max);
    assert_eq!(policy.dry_run, tactics.is_dry_run);
}

#[test]
fn everything_that_is_said_is_read() {
    let settings = legal(
        "[store]\npersistency = \"none\"\nmove_threads = 0x10\nmove_bandwidth = \"1MB/s\"\n\
         move_yields = false\ndegraded = true\nobjects_in_memory = 1000\n\
         [[tier]]\nname = \"ram\"\nbackend = \"memory\"\ncapacity = \"1GiB\"\nlatency = \"80us\"\n\
         compress = \"zstd:3\"\nencrypt = \"cold.key\"\n\
         packed_share = 0.25\n\
         bandwidth = \"3GB/s\"\nwrite_bandwidth = \"2GB/s\"\nparallelism = 8\n\
         total_bandwidth = \"4GB/s\"\nidle_power = \"5W\"\n\
         seek = \"70us\"\nwrite_latency = \"20us\"\nwrite_burst = \"1GB\"\n\
         sustained_write_bandwidth = \"300MB/s\"\nsync_latency = \"3ms\"\ncreate_latency = \"90us\"\n\
         cached_latency = \"2us\"\ncached_bandwidth = \"5GB/s\"\n\
         recently_used = { 64MiB = 1, 2MiB = 0.25 }\n\
         cpu_share = 0.3\nmove_latency = \"400us\"\nmove_cpu = \"600us\"\n\
         active_power = \"9W\"\nprice_per_1000_write_requests = 0x10\nprice_per_1000_read_requests = 0.4\n\
         price_per_gb_month = 2.5e-2\nprice_per_gb_read = 0.09\nwatermarks = { low = 0.5, high = 1, critical = 1.0 }\n\
         throttle = { latency = \"1ms\", read_bandwidth = \"1GB/s\", parallelism = 2 }\n\
         [catalog]\nengine = \"memory\"\n\
         [scrub]\nevery = \"7d\"\nbandwidth = \"5MB/s\"\n\
         [policy]\nlibrary = \"./x.so\"\nafter_events = 7\nevery = \"2s\"\n\
         post_events = \"before\"\nround_bytes = \"1MB\"\n\
         call_time_max = \"1min\"\ndry_run = true\n\
         [policy.parameters]\nz = \"text\"\na = 1_000\nm = -0.5\nb = true\nh = 0xff\n\
         [policy.files]\nrules = \"site.toml\"\n\
         [trace]\npath = \"/var/t\"\ndecisions = true\nhash_names = false\nmax_size = \"8MiB\"",
    );
    let figures = Figures {
        capacity_bytes: 1 << 30,
        latency_ns: 80_000,
        read_bytes_per_s: 3e9,
        write_bytes_per_s: 2e9,
        parallelism: 8,
        idle_w: 5.0,
        active_w: 9.0,
        prices: Prices {
            per_1000_write_requests: 16.0,
            per_1000_read_requests: 0.4,
            per_gb_month: 0.025,
            per_gb_read: 0.09,
        },
    };
    let throttle = ThrottleSettings {
        latency: Duration::from_millis(1),
        read_bandwidth: Some(1e9),
        write_bandwidth: None,
        parallelism: 2,
    };
    let pairs = [("z", "text"), ("a", "1000"), ("m", "-0.5"), ("b", "true"), ("h", "255")];
    let expected = Settings {
        persistency: Persistency::None,
        move_threads: 16,
        move_bandwidth: Some(1e6),
        move_yields: false,
        degraded: true,
        objects_in_memory: 1000,
        scrub_every: Some(Duration::from_secs(7 * 86_400)),
        scrub_bandwidth: 5e6,
        tiers: vec![TierSettings {
            name: "ram".into(),
            backend: "memory".into(),
            path: None,
            s3: None,
            rados: None,
            opendal: None,
            compress: Some(Compress::Zstd(3)),
            encrypt: Some("cold.key".into()),
            packed_share: 0.25,
            keep_deleted: None,
            figures,
            device: DeviceSettings {
                seek: Duration::from_micros(70),
                write_latency: Some(Duration::from_micros(20)),
                total_bandwidth: Some(4e9),
                burst: Some(BurstSettings { bytes: 1_000_000_000, sustained_write_bandwidth: 3e8 }),
                create_latency: Duration::from_micros(90),
                sync_latency: Duration::from_millis(3),
                cached: Some(CachedSettings { latency: Duration::from_micros(2), bandwidth: 5e9 }),
                cpu_share: 0.3,
                switch: Some(SwitchSettings {
                    latency: Duration::from_micros(400),
                    cpu: Duration::from_micros(600),
                }),
            },
            recently_used: vec![(2 << 20, 0.25), (64 << 20, 1.0)],
            watermarks: Watermarks { low: 0.5, high: 1.0, critical: 1.0 },
            throttle: Some(throttle),
        }],
        catalog: CatalogSettings {
            engine: "memory".into(),
            path: "catalog".into(),
            checkpoint: CheckpointSettings::default(),
        },
        policy: Some(PolicySettings {
            source: PolicySource::Library("./x.so".into()),
            after_events: 7,
            every: Duration::from_secs(2),
            post_events: PostEvents::Before,
            round_bytes: 1_000_000,
            call_time_max: Duration::from_secs(60),
            dry_run: true,
            parameters: pairs.map(|(name, text)| (name.into(), text.into())).into(),
            files: vec![("rules".into(), "site.toml".into())],
        }),
        trace: Some(TraceSettings {
            path: "/var/t".into(),
            decisions: true,
            hash_names: false,
            max_bytes: 8 << 20,
        }),
    };
    assert_eq!(settings, expected);
}

#[test]
fn a_parameter_may_be_in_a_file_beside_the_configuration() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = legal("TIER[policy]\nname = \"rules\"\n[policy.files]\nrules = \"site.toml\"");
    let policy = settings.policy.clone().expect("given");
    let failed = policy.all_parameters(dir.path()).expect_err("no such file").to_string();
    assert!(failed.contains("parameter=rules") && failed.contains("site.toml"), "{failed}");
    let rules = "[[rule]]\naction = \"never\"\n";
    std::fs::write(dir.path().join("site.toml"), rules).expect("written");
    let expected = [("rules".to_string(), rules.to_string())];
    assert_eq!(policy.all_parameters(dir.path()).expect("a text"), expected);
    let resolved = settings.resolved(dir.path()).expect("no collision").policy.expect("given");
    assert_eq!(resolved.all_parameters("".as_ref()).expect("a text"), expected);
    std::fs::write(dir.path().join("site.toml"), [0xff; 10]).expect("written");
    let failed = policy.all_parameters(dir.path()).expect_err("no text").to_string();
    assert!(failed.contains("not UTF-8"), "{failed}");
}

#[test]
fn a_throttled_tier_has_the_figures_of_its_throttle() {
    let text = "TIERthrottle = { latency = \"50ms\", bandwidth = \"100MB/s\", parallelism = 4 }";
    let figures = legal(text).tiers[0].figures;
    assert_eq!((figures.latency_ns, figures.parallelism), (50_000_000, 4));
    assert_eq!((figures.read_bytes_per_s, figures.write_bytes_per_s), (1e8, 1e8));
    let throttle = |text| legal(text).tiers[0].throttle.expect("given").parallelism;
    assert_eq!(throttle("TIERparallelism = 3\nthrottle.latency = \"1s\""), 3);
    assert_eq!(throttle("TIERthrottle.latency = \"1s\""), 1);
    assert_eq!(
        legal(&format!("{text}\nlatency = \"9s\"")).tiers[0].figures.latency_ns,
        9_000_000_000
    );
}

#[test]
fn relative_paths_are_below_the_store() {
    let settings = legal("TIER[policy]\nlibrary = \"./x.so\"");
    assert_eq!(settings.tiers[0].path, Some(PathBuf::from("t")));
    let resolved = settings.resolved(Path::new("/srv/s")).expect("legal");
    assert_eq!(resolved.tiers[0].path, Some(PathBuf::from("/srv/s/t")));
    assert_eq!(resolved.catalog.path, Path::new("/srv/s/catalog"));
    let source = resolved.policy.expect("given").source;
    assert_eq!(source, PolicySource::Library("/srv/s/./x.so".into()));
    let resolved = legal("TIER[policy]\nprogram = \"x.py\"").resolved(Path::new("/srv/s"));
    let source = resolved.expect("legal").policy.expect("given").source;
    assert_eq!(source, PolicySource::Program("/srv/s/x.py".into()));
}

#[test]
fn paths_that_collide_only_in_this_directory_are_refused() {
    for (path, word) in [
        ("/srv/s/catalog", "also that of the catalog"),
        ("/srv/s/lock/x", "inside that of the store's own lock"),
        ("/srv", "around that of the store's own"),
        ("../s", "around that of the store's own"),
        ("/srv/../srv/s/t", "also that of tier \"t\""),
    ] {
        let text = format!("TIER[[tier]]\nname = \"u\"\npath = \"{path}\"");
        let error = legal(&text).resolved(Path::new("/srv/s")).expect_err(path).to_string();
        assert!(error.contains("tier \"u\": ") && error.contains(word), "{error}");
    }
    let beside = legal("TIER[[tier]]\nname = \"u\"\npath = \"../u\"");
    beside.resolved(Path::new("/srv/s")).expect("beside the store");
}

#[test]
fn a_file_is_named_in_its_errors() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("terrace.toml");
    let missing = Settings::read(&file).expect_err("not there yet");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    std::fs::write(&file, "[stor]").expect("a writable directory");
    let error = Settings::read(&file).expect_err("wrong").to_string();
    assert!(error.contains(&format!("{}:1:2: ", file.display())), "{error}");
    std::fs::write(&file, Settings::example()).expect("a writable directory");
    assert_eq!(Settings::read(&file).expect("legal"), legal(&Settings::example()));
}

#[test]
fn the_configuration_of_a_small_node_is_legal() {
    let settings = legal(include_str!("../../../../examples/small-node/terrace.toml"));
    assert!(settings.objects_in_memory < terrace_stack::Settings::default().entries_max);
    assert_eq!(settings.tiers.len(), 2);
}

/// What the code reads, the page defines: each key has a row in the table of its section.
#[test]
fn every_key_is_on_the_page_of_the_configuration() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/configuration.md");
    let page = std::fs::read_to_string(file).expect(file);
    for (section, keys) in SECTIONS.iter().filter(|(section, _)| !section.is_empty()) {
        let head = format!("\n## `{section}`\n");
        let (_, rest) = page.split_once(&head).unwrap_or_else(|| panic!("{file} lacks {head}"));
        let part = rest.split("\n## ").next().expect("a split has a first part");
        let rows: Vec<_> = part.lines().filter_map(|line| line.strip_prefix("| `")).collect();
        let listed: Vec<_> = rows.iter().filter_map(|row| row.split('`').next()).collect();
        assert_eq!(&listed, keys, "the rows of {section} in {file}");
    }
}

/// A page whose examples are wrong is worse than none.
#[test]
fn every_example_on_the_page_is_legal() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/configuration.md");
    let page = std::fs::read_to_string(file).expect(file);
    let examples: Vec<_> = page.split("```toml\n").skip(1).collect();
    assert!(examples.len() >= 4, "{} examples", examples.len());
    for example in examples {
        let text = example.split("```").next().expect("a split has a first part");
        let has_tier = text.contains("[[tier]]");
        legal(&if has_tier { text.into() } else { format!("{text}\n{TIER}") });
    }
}
