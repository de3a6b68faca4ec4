// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses of stores behind servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use terrace_client::striped::{Distribution, Map, Member, ServerMap};
use terrace_client::{Address, Dial, Options, Remote, TlsAddress};
use terrace_core::units::{parse_bytes, parse_duration};
use terrace_core::{Access, Clock, Error, ErrorKind, Result};
use terrace_transport::{ClientTls, Endpoint, default_secret_file, read_secret_file};
use terrace_wire::Secret;

/// Pairs of the servers themselves: where appends to distributed objects agree on their places.
const APPENDS: &str = "terrace.appends";

/// Servers behind TCP: `terrace://HOST:PORT`.
const TCP: &str = "terrace://";

/// A server behind a Unix socket: `terrace+unix:///PATH`.
const UNIX: &str = "terrace+unix://";

/// The servers of a map: `terrace+map:///PATH`.
const MAP: &str = "terrace+map://";

/// What objects over several servers are cut into unless the address says otherwise.
const STRIPE_BYTES: u64 = 1 << 20;

/// The head of objects that are distributed progressively.
const HEAD_BYTES: u64 = 64 << 10;

/// Names the file with the secret, where the address does not.
const SECRET_VARIABLE: &str = "TERRACE_SECRET_FILE";

/// What the address says instead of a file to use none.
const NO_SECRET: &str = "none";

/// The address of a store behind a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    place: Place,
    deadline: Option<Duration>,
    secret: Option<SecretFrom>,
    tls: Option<Tls>,
    distribution: Option<String>,
    stripe_bytes: u64,
    head_bytes: u64,
}

/// Which servers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Servers(Vec<Endpoint>),
    /// Those of the file.
    Map(PathBuf),
}

/// Sessions with the servers of an address.
pub enum Connected {
    /// With the only one.
    One(Remote),
    /// With several.
    Many {
        /// Where objects are among them.
        map: Map,
        /// In the order of the map's members.
        remotes: Vec<Remote>,
        /// How new objects are spread.
        distribution: Distribution,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SecretFrom {
    File(PathBuf),
    Nowhere,
}

/// How servers are reached over TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tls {
    /// Certificates of those that are trusted.
    file: PathBuf,
    /// What their certificates are for, where that is not the host.
    name: Option<String>,
}

impl Url {
    /// Whether an address is one; anything else is a directory.
    pub fn is_one(address: &str) -> bool {
        [TCP, UNIX, MAP].iter().any(|scheme| address.starts_with(scheme))
    }

    /// Reads `terrace://HOST:PORT[,HOST:PORT…][/][?NAME=VALUE[&…]]`, `terrace+unix:///PATH[?…]` or
    /// `terrace+map:///PATH[?…]`.
    ///
    /// # Errors
    ///
    /// `Invalid`, which says what is expected.
    pub fn parse(address: &str) -> Result<Self> {
        let wrong = |reason: String| {
            Error::invalid("read the address of a store", reason)
                .with("address", format!("{address:?}"))
        };
        let (place, query) = address.split_once('?').unwrap_or((address, ""));
        let absolute = |path: &str, scheme: &str| match path.starts_with('/') {
            true => Ok(PathBuf::from(path)),
            false => Err(wrong(format!("an absolute path is expected behind {scheme}"))),
        };
        let place = if let Some(path) = place.strip_prefix(UNIX) {
            Place::Servers(vec![Endpoint::Unix(absolute(path, UNIX)?)])
        } else if let Some(path) = place.strip_prefix(MAP) {
            Place::Map(absolute(path, MAP)?)
        } else {
            let hosts = place.strip_prefix(TCP).unwrap_or(place);
            let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
            let read = |host: &str| {
                host.parse().map_err(|error: Error| error.with("store", format!("{address:?}")))
            };
            Place::Servers(hosts.split(',').map(read).collect::<Result<_>>()?)
        };
        let mut url = Self {
            place,
            deadline: None,
            secret: None,
            tls: None,
            distribution: None,
            stripe_bytes: STRIPE_BYTES,
            head_bytes: HEAD_BYTES,
        };
        let mut tls_name = None;
        for setting in query.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            match name {
                "deadline" => url.deadline = Some(parse_duration(value)?),
                "secret" if value == NO_SECRET => url.secret = Some(SecretFrom::Nowhere),
                "secret" if !value.is_empty() => url.secret = Some(SecretFrom::File(value.into())),
                "tls" if !value.is_empty() => {
                    url.tls = Some(Tls { file: value.into(), name: None });
                }
                "tls-name" if !value.is_empty() => tls_name = Some(value.to_owned()),
                "distribution" if DISTRIBUTIONS.contains(&value) => {
                    url.distribution = Some(value.into());
                }
                "stripe" => url.stripe_bytes = parse_bytes(value)?,
                "head" => url.head_bytes = parse_bytes(value)?,
                _ => {
                    return Err(wrong(format!(
                        "there is no setting {name:?} with the value {value:?}; known are \
                         deadline=TIME, secret=FILE, secret={NO_SECRET}, tls=FILE, tls-name=NAME, \
                         stripe=SIZE, head=SIZE and distribution={}",
                        DISTRIBUTIONS.join("|")
                    )));
                }
            }
        }
        match (&mut url.tls, tls_name) {
            (Some(tls), name) => tls.name = name,
            (None, Some(_)) => return Err(wrong("`tls-name=` needs `tls=FILE` beside it".into())),
            (None, None) => {}
        }
        if url.tls.is_some()
            && matches!(&url.place, Place::Servers(servers) if servers.iter().all(is_unix))
        {
            return Err(wrong("a Unix socket needs no `tls=`".into()));
        }
        if url.deadline.is_some_and(|deadline| deadline.is_zero()) {
            return Err(wrong("a deadline above zero is expected".into()));
        }
        Ok(url)
    }

    /// Reaches the servers, all at the same time.
    pub fn connect(&self, access: Access, clock: &Arc<dyn Clock>) -> Result<Connected> {
        let (map, remotes) = match &self.place {
            Place::Servers(endpoints) => {
                if let [endpoint] = &endpoints[..] {
                    return Ok(Connected::One(self.reach(endpoint, access, clock)?));
                }
                let remotes = self.reach_all(endpoints, access, clock)?;
                let members = endpoints
                    .iter()
                    .zip(&remotes)
                    .map(|(endpoint, remote)| member(remote, endpoint.to_string(), 1, 0));
                (Map::without_epochs(members.collect())?, remotes)
            }
            Place::Map(path) => {
                let failed = |error| {
                    Error::from_io("read the map of the servers", error)
                        .with("file", path.display())
                };
                let text = std::fs::read_to_string(path).map_err(failed)?;
                let servers =
                    ServerMap::parse(&text).map_err(|error| error.with("file", path.display()))?;
                let endpoints: Vec<Endpoint> = servers
                    .servers
                    .iter()
                    .map(|server| server.address.parse())
                    .collect::<Result<_>>()?;
                let remotes = self.reach_all(&endpoints, access, clock)?;
                let members = servers.servers.iter().zip(&remotes).map(|(server, remote)| {
                    member(remote, server.name.clone(), server.weight, server.since)
                });
                (Map::new(servers.epoch, members.collect())?, remotes)
            }
        };
        Ok(Connected::Many { map, remotes, distribution: self.distribution() })
    }

    fn reach_all(
        &self,
        endpoints: &[Endpoint],
        access: Access,
        clock: &Arc<dyn Clock>,
    ) -> Result<Vec<Remote>> {
        std::thread::scope(|scope| {
            let reach = |endpoint| {
                let reach = move || self.reach(endpoint, access, clock);
                std::thread::Builder::new().spawn_scoped(scope, reach)
            };
            let reached: Vec<_> = endpoints.iter().map(reach).collect();
            let joined = reached.into_iter().map(|one| match one {
                Ok(thread) => thread.join().expect("connecting panicked"),
                Err(error) => Err(Error::from_io("start a thread", error)),
            });
            joined.collect()
        })
    }

    fn reach(&self, endpoint: &Endpoint, access: Access, clock: &Arc<dyn Clock>) -> Result<Remote> {
        let defaults = Options::default();
        let deadline = self.deadline.unwrap_or(defaults.deadline);
        let options = Options {
            access,
            secret: self.secret(endpoint)?,
            deadline,
            connect_timeout: defaults.connect_timeout.min(deadline),
            ..defaults
        };
        let address = Address { endpoint: endpoint.clone(), clock: Arc::clone(clock) };
        let dial: Box<dyn Dial> = match &self.tls {
            Some(tls) if !is_unix(endpoint) => {
                let tls = ClientTls::read(&tls.file, tls.name.as_deref())?;
                Box::new(TlsAddress { address, tls })
            }
            _ => Box::new(address),
        };
        let remote = Remote::connect(dial, options, Arc::clone(clock));
        remote.map_err(|error| explained(endpoint, error))
    }

    fn distribution(&self) -> Distribution {
        let stripe_bytes = self.stripe_bytes;
        match self.distribution.as_deref() {
            Some("single") => Distribution::Single,
            Some("weighted") => Distribution::Weighted { stripe_bytes },
            Some("progressive") => {
                Distribution::Progressive { head_bytes: self.head_bytes, stripe_bytes }
            }
            _ => Distribution::RoundRobin { stripe_bytes },
        }
    }

    /// The secret that the address names, or else the environment, or else the user's own.
    fn secret(&self, endpoint: &Endpoint) -> Result<Option<Secret>> {
        let read = |path: &Path| {
            let secret = Secret::new(&read_secret_file(path)?);
            secret.map(Some).map_err(|error| error.with("file", path.display()))
        };
        if is_unix(endpoint) {
            return Ok(None);
        }
        match &self.secret {
            Some(SecretFrom::File(path)) => return read(path),
            Some(SecretFrom::Nowhere) => return Ok(None),
            None => {}
        }
        if let Some(path) = std::env::var_os(SECRET_VARIABLE).filter(|path| !path.is_empty()) {
            return read(Path::new(&path));
        }
        match default_secret_file() {
            Some(path) if path.exists() => read(&path),
            _ => Ok(None),
        }
    }
}

/// How new objects may be spread over several servers.
const DISTRIBUTIONS: [&str; 4] = ["single", "round-robin", "weighted", "progressive"];

fn is_unix(endpoint: &Endpoint) -> bool {
    matches!(endpoint, Endpoint::Unix(_))
}

fn member(remote: &Remote, name: String, weight: u32, since: u64) -> Member {
    Member {
        id: remote.store_id(),
        name,
        backend: Arc::new(remote.clone()),
        kv: Some(Arc::new(remote.kv(APPENDS))),
        weight,
        since,
    }
}

fn explained(endpoint: &Endpoint, error: Error) -> Error {
    match error.kind() {
        ErrorKind::Denied if matches!(endpoint, Endpoint::Tcp { .. }) => error.with(
            "see",
            format!(
                "?secret=FILE or {SECRET_VARIABLE} name the secret of the server, \
                 ?secret={NO_SECRET} none; ?tls=FILE names whom to trust"
            ),
        ),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> Result<String> {
        Url::parse(address).map(|url| match url.place {
            Place::Servers(endpoints) => {
                endpoints.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            }
            Place::Map(path) => path.display().to_string(),
        })
    }

    #[test]
    fn an_address_names_a_server() {
        assert_eq!(of("terrace://host").expect("legal"), "host:7420");
        assert_eq!(of("terrace://host:7/").expect("legal"), "host:7");
        assert_eq!(of("terrace://[::1]:7?deadline=5s").expect("legal"), "[::1]:7");
        assert_eq!(of("terrace+unix:///run/t.sock").expect("legal"), "unix:/run/t.sock");
        assert_eq!(of("terrace://a:1,b:2/").expect("legal"), "a:1 b:2");
        assert_eq!(of("terrace+map:///etc/servers.toml").expect("legal"), "/etc/servers.toml");
        assert!(Url::is_one("terrace://host") && !Url::is_one("terrace+dir:/srv"));
    }

    #[test]
    fn settings_follow_a_question_mark() {
        let url = Url::parse("terrace://host?deadline=2s&secret=none").expect("legal");
        assert_eq!(url.deadline, Some(Duration::from_secs(2)));
        assert_eq!(url.secret, Some(SecretFrom::Nowhere));
        let url = Url::parse("terrace://host?secret=/etc/terrace/secret").expect("legal");
        assert_eq!(url.secret, Some(SecretFrom::File("/etc/terrace/secret".into())));
    }

    #[test]
    fn a_file_says_who_is_trusted() {
        let tls = |address| Url::parse(address).expect("legal").tls;
        assert_eq!(tls("terrace://host"), None);
        let file = PathBuf::from("/etc/ca.pem");
        let expected = Tls { file: file.clone(), name: None };
        assert_eq!(tls("terrace://host,other?tls=/etc/ca.pem"), Some(expected));
        let expected = Tls { file, name: Some("node1".into()) };
        assert_eq!(tls("terrace://10.0.0.1?tls-name=node1&tls=/etc/ca.pem"), Some(expected));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (address, reason) in [
            ("terrace://", "HOST:PORT"),
            ("terrace://host:x", "port"),
            ("terrace://host/path", "HOST:PORT"),
            ("terrace+unix://relative", "absolute"),
            ("terrace://host?dedline=5s", "deadline=TIME"),
            ("terrace://host?secret=", "secret=FILE"),
            ("terrace://host?tls=", "tls=FILE"),
            ("terrace://host?tls-name=node1", "needs `tls=FILE`"),
            ("terrace+unix:///run/t.sock?tls=/etc/ca.pem", "Unix socket"),
            ("terrace://a,b?distribution=some", "round-robin"),
            ("terrace://a,,b", "HOST:PORT"),
            ("terrace+map://servers.toml", "absolute"),
            ("terrace://host?deadline=0s", "above zero"),
        ] {
            let error = Url::parse(address).expect_err(address).to_string();
            assert!(error.contains(reason), "{address}: {error}");
        }
    }
}
