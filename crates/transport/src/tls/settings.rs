// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Certificates, keys, and trust.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use terrace_core::{Clock, Error, Result};

use super::TlsSocket;
use super::failure::not_reached;
use crate::private::{read_private_file, read_public_file};
use crate::socket::Socket;

/// Longest file that is taken for certificates or a key.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What a server shows of itself. Clones share it.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
}

impl ServerTls {
    /// Reads PEM files: the server's certificate, followed by those between it and its authority,
    /// and the private key that belongs to it.
    ///
    /// # Errors
    ///
    /// `Denied` where others than its owner can read the key; `Invalid` for what is no certificate
    /// or key, or where they do not belong together; `NotFound`, `Io`.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self> {
        const OPERATION: &str = "read the certificate";
        let certificates = read_certificates(OPERATION, certificate)?;
        let pem = read_private_file("read the private key", key, FILE_BYTES_MAX)?;
        let private = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| {
            Error::invalid("read the private key", "a PEM file with one key is expected")
                .with("file", key.display())
                .caused_by(error)
        })?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has ciphers for this version")
            .with_no_client_auth()
            .with_single_cert(certificates, private)
            .map_err(|error| {
                Error::invalid(OPERATION, "it and the key cannot be used together")
                    .with("certificate", certificate.display())
                    .with("key", key.display())
                    .caused_by(error)
            })?;
        // Connections are few and long: nothing is kept to begin another one faster.
        config.send_tls13_tickets = 0;
        Ok(Self { config: Arc::new(config) })
    }

    /// The server's end of a connection. A peer that begins without TLS gets `refusal` in plain,
    /// and nothing else.
    ///
    /// # Errors
    ///
    /// `Io` where the operating system has no random numbers.
    pub fn accept(&self, socket: Socket, refusal: Vec<u8>) -> Result<TlsSocket> {
        let connection = ServerConnection::new(Arc::clone(&self.config))
            .map_err(|error| unusable("serve a connection", error))?;
        Ok(TlsSocket::new(socket, connection.into(), refusal))
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").finish_non_exhaustive()
    }
}

/// Which servers a client trusts. Clones share it.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    file: PathBuf,
    name: Option<ServerName<'static>>,
}

impl ClientTls {
    /// Reads a PEM file: certificates of authorities, or of servers themselves. No other is
    /// trusted. The certificate of a server must be for `name`, or else for the host that it is
    /// reached as.
    ///
    /// # Errors
    ///
    /// `Invalid` for what is no certificate or no name; `NotFound`, `Denied`, `Io`.
    pub fn read(trusted: &Path, name: Option<&str>) -> Result<Self> {
        const OPERATION: &str = "read the trusted certificates";
        let mut roots = RootCertStore::empty();
        for certificate in read_certificates(OPERATION, trusted)? {
            roots.add(certificate).map_err(|error| {
                Error::invalid(OPERATION, "one of them cannot be used")
                    .with("file", trusted.display())
                    .caused_by(error)
            })?;
        }
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has ciphers for this version")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        let name = name.map(server_name).transpose()?;
        Ok(Self { config: Arc::new(config), file: trusted.into(), name })
    }

    /// The client's end of a connection with the server that is reached as `host`. Both ends have
    /// agreed on keys then.
    ///
    /// # Errors
    ///
    /// `Denied` where the server is not trusted, or does not encrypt; `Unsupported` where it
    /// speaks no TLS 1.3; `Unreachable` with `Applied::No` where it does not answer within
    /// `timeout`.
    pub fn connect(
        &self,
        socket: Socket,
        host: &str,
        timeout: Duration,
        clock: &dyn Clock,
    ) -> Result<TlsSocket> {
        let deadline_ns = clock.now_ns().saturating_add(timeout.as_nanos() as u64);
        let name = match &self.name {
            Some(name) => name.clone(),
            None => server_name(host)?,
        };
        let connection = ClientConnection::new(Arc::clone(&self.config), name)
            .map_err(|error| unusable("reach the server", error))?;
        let socket = TlsSocket::new(socket, connection.into(), Vec::new());
        socket
            .shake_hands(clock, deadline_ns)
            .map_err(|error| not_reached(error).with("tls", self.file.display()))?;
        Ok(socket)
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls")
            .field("file", &self.file)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn server_name(name: &str) -> Result<ServerName<'static>> {
    ServerName::try_from(name.to_owned()).map_err(|error| {
        Error::invalid("reach the server", "no certificate can be for this name")
            .with("name", format!("{name:?}"))
            .caused_by(error)
    })
}

fn read_certificates(operation: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let pem = read_public_file(operation, path, FILE_BYTES_MAX)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(Error::invalid(operation, "a PEM file with certificates is expected")
            .with("file", path.display())),
        Err(error) => Err(Error::invalid(operation, "the PEM file is damaged")
            .with("file", path.display())
            .caused_by(error)),
    }
}

/// A connection that cannot even begin.
fn unusable(operation: &'static str, error: rustls::Error) -> Error {
    Error::from_io(operation, std::io::Error::other(error))
}
