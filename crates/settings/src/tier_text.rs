// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tiers as the command line describes them.

use terrace_backends::{BACKENDS, BackendEntry};
use terrace_core::{Error, Result};

/// A tier as the command line describes it: `NAME=PATH[,SETTING=VALUE]...`. The store checks the settings
/// themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierText {
    /// The tier's name.
    pub name: String,
    /// That of its backend.
    pub backend: String,
    /// Its directory, where the backend has one.
    pub path: Option<String>,
    /// The settings, as they are in the section.
    pub settings: Vec<(String, String)>,
}

impl TierText {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// `Invalid` for another form.
    pub fn read(text: &str) -> Result<Self> {
        let wrong =
            |reason: &str| Error::invalid("read a tier", reason).with("tier", format!("{text:?}"));
        let mut parts = text.split(',');
        let (name, path) = assignment(parts.next().unwrap_or_default())
            .ok_or_else(|| wrong("the form NAME=PATH[,SETTING=VALUE]... is expected"))?;
        let is_of_setting = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        let setting = |part| match assignment(part) {
            Some(setting) if setting.0.chars().all(is_of_setting) => Ok(setting),
            _ => Err(wrong(
                "SETTING=VALUE is expected behind a comma; a path that has one needs a \
                 configuration (`init --settings FILE`, `tiers add NAME --path DIR`)",
            )),
        };
        let settings = parts.map(setting).collect::<std::result::Result<Vec<_>, _>>()?;
        let mut settings = settings;
        let (backend, path) = match (without_path(&path), service(&path)) {
            (Some(backend), _) => (backend, None),
            (None, Some((backend, named))) => {
                let named = named.into_iter().filter(|(_, value)| !value.is_empty());
                let named = named.map(|(key, value)| (key.to_string(), value));
                settings.splice(0..0, named);
                (backend, None)
            }
            (None, None) if is_address(&path) => {
                let memory = pathless().map(|entry| format!("{}:", entry.name));
                let services = SCHEMES.iter().map(|scheme| format!("{scheme}://"));
                let known: Vec<_> = memory.chain(services).collect();
                let known = known.join(", ");
                let reason = format!(
                    "there is no such backend; known are {known}, and directories, \
                     where ./ in front of a name leaves its colon alone"
                );
                return Err(wrong(&reason));
            }
            (None, None) => ("file", Some(path.clone())),
        };
        Ok(Self { name, backend: backend.into(), path, settings })
    }

    /// Its section.
    ///
    /// # Errors
    ///
    /// `Io` where the working directory is not known, from which paths begin.
    pub fn section(&self) -> Result<String> {
        tier_section(&self.name, &self.backend, self.path.as_deref(), &self.settings)
    }
}

/// Reads `NAME=VALUE`.
fn assignment(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    (!name.is_empty()).then(|| (name.into(), value.into()))
}

/// The backends that are their name and a colon, because they are in no directory.
fn pathless() -> impl Iterator<Item = &'static BackendEntry> {
    BACKENDS.iter().filter(|entry| !entry.needs_path)
}

/// The backend of an address without a place.
fn without_path(address: &str) -> Option<&'static str> {
    let name = address.strip_suffix(':')?;
    pathless().map(|entry| entry.name).find(|known| *known == name)
}

/// Whether a text has the form of an address: a word, a colon, and nothing or `//` behind it.
fn is_address(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let is_word = !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_word && (rest.is_empty() || rest.starts_with("//"))
}

/// What addresses of services begin with.
const SCHEMES: [&str; 4] = ["s3", "rados", "webdav", "webdav+http"];

/// The backend of an address, and the settings that it gives.
fn service(address: &str) -> Option<(&'static str, Vec<(&'static str, String)>)> {
    let (scheme, place) = address.split_once("://")?;
    let (first, rest) = place.split_once('/').unwrap_or((place, ""));
    let rest = rest.trim_end_matches('/');
    let over = |protocol| {
        let endpoint = format!("{protocol}://{first}");
        let service = [("service", "webdav".into()), ("endpoint", endpoint), ("root", rest.into())];
        Some(("opendal", service.into()))
    };
    match scheme {
        "s3" => Some(("s3", vec![("bucket", first.into()), ("prefix", rest.into())])),
        "rados" => Some(("rados", vec![("pool", first.into()), ("namespace", rest.into())])),
        "webdav" => over("https"),
        "webdav+http" => over("http"),
        _ => None,
    }
}

/// The text of a `[[tier]]` section. A path is relative to the working directory.
fn tier_section(
    name: &str,
    backend: &str,
    path: Option<&str>,
    settings: &[(String, String)],
) -> Result<String> {
    let mut section =
        format!("\n[[tier]]\nname = {}\nbackend = {}\n", quoted(name), quoted(backend));
    if let Some(path) = path {
        let absolute = std::path::absolute(path).map_err(|error| {
            Error::from_io("read a tier", error).with("tier", name).with("path", path)
        })?;
        section.push_str(&format!("path = {}\n", quoted(&absolute.display().to_string())));
    }
    for (name, value) in settings {
        let value = match name.as_str() {
            // Relative to the working directory, as the path of a tier.
            "credentials" | "encrypt" | "conf" | "keyring" => &std::path::absolute(value)
                .map_err(|error| Error::from_io("read a tier", error).with("file", value))?
                .display()
                .to_string(),
            _ => value,
        };
        const TEXTS: [&str; 14] = [
            "bucket",
            "prefix",
            "endpoint",
            "region",
            "credentials",
            "profile",
            "encrypt",
            "pool",
            "namespace",
            "user",
            "conf",
            "keyring",
            "service",
            "root",
        ];
        let number = if TEXTS.contains(&name.as_str()) { None } else { toml_number(value) };
        let value = number.unwrap_or_else(|| quoted(value));
        section.push_str(&format!("{name} = {value}\n"));
    }
    Ok(section)
}

/// A number as TOML writes it, which has digits on both sides of a point.
fn toml_number(text: &str) -> Option<String> {
    if let Ok(number) = text.parse::<i64>() {
        return Some(number.to_string());
    }
    // `Debug` writes 1e21 as it is, and NaN in other letters than TOML.
    text.parse::<f64>().ok().map(|number| format!("{number:?}").to_lowercase())
}

/// A TOML string. JSON's escapes are a part of TOML's.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_becomes_its_section() {
        let text = "fast=/n v,capacity=1GB,parallelism=8,throttle.latency=50ms";
        let text = TierText::read(text).and_then(|tier| tier.section());
        let expected = "\n[[tier]]\nname = \"fast\"\nbackend = \"file\"\npath = \"/n v\"\n\
                        capacity = \"1GB\"\nparallelism = 8\nthrottle.latency = \"50ms\"\n";
        assert_eq!(text.expect("legal"), expected);
    }

    #[test]
    fn numbers_become_those_of_toml() {
        let texts = [".09", "5.", "+7", "007", "1e3", "-.5e-3", "0.023", "1e21", "inf", "NaN"];
        let written = texts.map(|text| toml_number(text).expect(text));
        let expected =
            ["0.09", "5.0", "7", "7", "1000.0", "-0.0005", "0.023", "1e21", "inf", "nan"];
        assert_eq!(written, expected);
        let section = TierText::read("t=/t,price_per_gb_read=.09").and_then(|tier| tier.section());
        assert!(section.expect("legal").ends_with("price_per_gb_read = 0.09\n"));
        assert!(toml_number("1GB").is_none());
    }

    #[test]
    fn a_bucket_becomes_its_section() {
        let text = "cold=s3://42/a/b/,endpoint=http://127.0.0.1:9000,capacity=1TB";
        let text = TierText::read(text).and_then(|tier| tier.section());
        let expected = "\n[[tier]]\nname = \"cold\"\nbackend = \"s3\"\nbucket = \"42\"\n\
                        prefix = \"a/b\"\nendpoint = \"http://127.0.0.1:9000\"\n\
                        capacity = \"1TB\"\n";
        assert_eq!(text.expect("legal"), expected);
    }

    #[test]
    fn a_pool_becomes_its_section() {
        let text = "cold=rados://42/7,user=12,keyring=/etc/key,deadline=5s";
        let text = TierText::read(text).and_then(|tier| tier.section());
        let expected = "\n[[tier]]\nname = \"cold\"\nbackend = \"rados\"\npool = \"42\"\n\
                        namespace = \"7\"\nuser = \"12\"\nkeyring = \"/etc/key\"\n\
                        deadline = \"5s\"\n";
        assert_eq!(text.expect("legal"), expected);
    }

    #[test]
    fn a_directory_of_a_service_becomes_its_section() {
        let section = |text| TierText::read(text).and_then(|tier| tier.section()).expect("legal");
        let expected = "\n[[tier]]\nname = \"cold\"\nbackend = \"opendal\"\nservice = \"webdav\"\n\
                        endpoint = \"https://host:8443\"\nroot = \"dav/7\"\n\
                        credentials = \"/etc/dav\"\n";
        assert_eq!(section("cold=webdav://host:8443/dav/7/,credentials=/etc/dav"), expected);
        let plain = section("cold=webdav+http://host/t");
        assert!(plain.contains("endpoint = \"http://host\"\nroot = \"t\"\n"), "{plain}");
    }

    #[test]
    fn every_backend_without_a_path_is_an_address() {
        for entry in pathless() {
            let tier = TierText::read(&format!("ram={}:,capacity=1GB", entry.name)).expect("legal");
            assert_eq!((tier.backend.as_str(), tier.path), (entry.name, None));
        }
    }

    #[test]
    fn every_scheme_is_an_address_of_a_service() {
        for scheme in SCHEMES {
            let tier = TierText::read(&format!("cold={scheme}://place/t")).expect("legal");
            assert!(tier.path.is_none() && tier.backend != "file", "{scheme}: {tier:?}");
        }
    }

    #[test]
    fn an_address_of_no_backend_is_no_directory() {
        let memory: String = pathless().map(|entry| format!("{}:, ", entry.name)).collect();
        assert!(memory.starts_with("memory:, null:, "), "{memory}");
        let known = memory + "s3://, rados://, webdav://";
        for address in ["memroy:", "file:", "gs://bucket/t", "file:///srv/t"] {
            let error = TierText::read(&format!("ram={address}")).expect_err(address).to_string();
            assert!(error.contains(&known), "{error}");
        }
        for path in ["./memroy:", "/srv/a:b", "a:b", "/srv/s3://x"] {
            let tier = TierText::read(&format!("disk={path}")).expect(path);
            assert_eq!((tier.backend.as_str(), tier.path.as_deref()), ("file", Some(path)));
        }
    }

    #[test]
    fn a_tier_without_a_path_is_refused() {
        assert!(TierText::read("fast").is_err());
        assert!(TierText::read("=x").is_err());
        assert!(TierText::read("fast=/x,capacity").is_err());
    }
}
