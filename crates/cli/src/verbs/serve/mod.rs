// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace serve`.

mod served;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use terrace_core::units::parse_duration;
use terrace_core::{Clock, Error, ErrorKind, SystemClock};
use terrace_metrics::{ControlSource, Exporter, ProcessSource, ServerSource, StoreSource};
use terrace_server::{Limits, Server};
use terrace_settings::{Directory, Settings};
use terrace_store::{OpenOptions, Store};
use terrace_transport::{
    Endpoint, Listener, ServerTls, default_secret_file, make_secret_file, read_secret_file,
};
use terrace_wire::Secret;

use self::served::Served;
use super::{Group, Verb};
use crate::context::Context;
use crate::failure::Result;
use crate::inherited;
use crate::interrupt::Interrupt;
use crate::log::{Form, Log};
use crate::metrics::{Metrics, export};
use crate::output::Output;
use crate::service_manager;

/// How soon the process ends that serves a store which another machine has taken over.
const FENCED_TICK: Duration = Duration::from_secs(1);

/// Where it listens by default.
const LISTEN_DEFAULT: &str = "127.0.0.1:7420";

/// Serve a store to other machines, over TCP and Unix sockets
///
/// Opens the store, runs its policy and migrations as `terrace hold` does, and serves clients
/// until SIGINT (Ctrl-C), SIGTERM or SIGHUP. It then refuses new connections, finishes the requests
/// that run, and leaves the store clean. Clients use the store as `--store terrace://HOST:PORT`, or
/// `terrace+unix:///PATH` on the same machine.
///
/// Clients and server share a secret: each proves to the other that it knows it, without sending
/// it. Without --secret-file it is in `terrace/secret` below the user's configuration directory
/// (`~/.config`), where clients of the same user find it; it is made if it is missing. Copy the
/// file to other machines, readable for its owner alone. A Unix socket needs no secret: only the
/// user of the server, and root, can connect.
///
/// Messages are checked for damage. They are encrypted and authenticated with --tls-cert
/// and --tls-key (clients add `?tls=FILE`): use them on a network that others can read.
///
/// Prints one line on standard output once clients are served: `serving DIR on ADDRESS ...`, or with
/// --json `{"ready":true,...}`, and reports the same to systemd (sd_notify), with keep-alives for its
/// watchdog (WatchdogSec=). The log goes to standard error.
#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Where to listen: HOST:PORT, or unix:PATH; may be given several times
    ///
    /// Port 0 is a free one, which the line on standard output tells. Default: 127.0.0.1:7420,
    /// which only this machine reaches; 0.0.0.0 is every address of the machine.
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<String>,

    /// The file with the secret that clients have to know
    ///
    /// Refused where others than its owner can read it.
    #[arg(long, value_name = "FILE", env = "TERRACE_SECRET_FILE")]
    secret_file: Option<PathBuf>,

    /// Serve every client that reaches an address, without a secret
    #[arg(long, conflicts_with = "secret_file")]
    no_secret: bool,

    /// The certificate to encrypt connections over TCP with, TLS 1.3; clients add `?tls=FILE`
    ///
    /// PEM: the server's certificate, then those between it and its authority. Unix sockets are not
    /// encrypted.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The private key of that certificate
    ///
    /// PEM. Refused where others than its owner can read it.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Check configuration, secret, certificate and addresses, and end without serving
    #[arg(long)]
    check: bool,

    /// Most connections at a time
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections_max,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=65536))]
    connections_max: usize,

    /// Longest time that running requests are waited for at the end
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    drain: String,

    /// What is logged: `error`, `warn`, `info`, `debug` or `trace` and what is worse, or `off`
    ///
    /// `terrace server log-level` changes it while the server runs.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: String,

    /// How it is logged
    #[arg(long, value_name = "FORM", default_value = "text")]
    log_format: Form,

    /// Serve the store also where tiers are missing, as `terrace hold --degraded`
    #[arg(long)]
    degraded: bool,

    #[command(flatten)]
    metrics: Metrics,
}

impl Verb for Serve {
    const NAME: &'static str = "serve";
    const GROUP: Group = Group::Store;
    const EXAMPLES: &'static str = "
  terrace serve                                  on this machine, port 7420
  terrace serve --listen 0.0.0.0:7420            for other machines, too
  terrace serve --listen unix:/run/terrace.sock  for this user's processes, without copies
  terrace serve --tls-cert c.pem --tls-key k.pem  encrypted; clients use ?tls=c.pem
  terrace serve --check                          look whether it could
  terrace --store terrace://host:7420 ls         use it from another machine";

    fn run(self, context: &Context) -> Result<()> {
        let drain_time_max = parse_duration(&self.drain)?;
        let limits =
            Limits { connections_max: self.connections_max, drain_time_max, ..Limits::default() };
        let endpoints = self.endpoints()?;
        let secret = self.secret(&endpoints)?;
        let tls = self.tls(&endpoints)?;
        let metrics = self.metrics.endpoint()?;
        let log = Log::start(&self.log_level, self.log_format)?;
        if self.check {
            return check(context, &endpoints);
        }
        inherited::settle_daemon_and_log();
        let interrupt = Interrupt::watch()?;
        let options =
            OpenOptions { attach: false, degraded: self.degraded, ..OpenOptions::default() };
        context.with_options(options, |store| {
            let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
            let served = Arc::new(Served::new(store.service()?, log));
            let server = Server::new(Arc::clone(&served) as _, secret, limits, clock);
            let server = Arc::new(server);
            served.set_server(&server);
            let mut listening = Vec::new();
            for endpoint in &endpoints {
                listening.push(match &tls {
                    Some(tls) if is_tcp(endpoint) => server.listen_tls(endpoint, tls)?,
                    _ => server.listen(endpoint)?,
                });
            }
            let exporter = export(metrics.as_ref(), || {
                vec![
                    Box::new(ProcessSource::new(Self::NAME)),
                    Box::new(StoreSource::new(store, context.store().unwrap_or_default())),
                    Box::new(ControlSource::new(store)),
                    Box::new(ServerSource::new(&server)),
                ]
            })?;
            inherited::leave_directory();
            print_ready(context, store, &listening, exporter.as_ref())?;
            let probe = || drop(store.admin().tiers());
            service_manager::while_serving(&probe, || {
                while store.fenced().is_none() && !interrupt.wait_for(FENCED_TICK) {}
                service_manager::stopping();
                tracing::info!("ending: running requests are finished");
                server.end();
            });
            drop(exporter);
            tracing::info!("ended");
            match store.fenced() {
                Some(reason) => {
                    Err(Error::new(ErrorKind::Denied, "serve the store").because(reason).into())
                }
                None => Ok(()),
            }
        })
    }
}

impl Serve {
    fn endpoints(&self) -> Result<Vec<Endpoint>> {
        if self.listen.is_empty() {
            return Ok(vec![LISTEN_DEFAULT.parse()?]);
        }
        let read = |text: &String| {
            Ok(match text.parse()? {
                // The socket is removed in the end, when the working directory is another one.
                Endpoint::Unix(path) => Endpoint::Unix(std::path::absolute(&path).unwrap_or(path)),
                tcp => tcp,
            })
        };
        self.listen.iter().map(read).collect()
    }

    /// The secret; none where it is not needed or not wanted.
    fn secret(&self, endpoints: &[Endpoint]) -> Result<Option<Secret>> {
        if self.no_secret || !endpoints.iter().any(is_tcp) {
            return Ok(None);
        }
        let path = match &self.secret_file {
            Some(path) => path.clone(),
            None => {
                let path = default_secret_file().ok_or_else(|| {
                    Error::invalid("find the secret", "this user has no home; give --secret-file")
                })?;
                make_secret_file(&path)?;
                path
            }
        };
        let secret = Secret::new(&read_secret_file(&path)?);
        Ok(Some(secret.map_err(|error| error.with("file", path.display()))?))
    }

    /// What connections over TCP are encrypted with; nothing unless it is asked for.
    fn tls(&self, endpoints: &[Endpoint]) -> Result<Option<ServerTls>> {
        let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(None);
        };
        if !endpoints.iter().any(is_tcp) {
            let reason = "a certificate needs an address over TCP; Unix sockets are not encrypted";
            return Err(Error::invalid("serve the store", reason).into());
        }
        Ok(Some(ServerTls::read(certificate, key)?))
    }
}

fn is_tcp(endpoint: &Endpoint) -> bool {
    matches!(endpoint, Endpoint::Tcp { .. })
}

/// Looks whether the store could be served, without changing anything: listens for a moment.
fn check(context: &Context, endpoints: &[Endpoint]) -> Result<()> {
    Settings::read(&Directory::at(context.store()?)?.settings())?;
    for endpoint in endpoints {
        match Listener::bind(endpoint) {
            // Perhaps by the server that goes on with what is checked here.
            Err(error) if error.kind() == ErrorKind::Busy => {}
            other => drop(other?),
        }
    }
    let mut output = Output::new();
    let addresses: Vec<_> = endpoints.iter().map(ToString::to_string).collect();
    if context.is_json {
        output.json(&json!({ "ok": true, "store": context.store()?, "listen": addresses }))?;
    } else {
        output.line(format!("{} can be served on {}", context.store()?, addresses.join(", ")))?;
    }
    output.flush()
}

fn print_ready(
    context: &Context,
    store: &Store,
    listening: &[Endpoint],
    exporter: Option<&Exporter>,
) -> Result<()> {
    let addresses: Vec<_> = listening.iter().map(ToString::to_string).collect();
    tracing::info!(
        addresses = addresses.join(", "),
        tiers = store.admin().tiers()?.len(),
        "serving"
    );
    let mut output = Output::new();
    if context.is_json {
        output.json(&json!({
            "ready": true,
            "store": context.store()?,
            "process": std::process::id(),
            "listen": addresses,
            "metrics": exporter.map(Exporter::url),
        }))?;
    } else {
        let on = addresses.join(", ");
        let metrics = exporter.map_or(String::new(), |one| format!(", metrics on {}", one.url()));
        output.line(format!("serving {} on {on}{metrics}; Ctrl-C stops", context.store()?))?;
    }
    output.flush()
}
