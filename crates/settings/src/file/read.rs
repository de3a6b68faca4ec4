// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From sections to settings, with the defaults.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use terrace_backends::object::{
    OpendalService, OpendalSettings, Packing, RadosSettings, S3Settings,
};
use terrace_core::{
    Figures, Persistency, PostEvents, Prices, Result, TierIndex, Watermarks, units,
};
use toml::Spanned;
use toml::de::DeTable;

use super::check::{self, Sections};
use super::section::{Section, Source};
use super::{
    BurstSettings, CachedSettings, CatalogSettings, CheckpointPlace, CheckpointSettings, Compress,
    DeviceSettings, PolicySettings, PolicySource, Settings, SwitchSettings,
};
use super::{ThrottleSettings, TierSettings, TraceSettings};
use crate::directory::TRACE;

/// More threads only wait for the same devices.
const MOVE_THREADS_MAX: usize = 1024;
/// One a shard at least; more than 100 GB is a slip.
const OBJECTS_IN_MEMORY: RangeInclusive<usize> = 64..=1 << 28;
/// More than any device or cluster serves without queueing.
const PARALLELISM_MAX: u32 = 65536;
/// A copy of the catalog of a million files takes seconds; what is lost in between is names.
/// A policy that is called more rarely than this has its `every`.
const AFTER_EVENTS_MAX: u64 = 1_000_000_000;

pub(super) fn read<'a>(source: Source<'a>, document: &'a Spanned<DeTable<'a>>) -> Result<Settings> {
    let whole = Section::whole(source, document)?;
    let mut sections = Sections {
        store: whole.section("store", "[store]")?,
        tiers: whole.sections("tier", "[[tier]]")?,
        catalog: whole.section("catalog", "[catalog]")?,
        policy: whole.section("policy", "[policy]")?,
        trace: whole.section("trace", "[trace]")?,
    };
    let scrub = whole.section("scrub", "[scrub]")?;
    let defaults = terrace_stack::Settings::default();
    let store = &sections.store;
    let settings = Settings {
        persistency: read_persistency(store)?.unwrap_or(defaults.persistency),
        move_threads: store
            .count("move_threads", 1..=MOVE_THREADS_MAX)?
            .unwrap_or(defaults.move_threads),
        move_bandwidth: store.rate("move_bandwidth")?,
        degraded: store.switch("degraded")?.unwrap_or(defaults.degraded),
        move_yields: store.switch("move_yields")?.unwrap_or(defaults.move_yields),
        objects_in_memory: store
            .count("objects_in_memory", OBJECTS_IN_MEMORY)?
            .unwrap_or(defaults.entries_max),
        scrub_every: scrub.interval("every")?,
        scrub_bandwidth: scrub.rate("bandwidth")?.unwrap_or(defaults.scrub_bytes_per_s),
        tiers: sections.tiers.iter_mut().map(read_tier).collect::<Result<_>>()?,
        catalog: read_catalog(&sections.catalog)?,
        policy: read_policy(&sections.policy)?,
        trace: read_trace(&sections.trace)?,
    };
    let count_max = TierIndex::COUNT_MAX;
    match sections.tiers.len() {
        0 => return Err(whole.wrong("tier", "there is no tier; at least one [[tier]] is expected")),
        count if count > count_max => {
            let reason = format!("there are {count} tiers; at most {count_max} are expected");
            return Err(sections.tiers[count_max].wrong("", reason));
        }
        _ => {}
    }
    check::check(&settings, &sections)?;
    Ok(settings)
}

fn read_persistency(store: &Section<'_>) -> Result<Option<Persistency>> {
    let Some(word) = store.text("persistency", "process")? else { return Ok(None) };
    word.parse().map(Some).map_err(|_| {
        let word = word.escape_debug();
        let right = "one of none, process, storage, shared is expected";
        store.wrong("persistency", format!("`persistency` is \"{word}\"; {right}"))
    })
}

fn read_tier(section: &mut Section<'_>) -> Result<TierSettings> {
    let name = section.text("name", "fast")?.ok_or_else(|| {
        section.wrong("name", "it has no `name`; a text such as \"fast\" is expected")
    })?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || !name.chars().all(is_plain) {
        let name = name.escape_debug();
        let right = "letters from a to z, digits, `_` and `-` are expected";
        return Err(section.wrong("name", format!("`name` is \"{name}\"; {right}")));
    }
    section.set_label(format!("tier \"{name}\""));
    let parallelism = section.count("parallelism", 1..=PARALLELISM_MAX)?;
    let throttle = read_throttle(&section.section("throttle", "throttle")?, parallelism)?;
    let figures = read_figures(section, parallelism, throttle.as_ref())?;
    Ok(TierSettings {
        name: name.into(),
        backend: section.text("backend", "file")?.unwrap_or("file").into(),
        path: read_path(section, "path", "fast")?,
        s3: read_bucket(section)?,
        rados: read_pool(section)?,
        opendal: read_service(section)?,
        compress: read_compress(section)?,
        packed_share: read_packed_share(section)?,
        keep_deleted: section.interval("keep_deleted")?,
        encrypt: read_path(section, "encrypt", "/etc/terrace/cold.key")?,
        device: read_device(section, &figures)?,
        recently_used: read_recently_used(section)?,
        figures,
        watermarks: read_watermarks(&section.section("watermarks", "watermarks")?)?,
        throttle,
    })
}

fn read_packed_share(section: &Section<'_>) -> Result<f64> {
    let share = section.share("packed_share")?.unwrap_or(1.0);
    let reason = if share <= 0.0 {
        "`packed_share` is 0; a number above 0 and at most 1 is expected"
    } else if section.has("packed_share") && !section.has("compress") {
        "`packed_share` says nothing without `compress`; both is expected"
    } else {
        return Ok(share);
    };
    Err(section.wrong("packed_share", reason))
}

fn read_compress(section: &Section<'_>) -> Result<Option<Compress>> {
    let Some(text) = section.text("compress", "zstd:3")? else { return Ok(None) };
    let level = |level: &str| level.parse().ok().filter(|level| Packing::LEVELS.contains(level));
    let compress = match text {
        "none" => Some(Compress::Off),
        _ => text.strip_prefix("zstd:").and_then(level).map(Compress::Zstd),
    };
    compress.map(Some).ok_or_else(|| {
        let (least, most) = Packing::LEVELS.into_inner();
        let text = text.escape_debug();
        let right = format!("\"zstd:{least}\" to \"zstd:{most}\", or \"none\", is expected");
        section.wrong("compress", format!("`compress` is \"{text}\"; {right}"))
    })
}

/// Longest deadline of a request to a bucket: its credentials and its signature must outlive it.
const DEADLINE_MAX: Duration = Duration::from_secs(300);

fn read_bucket(section: &Section<'_>) -> Result<Option<S3Settings>> {
    const OWN: [&str; 5] = ["prefix", "endpoint", "region", "credentials", "profile"];
    let Some(bucket) = section.text("bucket", "my-bucket")? else {
        if section.has("service") {
            // Which has some of the same keys.
            return check_alone(section, "bucket", &["prefix", "region", "profile"]).map(|()| None);
        }
        if section.has("deadline") && !section.has("pool") {
            let reason = "`deadline` says nothing without `bucket`, `pool` or `service`; both are \
                          expected";
            return Err(section.wrong("deadline", reason));
        }
        return check_alone(section, "bucket", &OWN).map(|()| None);
    };
    if let Some(right) = S3Settings::refusal_of_bucket(bucket) {
        let bucket = bucket.escape_debug();
        return Err(section.wrong("bucket", format!("`bucket` is \"{bucket}\"; {right}")));
    }
    let prefix = section.text("prefix", "terrace/store1")?.unwrap_or_default();
    let is_of_prefix =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/' | '=');
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.');
    let is_legal = prefix.chars().all(is_of_prefix) && prefix.split('/').all(is_part);
    if !prefix.is_empty() && !is_legal {
        let prefix = prefix.escape_debug();
        let right = "parts of letters from a to z, digits, `_`, `-`, `=` and `.` inside are \
                     expected, with one `/` between them";
        return Err(section.wrong("prefix", format!("`prefix` is \"{prefix}\"; {right}")));
    }
    let endpoint = read_endpoint(section, "https://s3.example.org")?;
    let deadline = read_deadline(section, S3Settings::DEADLINE)?;
    Ok(Some(S3Settings {
        bucket: bucket.into(),
        prefix: prefix.into(),
        endpoint: endpoint.map(Into::into),
        region: section.text("region", "eu-central-1")?.map(Into::into),
        credentials: read_path(section, "credentials", "/etc/terrace/s3-credentials")?,
        profile: section.text("profile", "default")?.map(Into::into),
        deadline,
    }))
}

/// The address of a service over HTTP.
fn read_endpoint<'a>(section: &Section<'a>, example: &str) -> Result<Option<&'a str>> {
    let Some(endpoint) = section.text("endpoint", example)? else { return Ok(None) };
    if let Some(right) = S3Settings::refusal_of_endpoint(endpoint) {
        return Err(section.wrong("endpoint", format!("`endpoint` is no address; {right}")));
    }
    Ok(Some(endpoint))
}

fn read_deadline(section: &Section<'_>, default: Duration) -> Result<Duration> {
    let deadline = section.duration("deadline")?.unwrap_or(default);
    if deadline.is_zero() || deadline > DEADLINE_MAX {
        let right = "a duration above zero and at most 5min is expected";
        return Err(section.wrong("deadline", format!("`deadline` is out of bounds; {right}")));
    }
    Ok(deadline)
}

fn read_service(section: &Section<'_>) -> Result<Option<OpendalSettings>> {
    let Some(name) = section.text("service", "webdav")? else {
        return check_alone(section, "service", &["root"]).map(|()| None);
    };
    let Some(service) = OpendalService::ALL.into_iter().find(|service| service.name() == name)
    else {
        let known = OpendalService::ALL.map(OpendalService::name).join(" or ");
        let name = name.escape_debug();
        return Err(
            section.wrong("service", format!("`service` is \"{name}\"; {known} is expected"))
        );
    };
    let root = read_path(section, "root", "terrace/store1")?.ok_or_else(|| {
        section
            .wrong("root", "it has no `root`; the directory of the tier, which exists, is expected")
    })?;
    let endpoint = read_endpoint(section, "https://cloud.example.org/remote.php/dav/files/me")?;
    let credentials = read_path(section, "credentials", "/etc/terrace/webdav-credentials")?;
    if endpoint.is_none() {
        let reason = "it has no `endpoint`; the address of the WebDAV server is expected";
        return Err(section.wrong("endpoint", reason));
    }
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && part.trim() == part;
    let text = root.to_str().unwrap_or_default().trim_matches('/');
    if !text.split('/').all(is_part) || text.contains(['%', '?', '#', '\\']) {
        let right = "a directory below `endpoint` is expected, such as \"terrace/store1\", as it \
                     is called and not as a URL";
        return Err(section.wrong("root", format!("`root` is no directory; {right}")));
    }
    Ok(Some(OpendalSettings {
        service,
        endpoint: endpoint.map(Into::into),
        root,
        credentials,
        deadline: read_deadline(section, OpendalSettings::DEADLINE)?,
    }))
}

/// Refuses keys that say nothing without `of`.
fn check_alone(section: &Section<'_>, of: &str, keys: &[&str]) -> Result<()> {
    let Some(key) = keys.iter().find(|key| section.has(key)) else { return Ok(()) };
    let reason = format!("`{key}` says nothing without `{of}`; both are expected");
    Err(section.wrong(key, reason))
}

fn read_pool(section: &Section<'_>) -> Result<Option<RadosSettings>> {
    const OWN: [&str; 4] = ["namespace", "user", "conf", "keyring"];
    let Some(pool) = section.text("pool", "my-pool")? else {
        return check_alone(section, "pool", &OWN).map(|()| None);
    };
    let name = |key: &str, text: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if !text.is_empty() && text.chars().all(is_plain) {
            return Ok(text.to_owned());
        }
        let text = text.escape_debug();
        let right = "letters from a to z, digits, `.`, `_` and `-` are expected";
        Err(section.wrong(key, format!("`{key}` is \"{text}\"; {right}")))
    };
    let optional =
        |key, example| section.text(key, example)?.map(|text| name(key, text)).transpose();
    let user = section.text("user", "terrace")?.unwrap_or(RadosSettings::USER);
    let deadline = section.duration("deadline")?.unwrap_or(RadosSettings::DEADLINE);
    // librados counts whole seconds.
    if deadline < Duration::from_secs(1) || deadline > DEADLINE_MAX {
        let right = "a duration of 1s to 5min is expected for a pool";
        return Err(section.wrong("deadline", format!("`deadline` is out of bounds; {right}")));
    }
    Ok(Some(RadosSettings {
        pool: name("pool", pool)?,
        namespace: optional("namespace", "store1")?.unwrap_or_default(),
        user: name("user", user.strip_prefix("client.").unwrap_or(user))?,
        configuration: read_path(section, "conf", "/etc/ceph/ceph.conf")?,
        keyring: read_path(section, "keyring", "/etc/ceph/ceph.client.terrace.keyring")?,
        deadline,
    }))
}

/// What is not given is as the throttle makes it: the tier is never faster than that.
fn read_figures(
    section: &Section<'_>,
    parallelism: Option<u32>,
    throttle: Option<&ThrottleSettings>,
) -> Result<Figures> {
    let defaults = throttle.map_or_else(Figures::default, |throttle| Figures {
        latency_ns: nanoseconds(throttle.latency),
        read_bytes_per_s: throttle.read_bandwidth.unwrap_or(f64::INFINITY),
        write_bytes_per_s: throttle.write_bandwidth.unwrap_or(f64::INFINITY),
        parallelism: throttle.parallelism,
        ..Figures::default()
    });
    let (read, write) = read_bandwidths(section)?;
    let idle_w = section.power("idle_power")?.unwrap_or(defaults.idle_w);
    let active_w = section.power("active_power")?.unwrap_or(idle_w);
    if active_w < idle_w {
        let reason = "`active_power` is below `idle_power`; at least as much is expected";
        return Err(section.wrong("active_power", reason));
    }
    Ok(Figures {
        capacity_bytes: section.size("capacity")?.unwrap_or(defaults.capacity_bytes),
        latency_ns: section.duration("latency")?.map_or(defaults.latency_ns, nanoseconds),
        read_bytes_per_s: read.unwrap_or(defaults.read_bytes_per_s),
        write_bytes_per_s: write.unwrap_or(defaults.write_bytes_per_s),
        parallelism: parallelism.unwrap_or(defaults.parallelism),
        idle_w,
        active_w,
        prices: Prices {
            per_1000_write_requests: section.price("price_per_1000_write_requests")?,
            per_1000_read_requests: section.price("price_per_1000_read_requests")?,
            per_gb_month: section.price("price_per_gb_month")?,
            per_gb_read: section.price("price_per_gb_read")?,
        },
    })
}

fn read_device(section: &Section<'_>, figures: &Figures) -> Result<DeviceSettings> {
    let seek = section.duration("seek")?.unwrap_or_default();
    if nanoseconds(seek) > figures.latency_ns {
        let reason =
            "`seek` is above `latency`, of which it is a part; at most as much is expected";
        return Err(section.wrong("seek", reason));
    }
    let total_bandwidth = section.rate("total_bandwidth")?;
    if total_bandwidth.is_some_and(|total| total < figures.read_bytes_per_s) {
        let reason = match figures.read_bytes_per_s.is_finite() {
            true => {
                "`total_bandwidth` is below the bandwidth of one read; at least as much is expected"
            }
            false => "`total_bandwidth` says nothing without the bandwidth of one read",
        };
        return Err(section.wrong("total_bandwidth", reason));
    }
    let bytes = section.size("write_burst")?;
    let burst = match (bytes, section.rate("sustained_write_bandwidth")?) {
        (Some(bytes), Some(sustained_write_bandwidth)) => {
            Some(BurstSettings { bytes, sustained_write_bandwidth })
        }
        (None, None) => None,
        (given, _) => {
            let reason = "one of `write_burst` and `sustained_write_bandwidth` says nothing \
                          without the other; both or none is expected";
            let key = if given.is_some() { "write_burst" } else { "sustained_write_bandwidth" };
            return Err(section.wrong(key, reason));
        }
    };
    let cached = match (section.duration("cached_latency")?, section.rate("cached_bandwidth")?) {
        (Some(latency), Some(bandwidth)) => Some(CachedSettings { latency, bandwidth }),
        (None, None) => None,
        (given, _) => {
            let reason = "one of `cached_latency` and `cached_bandwidth` says nothing without the \
                          other; both or none is expected";
            let key = if given.is_some() { "cached_latency" } else { "cached_bandwidth" };
            return Err(section.wrong(key, reason));
        }
    };
    let switch = match (section.duration("move_latency")?, section.duration("move_cpu")?) {
        (Some(latency), cpu) => Some(SwitchSettings { latency, cpu: cpu.unwrap_or_default() }),
        (None, None) => None,
        (None, Some(_)) => {
            let reason = "`move_cpu` says nothing without `move_latency`; both is expected";
            return Err(section.wrong("move_cpu", reason));
        }
    };
    Ok(DeviceSettings {
        seek,
        write_latency: section.duration("write_latency")?,
        total_bandwidth,
        burst,
        create_latency: section.duration("create_latency")?.unwrap_or_default(),
        sync_latency: section.duration("sync_latency")?.unwrap_or_default(),
        cached,
        cpu_share: section.share("cpu_share")?.unwrap_or_default(),
        switch,
    })
}

fn read_recently_used(section: &Section<'_>) -> Result<Vec<(u64, f64)>> {
    let pairs = section.pairs("recently_used", "[tier.recently_used]")?;
    let mut points = Vec::new();
    for (at, bytes, share) in &pairs {
        let point = (units::parse_bytes(bytes), share.parse::<f64>());
        let (Ok(bytes), Ok(share)) = point else {
            let reason = format!(
                "`recently_used` has {bytes} = {share}; a size and a number are expected, such as \
                 4MiB = 0.5"
            );
            return Err(section.wrong_at(*at, reason));
        };
        if !(share > 0.0 && share <= 1.0) || bytes == 0 {
            let reason = format!(
                "`recently_used` has {bytes} bytes with {share}; a size above zero with a number \
                 above 0 and at most 1 is expected"
            );
            return Err(section.wrong_at(*at, reason));
        }
        points.push((bytes, share));
    }
    points.sort_by_key(|(bytes, _)| *bytes);
    Ok(points)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("a section gives no longer ones")
}

fn read_throttle(
    section: &Section<'_>,
    tier_parallelism: Option<u32>,
) -> Result<Option<ThrottleSettings>> {
    if !section.is_given() {
        return Ok(None);
    }
    let latency = section.duration("latency")?.unwrap_or(Duration::ZERO);
    let (read_bandwidth, write_bandwidth) = read_bandwidths(section)?;
    let parallelism = section.count("parallelism", 1..=PARALLELISM_MAX)?.or(tier_parallelism);
    // Requests that take no time do not wait for each other either.
    if latency.is_zero() && read_bandwidth.is_none() && write_bandwidth.is_none() {
        let reason = "it slows nothing down; a `latency` above zero or a `bandwidth` is expected, \
                      or no throttle at all";
        return Err(section.wrong("latency", reason));
    }
    let parallelism = parallelism.unwrap_or(1);
    Ok(Some(ThrottleSettings { latency, read_bandwidth, write_bandwidth, parallelism }))
}

/// Of reads and of writes: `bandwidth` is for the one that has none of its own.
fn read_bandwidths(section: &Section<'_>) -> Result<(Option<f64>, Option<f64>)> {
    let both = section.rate("bandwidth")?;
    let read = section.rate("read_bandwidth")?;
    let write = section.rate("write_bandwidth")?;
    if both.is_some() && read.is_some() && write.is_some() {
        let reason = "`bandwidth` says nothing beside `read_bandwidth` and `write_bandwidth`; \
                      two of the three at most are expected";
        return Err(section.wrong("bandwidth", reason));
    }
    Ok((read.or(both), write.or(both)))
}

fn read_watermarks(section: &Section<'_>) -> Result<Watermarks> {
    let defaults = Watermarks::default();
    let watermarks = Watermarks {
        low: section.share("low")?.unwrap_or(defaults.low),
        high: section.share("high")?.unwrap_or(defaults.high),
        critical: section.share("critical")?.unwrap_or(defaults.critical),
    };
    let Watermarks { low, high, critical } = watermarks;
    let wrong = |key, reason: String| {
        let key = if section.has(key) { key } else { "high" };
        let right = "low <= high <= critical is expected";
        Err(section.wrong(key, format!("{reason}; {right} (defaults: 0.7, 0.9, 0.97)")))
    };
    if low > high {
        return wrong("low", format!("`low` ({low}) is above `high` ({high})"));
    }
    if high > critical {
        return wrong("critical", format!("`high` ({high}) is above `critical` ({critical})"));
    }
    Ok(watermarks)
}

fn read_catalog(section: &Section<'_>) -> Result<CatalogSettings> {
    let engine = section.text("engine", "fjall")?.unwrap_or("fjall").into();
    let path = read_path(section, "path", "catalog")?.unwrap_or_else(|| "catalog".into());
    let place = match section.switch_or_text("checkpoint", "/mnt/slow.checkpoint")? {
        None | Some(Err(true)) => CheckpointPlace::Tier,
        Some(Err(false)) => CheckpointPlace::Nowhere,
        Some(Ok(_)) => {
            let file = read_path(section, "checkpoint", "/mnt/slow.checkpoint")?;
            CheckpointPlace::File(file.expect("it has a text"))
        }
    };
    let every = section.interval("checkpoint_every")?;
    if every.is_some() && place == CheckpointPlace::Nowhere {
        let reason = "`checkpoint` is false; a path or true is expected with `checkpoint_every`";
        return Err(section.wrong("checkpoint_every", reason));
    }
    Ok(CatalogSettings { engine, path, checkpoint: CheckpointSettings { place, every } })
}

fn read_policy(section: &Section<'_>) -> Result<Option<PolicySettings>> {
    if !section.is_given() {
        return Ok(None);
    }
    let name = section.text("name", "lru")?;
    let library = read_path(section, "library", "./liblru.so")?;
    let program = read_path(section, "program", "./mine.py")?;
    let source = match (name, library, program) {
        (Some(name), None, None) => PolicySource::Name(name.into()),
        (None, Some(library), None) => PolicySource::Library(library),
        (None, None, Some(program)) => PolicySource::Program(program),
        (None, None, None) => {
            let reason = "there is neither `name` nor `library` nor `program`; one of them is \
                          expected, or no [policy] at all";
            return Err(section.wrong("name", reason));
        }
        (Some(_), Some(_), _) => {
            let reason = "there are `name` and `library`; one of them is expected";
            return Err(section.wrong("library", reason));
        }
        (name, _, Some(_)) => {
            let other = if name.is_some() { "name" } else { "library" };
            let reason = format!("there are `{other}` and `program`; one of them is expected");
            return Err(section.wrong("program", reason));
        }
    };
    let parameters = section.pairs("parameters", "[policy.parameters]")?;
    let files = section.pairs("files", "[policy.files]")?;
    if let Some((at, name, _)) =
        files.iter().find(|(_, name, _)| parameters.iter().any(|(_, other, _)| other == name))
    {
        let name = name.escape_debug();
        let reason = format!("`{name}` is in `parameters`, too; one of them is expected");
        return Err(section.wrong_at(*at, reason));
    }
    Ok(Some(PolicySettings {
        source,
        after_events: section.count("after_events", 1..=AFTER_EVENTS_MAX)?.unwrap_or(1000),
        every: section.interval("every")?.unwrap_or(Duration::from_millis(100)),
        post_events: read_post_events(section)?,
        round_bytes: section.size("round_bytes")?.unwrap_or(u64::MAX),
        call_time_max: section.interval("call_time_max")?.unwrap_or(Duration::from_secs(5)),
        dry_run: section.switch("dry_run")?.unwrap_or(false),
        parameters: parameters.into_iter().map(|(_, name, text)| (name, text)).collect(),
        files: files.into_iter().map(|(_, name, path)| (name, path.into())).collect(),
    }))
}

fn read_post_events(section: &Section<'_>) -> Result<PostEvents> {
    let Some(word) = section.text("post_events", "after")? else { return Ok(PostEvents::After) };
    PostEvents::ALL.into_iter().find(|one| one.word() == word).ok_or_else(|| {
        let word = word.escape_debug();
        let reason = format!("`post_events` is \"{word}\"; \"after\" or \"before\" is expected");
        section.wrong("post_events", reason)
    })
}

fn read_trace(section: &Section<'_>) -> Result<Option<TraceSettings>> {
    if !section.is_given() {
        return Ok(None);
    }
    let settings = TraceSettings {
        path: read_path(section, "path", TRACE)?.unwrap_or_else(|| TRACE.into()),
        decisions: section.switch("decisions")?.unwrap_or(false),
        hash_names: section.switch("hash_names")?.unwrap_or(false),
        max_bytes: section.size("max_size")?.unwrap_or(terrace_trace::MAX_BYTES_DEFAULT),
    };
    if settings.max_bytes < terrace_trace::MAX_BYTES_MIN {
        let reason = "`max_size` is too small for a trace; at least \"4MiB\" is expected";
        return Err(section.wrong("max_size", reason));
    }
    if settings.decisions && settings.hash_names {
        let reason = "decisions tell the names that `hash_names` hides; one of them is expected";
        return Err(section.wrong("hash_names", reason));
    }
    Ok(Some(settings))
}

fn read_path(section: &Section<'_>, key: &str, example: &str) -> Result<Option<PathBuf>> {
    match section.text(key, example)? {
        Some(path) if path.is_empty() || path.contains('\0') => {
            let path = path.escape_debug();
            let reason = format!("`{key}` is \"{path}\"; a path such as \"{example}\" is expected");
            Err(section.wrong(key, reason))
        }
        path => Ok(path.map(PathBuf::from)),
    }
}
