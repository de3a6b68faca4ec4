// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What settings may not say together, and names of things that there are not.

use std::collections::HashMap;

use terrace_backends::kv::ENGINES;
use terrace_backends::{BACKENDS, BackendEntry, SERVICES};
use terrace_core::{Persistency, Result, TierView, View};
use terrace_policies::POLICIES;

use super::paths::{self, Place};
use super::section::{Section, nearest};
use super::{CheckpointPlace, PolicySettings, PolicySource, Settings, TierSettings};

/// Where the settings came from, to point at what is wrong.
pub(super) struct Sections<'a> {
    pub(super) store: Section<'a>,
    pub(super) tiers: Vec<Section<'a>>,
    pub(super) catalog: Section<'a>,
    pub(super) policy: Section<'a>,
    pub(super) trace: Section<'a>,
}

pub(super) fn check(settings: &Settings, sections: &Sections<'_>) -> Result<()> {
    let levels = check_tiers(settings, &sections.tiers)?;
    check_catalog(settings, &sections.catalog)?;
    check_persistency(settings, &levels, sections)?;
    check_forgetting(settings, sections)?;
    check_paths(settings, sections)?;
    match &settings.policy {
        Some(policy) => check_policy(policy, settings, &levels, &sections.policy),
        None => Ok(()),
    }
}

/// Checks each tier; returns the levels they give.
fn check_tiers(settings: &Settings, sections: &[Section<'_>]) -> Result<Vec<Persistency>> {
    let mut names = HashMap::new();
    let mut levels = Vec::new();
    for (index, (tier, section)) in settings.tiers.iter().zip(sections).enumerate() {
        if let Some(first) = names.insert(&tier.name, index) {
            let (first, second) = (first + 1, index + 1);
            let reason =
                format!("tiers {first} and {second} have one name; different are expected");
            return Err(section.wrong("name", reason));
        }
        check_keeping(tier, section)?;
        if let Some(service) = SERVICES.iter().find(|entry| entry.name == tier.backend) {
            check_service(tier, section)?;
            levels.push(service.persistency);
            continue;
        }
        let backend =
            BACKENDS.iter().find(|entry| entry.name == tier.backend).ok_or_else(|| {
                let services = SERVICES.iter().map(|entry| entry.name);
                let known: Vec<_> =
                    BACKENDS.iter().map(|entry| entry.name).chain(services).collect();
                section.wrong("backend", unknown("backend", &tier.backend, &known))
            })?;
        if let Some((_, key, service)) = service_keys(tier).into_iter().find(|(has, ..)| *has) {
            let reason = format!(
                "a {} tier has no `{key}`; the backend {service} is expected",
                backend.name
            );
            return Err(section.wrong(key, reason));
        }
        if tier.is_framed() && !backend.keeps_bytes {
            let key = if tier.compress.is_some() { "compress" } else { "encrypt" };
            let reason = format!("a {} tier keeps no bytes; no `{key}` is expected", backend.name);
            return Err(section.wrong(key, reason));
        }
        match (&tier.path, backend.needs_path) {
            (None, true) => {
                let reason = "it has no `path`; the directory for its files is expected";
                return Err(section.wrong("path", reason));
            }
            (Some(_), false) => {
                let reason = format!(
                    "a {} tier keeps nothing in a directory; no `path` is expected, \
                     or the backend file",
                    backend.name
                );
                return Err(section.wrong("path", reason));
            }
            _ => levels.push(backend.persistency),
        }
    }
    Ok(levels)
}

/// Superseded objects can be kept where an object is never changed, and outlives the process.
fn check_keeping(tier: &TierSettings, section: &Section<'_>) -> Result<()> {
    let ends_with_its_process = |entry: &&BackendEntry| {
        entry.name == tier.backend && entry.persistency == Persistency::None
    };
    let reason = if tier.keep_deleted.is_none() {
        return Ok(());
    } else if !tier.is_whole() {
        "`keep_deleted` needs a tier that takes whole objects: one in a bucket (`bucket`) or on a `service`, \
         or one that is compressed or encrypted; here files are changed in place, so that earlier values do not exist"
            .into()
    } else if let Some(backend) = BACKENDS.iter().find(ends_with_its_process) {
        format!("a {} tier is gone with its process; no `keep_deleted` is expected", backend.name)
    } else {
        return Ok(());
    };
    Err(section.wrong("keep_deleted", reason))
}

/// The key that says where a service is: whether the tier has it, and the service.
fn service_keys(tier: &TierSettings) -> [(bool, &'static str, &'static str); 3] {
    [
        (tier.s3.is_some(), "bucket", "s3"),
        (tier.rados.is_some(), "pool", "rados"),
        (tier.opendal.is_some(), "service", "opendal"),
    ]
}

fn check_service(tier: &TierSettings, section: &Section<'_>) -> Result<()> {
    for (has, key, service) in service_keys(tier) {
        match (has, tier.backend == service) {
            (false, true) => {
                let reason = format!("it has no `{key}`; the name of one is expected");
                return Err(section.wrong(key, reason));
            }
            (true, false) => {
                let reason = format!(
                    "a {} tier has no `{key}`; the backend {service} is expected",
                    tier.backend
                );
                return Err(section.wrong(key, reason));
            }
            _ => {}
        }
    }
    if tier.path.is_some() {
        let reason = format!(
            "a {} tier keeps nothing in a directory; no `path` is expected, or the backend file",
            tier.backend
        );
        return Err(section.wrong("path", reason));
    }
    Ok(())
}

fn check_catalog(settings: &Settings, section: &Section<'_>) -> Result<()> {
    let engine = &settings.catalog.engine;
    let known: Vec<_> = ENGINES.iter().map(|entry| entry.name).collect();
    if !known.contains(&engine.as_str()) {
        return Err(section.wrong("engine", unknown("engine", engine, &known)));
    }
    if !settings.keeps_catalog() && section.has("path") {
        let reason = "a memory catalog keeps nothing in a directory; no `path` is expected, \
                      or the engine fjall or lmdb";
        return Err(section.wrong("path", reason));
    }
    Ok(())
}

/// A memory catalog forgets what is in the files of a tier; they would never be removed.
fn check_forgetting(settings: &Settings, sections: &Sections<'_>) -> Result<()> {
    let is_kept = |tier: &&TierSettings| {
        tier.path.is_some() || service_keys(tier).into_iter().any(|(has, ..)| has)
    };
    let kept = settings.tiers.iter().find(is_kept);
    match kept {
        Some(tier) if !settings.keeps_catalog() => {
            let reason = format!(
                "a memory catalog forgets what the {} tier \"{}\" keeps; the engine fjall or \
                 lmdb is expected, or tiers in memory only",
                tier.backend, tier.name
            );
            Err(sections.catalog.wrong("engine", reason))
        }
        _ => Ok(()),
    }
}

/// New objects are promised at least the store's level: a tier must be able to keep it.
fn check_persistency(
    settings: &Settings,
    levels: &[Persistency],
    sections: &Sections<'_>,
) -> Result<()> {
    let asked = settings.persistency;
    // What takes whole objects only has no new ones.
    let is_written = |(tier, _): &(&TierSettings, &Persistency)| !tier.is_whole();
    let given = settings.tiers.iter().zip(levels).filter(is_written).map(|(_, level)| *level).max();
    let Some(given) = given else {
        // The stack refuses it, and says why.
        return Ok(());
    };
    let store = &sections.store;
    let default = if store.has("persistency") { "" } else { " (the default)" };
    let is_shared = settings.tiers.iter().any(|tier| tier.s3.is_some())
        && settings.catalog.checkpoint.place == CheckpointPlace::Tier;
    if asked == Persistency::Shared && !is_shared {
        let reason = "persistency \"shared\" needs a tier in a bucket (backend \"s3\": other services have \
                      no conditional write), and the catalog's log there: no `checkpoint` in \
                      [catalog] is expected";
        return Err(store.wrong("persistency", reason));
    }
    if asked.min(Persistency::Storage) > given {
        let reason = format!(
            "no tier gives persistency \"{asked}\"{default}; a file tier is expected, or \
             persistency = \"{given}\" in [store]"
        );
        let (section, key) = match default {
            "" => (store, "persistency"),
            _ => (&sections.tiers[0], "backend"),
        };
        return Err(section.wrong(key, reason));
    }
    if asked > Persistency::None && !settings.keeps_catalog() {
        let reason = format!(
            "a memory catalog is lost with the process, and persistency is \"{asked}\"{default}; \
             the engine fjall or lmdb is expected, or persistency = \"none\" in [store]"
        );
        return Err(sections.catalog.wrong("engine", reason));
    }
    Ok(())
}

fn check_paths(settings: &Settings, sections: &Sections<'_>) -> Result<()> {
    match paths::collision(&paths::places(settings)) {
        None => Ok(()),
        Some((Place::Tier(index), reason)) => {
            let key = if settings.tiers[index].path.is_some() { "path" } else { "root" };
            Err(sections.tiers[index].wrong(key, reason))
        }
        Some((Place::Checkpoint, reason)) => Err(sections.catalog.wrong("checkpoint", reason)),
        Some((Place::Trace, reason)) => Err(sections.trace.wrong("path", reason)),
        Some((_, reason)) => Err(sections.catalog.wrong("path", reason)),
    }
}

fn check_policy(
    policy: &PolicySettings,
    settings: &Settings,
    levels: &[Persistency],
    section: &Section<'_>,
) -> Result<()> {
    // What others take is known only once they are loaded.
    let PolicySource::Name(name) = &policy.source else { return Ok(()) };
    let Some(entry) = POLICIES.iter().find(|entry| entry.name == name) else {
        let known: Vec<_> = POLICIES.iter().map(|entry| entry.name).collect();
        return Err(section.wrong("name", unknown("policy", name, &known)));
    };
    let view = view(settings, levels);
    let Err(error) = (entry.create)(&view, &policy.parameters) else { return Ok(()) };
    // Either one parameter is wrong by itself, or they contradict each other.
    for (at, parameter, text) in section.pairs("parameters", "[policy.parameters]")? {
        let pair = (parameter.clone(), text.clone());
        if let Err(error) = (entry.create)(&view, &[pair]) {
            let (parameter, text) = (parameter.escape_debug(), text.escape_debug());
            let reason = format!("the policy {name} refuses {parameter} = \"{text}\": {error}");
            return Err(section.wrong_at(at, reason));
        }
    }
    Err(section.wrong("parameters", format!("the policy {name} refuses them together: {error}")))
}

/// The tiers as a policy sees them before anything is stored.
fn view(settings: &Settings, levels: &[Persistency]) -> View {
    let tiers = settings.tiers.iter().zip(levels).map(|(tier, level)| TierView {
        watermarks: tier.watermarks,
        persistency: *level,
        ..TierView::empty(&tier.name, tier.figures)
    });
    View::new(tiers.collect(), 0)
}

fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let near = nearest(name, known).map(|near| format!("did you mean \"{near}\"? "));
    let near = near.unwrap_or_default();
    format!("there is no {what} \"{}\"; {near}known are {}", name.escape_debug(), known.join(", "))
}
