// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace takeover`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use terrace_core::Error;
use terrace_core::units::format_bytes;
use terrace_recovery::tier_in_bucket;
use terrace_settings::{Settings, TierText};
use terrace_store::Store;

use super::{Group, Verb};
use crate::context::Context;
use crate::failure::Result;
use crate::output::Output;

/// Unreachable objects that are printed.
const NAMED_MAX: usize = 20;

/// Open a store on another machine, from its bucket alone
///
/// Makes DIR the owner of the store whose tier is in BUCKET: with every object and name that was
/// acknowledged at the level `shared`, and what else was in the bucket and its log. Nothing of the
/// machine before is needed.
///
/// The owner before is fenced: the end of its log is written in the bucket, so that it can
/// acknowledge nothing more at the level `shared`. A process of it that still runs notices within
/// seconds, or with the next commit, refuses all requests and says which host has the store. Of
/// two takeovers at once one succeeds, and the other one ends with status 5.
///
/// Objects that were only on tiers of the machine before are listed as unreachable. Reading them
/// fails, until the directory of the tier is put where terrace.toml of DIR has it. With such objects
/// the store is opened with `degraded = true`.
///
/// New data needs a tier of this machine: --tier, or a directory inside DIR. The policy and all other
/// settings are the defaults. An interrupted takeover is tried again with the same DIR.
#[derive(Args, Debug)]
pub(crate) struct Takeover {
    /// The tier in a bucket: s3://BUCKET/PREFIX, with the settings of `terrace init --tier`
    #[arg(value_name = "BUCKET[,SETTING=VALUE]...")]
    bucket: String,

    /// Where to make the store on this machine
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// A tier of this machine; repeat for more, most preferred first
    ///
    /// Its name must be one that the store does not have. A tier in another bucket of the store is
    /// given with the name that it has.
    #[arg(long = "tier", value_name = "NAME=PATH[,SETTING=VALUE]...")]
    tiers: Vec<String>,

    /// The engine of the catalog: fjall or lmdb
    #[arg(long, value_name = "ENGINE", default_value = "fjall", value_parser = ["fjall", "lmdb"])]
    catalog: String,
}

impl Verb for Takeover {
    const NAME: &'static str = "takeover";
    const GROUP: Group = Group::Store;
    const EXAMPLES: &'static str = "
  terrace takeover s3://my-bucket/t,region=eu-central-1 /srv/t --tier nvme=/nvme/t,capacity=200GB
  terrace --store /srv/t tiers               which tiers are missing, and how much is on them";

    fn run(self, context: &Context) -> Result<()> {
        let mut bucket = TierText::read(&format!("bucket={}", self.bucket))?;
        if bucket.backend != "s3" {
            let reason = match bucket.backend.as_str() {
                "opendal" => {
                    "s3://BUCKET/PREFIX is expected: other services have no conditional write, which a takeover \
                     needs"
                }
                _ => "s3://BUCKET/PREFIX is expected",
            };
            return Err(Error::invalid("take a store over", reason)
                .with("bucket", &self.bucket)
                .into());
        }
        let parsed = Settings::parse(&format!("{}{}", IN_PLACE, bucket.section()?), "")?;
        let settings = parsed.tiers.iter().find_map(|tier| tier.s3.as_ref());
        bucket.name = tier_in_bucket(settings.expect("it has one"))?;
        let mut sections = String::new();
        for tier in &self.tiers {
            sections.push_str(&TierText::read(tier)?.section()?);
        }
        sections.push_str(&bucket.section()?);
        let text = Settings::text(Some(&sections), &self.catalog, Some("lru"));
        let taken = Store::take_over(&self.directory, &text, &mut |_| {})?;
        let report = &taken.report;
        let mut output = Output::new();
        if context.is_json {
            output.json(&json!({
                "store": self.directory.display().to_string(),
                "term": taken.term,
                "objects": report.objects,
                "bytes": report.bytes,
                "unreachable": report.unreachable,
                "unreachable_keys": report.unreachable_keys,
                "missing_tiers": report.missing_tiers,
                "left_out": report.left_out,
                "log_commits": taken.log_commits,
                "checkpoint_ns": taken.checkpoint_ns,
            }))?;
            return output.flush();
        }
        output.line(format!("took the store over (term {})", taken.term))?;
        output.line(format!("  {} objects, {}", report.objects, format_bytes(report.bytes)))?;
        if report.unreachable > 0 {
            output.line(format!(
                "  {} objects are unreachable: they were only on {}",
                report.unreachable,
                report.missing_tiers.join(", ")
            ))?;
            for key in report.unreachable_keys.iter().take(NAMED_MAX) {
                output.line(format!("    {key}"))?;
            }
            if report.unreachable > NAMED_MAX as u64 {
                output.line("    … (all with --json, up to 1000)")?;
            }
        }
        if report.left_out > 0 {
            output.line(format!(
                "  {} segments were left out: they were added to objects at level shared since their last sync",
                report.left_out
            ))?;
        }
        output.flush()
    }
}

/// A store needs a tier that can be written in place.
const IN_PLACE: &str = "[[tier]]\nname = \"local\"\nbackend = \"file\"\npath = \"local\"\n";
