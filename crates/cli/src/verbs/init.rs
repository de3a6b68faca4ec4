// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace init`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use terrace_core::units::show_bytes;
use terrace_core::{Access, Error};
use terrace_settings::{Settings, TierText};
use terrace_store::{Store, TierReport};

use super::{Group, Verb};
use crate::context::{Context, alone};
use crate::failure::Result;
use crate::output::{Output, quote};
use crate::table::Table;

/// Longest configuration that is read.
const SETTINGS_BYTES_MAX: u64 = 1 << 20;

/// Make a new store
///
/// Makes the directory DIR with a commented configuration (terrace.toml), a catalog, and the tiers.
/// Refused where DIR already holds a store or a tier belongs to another one; an
/// init that is refused leaves nothing behind.
///
/// Without --tier or --settings the store has two tiers inside DIR, `fast` (10 GB) and `slow`
/// (unlimited), to try things out; give real ones with --tier, most preferred first.
///
/// A tier is NAME=PATH with settings after commas, each as in terrace.toml: capacity, latency,
/// bandwidth (or read_bandwidth and write_bandwidth), parallelism, idle_power, active_power, prices,
/// watermarks.low, .high and .critical, and throttle.latency, .bandwidth and .parallelism, which
/// simulate a slower device. PATH is a directory, which is made if it is missing and is relative
/// to the current directory, or `memory:`, or `s3://BUCKET/PREFIX`, with the settings endpoint, region,
/// credentials (a file), profile and deadline; without a file they are those of the environment or of
/// ~/.aws/credentials. Or it is `rados://POOL/NAMESPACE`, a pool of Ceph, with the settings user, conf and
/// keyring (files) and deadline. Or it is `webdav://HOST/DIR`, a directory of a WebDAV server over HTTPS
/// (`webdav+http://` without TLS), with the settings credentials (a file) and deadline; the
/// directory must exist. A store with a bucket or such a directory needs a tier of another kind before it. A path with a comma needs --settings FILE.
#[derive(Args, Debug)]
pub(crate) struct Init {
    /// Where to make the store; default: --store or TERRACE_STORE
    #[arg(value_name = "DIR")]
    directory: Option<String>,

    /// A tier; repeat for more, most preferred first
    #[arg(long = "tier", value_name = "NAME=PATH[,SETTING=VALUE]...", conflicts_with = "settings")]
    tiers: Vec<String>,

    /// The policy, one of `terrace policy list`, or `none`
    #[arg(long, value_name = "NAME", default_value = "lru", conflicts_with = "settings")]
    policy: String,

    /// The engine of the catalog: fjall, or lmdb, which reads and deletes faster and needs less
    /// memory
    #[arg(long, value_name = "ENGINE", default_value = "fjall", conflicts_with = "settings",
          value_parser = ["fjall", "lmdb"])]
    catalog: String,

    /// Use this configuration; relative tier paths in it are relative to DIR
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
}

impl Verb for Init {
    const NAME: &'static str = "init";
    const GROUP: Group = Group::Store;
    const EXAMPLES: &'static str = "
  terrace init ./my-store               two tiers inside the directory, to try things out
  terrace init /srv/terrace --tier fast=/nvme/t,capacity=200GB,latency=80us,bandwidth=3GB/s \\
      --tier slow=/hdd/t,capacity=8TB,latency=8ms,bandwidth=200MB/s
  terrace init ./sim --tier ram=memory:,capacity=1GB \\
      --tier tape=./tape,throttle.latency=50ms     a simulated slow device
  terrace init /srv/t --tier fast=/nvme/t,capacity=200GB \\
      --tier cold=s3://my-bucket/t,region=eu-central-1   a bucket below a directory
  terrace init /srv/t --tier fast=/nvme/t,capacity=200GB \\
      --tier cold=rados://my-pool/t,user=terrace   a pool of Ceph below a directory
  terrace init /srv/t --tier fast=/nvme/t,capacity=200GB \\
      --tier cold=webdav://cloud.example.org/dav/t,credentials=/etc/terrace/webdav   a directory of a server
  terrace init ./mine --settings mine.toml         a configuration written by hand";

    fn run(self, context: &Context) -> Result<()> {
        let directory = match &self.directory {
            Some(directory) => directory.as_str(),
            None => context.store()?,
        };
        let settings = match &self.settings {
            Some(file) => read_settings(file)?,
            None => {
                let text = write_settings(&self.tiers, &self.catalog, &self.policy)?;
                // There is no file yet in which a position would mean anything.
                Settings::parse(&text, "")?;
                text
            }
        };
        let path = Path::new(directory);
        Store::init(path, &settings)?;
        let store = Store::open_with(directory, alone(Access::Write))?;
        let (tiers, policy) =
            (store.admin().tiers()?, store.admin().policy()?.map(|policy| policy.name));
        store.close()?;
        let file = path.join("terrace.toml").display().to_string();
        let mut output = Output::new();
        if context.is_json {
            let names: Vec<_> = tiers.iter().map(|tier| &tier.name).collect();
            output.json(&json!({
                "store": directory, "settings": file, "tiers": names, "policy": policy,
            }))?;
        } else {
            print_made(directory, &file, &tiers, policy.as_deref(), &mut output)?;
        }
        output.flush()
    }
}

fn print_made(
    directory: &str,
    file: &str,
    tiers: &[TierReport],
    policy: Option<&str>,
    output: &mut Output,
) -> Result<()> {
    output.line(format!("made the store {directory}"))?;
    let mut table = Table::new(&[1]);
    for tier in tiers {
        let capacity = show_bytes(tier.capacity_bytes.unwrap_or(u64::MAX));
        table.row([format!("  {}", tier.name), capacity, tier.target.clone()]);
    }
    table.lines().into_iter().try_for_each(|line| output.line(line))?;
    output.line(format!("  policy {}; settings in {file}", policy.unwrap_or("none")))?;
    output.line("")?;
    output.line("next:")?;
    let last = tiers.last().map_or("slow", |tier| tier.name.as_str());
    for line in [
        format!("export TERRACE_STORE={}", quote(directory)),
        "terrace put hello FILE          # store something".into(),
        "terrace explain hello           # where it is, and why".into(),
        format!("terrace migrate hello --to {last}"),
        "terrace hold                    # keep the policy running".into(),
    ] {
        output.line(format!("  {line}"))?;
    }
    Ok(())
}

fn read_settings(file: &Path) -> Result<String> {
    let fail = |error| Error::from_io("read the settings", error).with("file", file.display());
    let mut text = String::new();
    let opened = File::open(file).map_err(fail)?;
    opened.take(SETTINGS_BYTES_MAX + 1).read_to_string(&mut text).map_err(fail)?;
    if text.len() as u64 > SETTINGS_BYTES_MAX {
        let reason = format!("the file has more than {}", show_bytes(SETTINGS_BYTES_MAX));
        return Err(Error::invalid("read the settings", reason)
            .with("file", file.display())
            .into());
    }
    Ok(text)
}

/// The commented configuration of a new store.
fn write_settings(tiers: &[String], engine: &str, policy: &str) -> Result<String> {
    let section = |tier: &String| TierText::read(tier)?.section();
    let sections = tiers.iter().map(section).collect::<terrace_core::Result<Vec<_>>>()?.concat();
    let policy = (policy != "none").then_some(policy);
    Ok(Settings::text((!tiers.is_empty()).then_some(&sections), engine, policy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_written() {
        let text = write_settings(&[], "lmdb", "none").expect("legal");
        assert!(text.contains("\n[catalog]\nengine = \"lmdb\"\n"), "{text}");
    }

    #[test]
    fn the_policy_can_be_left_out() {
        let text = write_settings(&[], "fjall", "none").expect("legal");
        assert!(!text.contains("\n[policy]"), "{text}");
        let text = write_settings(&[], "fjall", "size").expect("legal");
        assert!(text.contains("\n[policy]\nname = \"size\""), "{text}");
    }
}
