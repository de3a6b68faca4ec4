// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Certificates for tests of TLS, and the authority that signs them.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

/// Signs certificates.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// At all times that matter.
    Now,
    /// Until the end of 2001.
    Past,
}

/// A certificate and its private key, both as PEM.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The certificate.
    pub pem: String,
    key_pem: String,
}

impl Default for Authority {
    fn default() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "authority of the tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        Self { issuer }
    }
}

impl Authority {
    /// Its certificate, as PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for a server with these names or addresses.
    pub fn issue(&self, names: &[&str], validity: Validity) -> Certificate {
        let key = KeyPair::generate().expect("a key");
        let signed = params(names, validity).signed_by(&key, &self.issuer);
        Certificate { pem: signed.expect("a certificate").pem(), key_pem: key.serialize_pem() }
    }
}

impl Certificate {
    /// One that vouches for itself, as an authority would or as a server.
    pub fn self_signed(names: &[&str], is_authority: bool) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = params(names, Validity::Now);
        params.is_ca = match is_authority {
            true => IsCa::Ca(BasicConstraints::Unconstrained),
            false => IsCa::ExplicitNoCa,
        };
        let signed = params.self_signed(&key).expect("a certificate");
        Self { pem: signed.pem(), key_pem: key.serialize_pem() }
    }

    /// Writes certificate and key, which only this user can read, to files of a directory.
    pub fn write(&self, directory: &Path) -> (PathBuf, PathBuf) {
        let (certificate, key) = (directory.join("cert.pem"), directory.join("key.pem"));
        std::fs::write(&certificate, &self.pem).expect("write the certificate");
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&key);
        file.and_then(|mut file| file.write_all(self.key_pem.as_bytes())).expect("write the key");
        (certificate, key)
    }
}

fn params(names: &[&str], validity: Validity) -> CertificateParams {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names of servers");
    params.distinguished_name.push(DnType::CommonName, "server of the tests");
    if validity == Validity::Past {
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(2001, 12, 31);
    }
    params
}
