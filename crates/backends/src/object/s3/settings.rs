// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a bucket is, and the credentials for it, which no setting holds.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use terrace_core::{Error, ErrorKind, Result};

const OPERATION: &str = "open a bucket";

/// What addresses of buckets begin with.
const SCHEME: &str = "s3://";

/// Retries of one request; the deadline ends them sooner.
pub(super) const RETRIES_MAX: usize = 10;

/// Bounds of the pause between two of them, which grows and is jittered.
pub(super) const BACKOFF_MIN: Duration = Duration::from_millis(100);
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Longest wait for a connection at a time.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// Longest file of credentials that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where a bucket is. It holds no credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Settings {
    /// The bucket.
    pub bucket: String,
    /// What the names of all objects begin with, without `/` at either end; empty for none.
    pub prefix: String,
    /// `http://` or `https://`, a host, and a port where it is not the usual one; `None` for that of
    /// Amazon, or of the variable `AWS_ENDPOINT_URL_S3`, else `AWS_ENDPOINT_URL`.
    pub endpoint: Option<String>,
    /// The region; `None` for that of the variable `AWS_REGION`, else `us-east-1`.
    pub region: Option<String>,
    /// The file of credentials, which comes before those of the environment; `None` for that of the
    /// variable `AWS_SHARED_CREDENTIALS_FILE`, else `~/.aws/credentials`.
    pub credentials: Option<PathBuf>,
    /// The profile in the file of credentials; `None` for that of the variable `AWS_PROFILE`, else
    /// `default`. One that is given comes before credentials of the environment.
    pub profile: Option<String>,
    /// Longest that a request takes, with all its retries.
    pub deadline: Duration,
}

impl S3Settings {
    /// Longest that a request takes by default.
    pub const DEADLINE: Duration = Duration::from_secs(30);

    /// A bucket of Amazon.
    pub fn new(bucket: &str) -> Self {
        Self {
            bucket: bucket.into(),
            prefix: String::new(),
            endpoint: None,
            region: None,
            credentials: None,
            profile: None,
            deadline: Self::DEADLINE,
        }
    }

    /// Reads an address: `s3://BUCKET/PREFIX?KEY=VALUE&KEY=VALUE`, with the keys `endpoint`, `region`, `credentials`
    /// and `profile`. The form of a tier, with a comma before each key, is read, too.
    ///
    /// # Errors
    ///
    /// `Invalid` for what has another form.
    pub fn of_address(text: &str) -> Result<Self> {
        let wrong = |reason: &str| {
            let form = "s3://BUCKET/PREFIX?endpoint=URL&region=NAME is expected";
            let reason = format!("{reason}; {form}");
            let error = Error::invalid("read the address of a bucket", reason);
            // It may have a password.
            if text.contains('@') { error } else { error.with("address", text) }
        };
        let place = text.strip_prefix(SCHEME).ok_or_else(|| wrong("it is no address of S3"))?;
        // A prefix that has a comma is followed by `?`.
        let (place, settings, separator) = match place.split_once('?') {
            Some((place, settings)) => (place, settings, '&'),
            None => {
                let (place, settings) = place.split_once(',').unwrap_or((place, ""));
                (place, settings, ',')
            }
        };
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        if let Some(reason) = Self::refusal_of_bucket(bucket) {
            return Err(wrong(&format!("the bucket is {bucket:?}: {reason}")));
        }
        let is_part = |part: &str| !matches!(part, "" | "." | "..");
        if !prefix.is_empty()
            && (!prefix.split('/').all(is_part) || prefix.contains(|c: char| c.is_ascii_control()))
        {
            let reason = "names that are neither empty, `.` nor `..`, with one `/` between them, \
                          are expected in the prefix";
            return Err(wrong(reason));
        }
        let mut found = Self { prefix: prefix.into(), ..Self::new(bucket) };
        for setting in settings.split(separator).filter(|setting| !setting.is_empty()) {
            let value = setting.split_once('=').filter(|(_, value)| !value.is_empty());
            let (key, value) = value.ok_or_else(|| wrong("a key has no value"))?;
            match key {
                "endpoint" => {
                    if let Some(reason) = Self::refusal_of_endpoint(value) {
                        return Err(wrong(&format!("the endpoint is no address: {reason}")));
                    }
                    found.endpoint = Some(value.into());
                }
                "region" => found.region = Some(value.into()),
                "credentials" => found.credentials = Some(value.into()),
                "profile" => found.profile = Some(value.into()),
                _ => {
                    let known = "the keys are endpoint, region, credentials and profile";
                    return Err(wrong(&format!("there is no key {key:?}: {known}")));
                }
            }
        }
        Ok(found)
    }

    /// Whether a text is meant as the address of a bucket.
    pub fn is_address(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// Why a bucket cannot have this name.
    pub fn refusal_of_bucket(bucket: &str) -> Option<&'static str> {
        let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let is_bucket = !bucket.is_empty() && bucket.chars().all(is_legal);
        (!is_bucket).then_some("letters from a to z, digits, `.`, `_` and `-` are expected")
    }

    /// Why this is no endpoint.
    pub fn refusal_of_endpoint(endpoint: &str) -> Option<&'static str> {
        let host = ["http://", "https://"].into_iter().find_map(|it| endpoint.strip_prefix(it));
        // Credentials have no place in settings, which are shown to people.
        let is_host = |host: &str| !host.is_empty() && !host.contains(['@', '?', '#', ' ']);
        let is_endpoint = host.is_some_and(is_host);
        (!is_endpoint)
            .then_some("http:// or https:// and a host is expected, without user and password")
    }

    /// Address in logs and errors.
    pub fn target(&self) -> String {
        let separator = if self.prefix.is_empty() { "" } else { "/" };
        format!("{SCHEME}{}{separator}{}", self.bucket, self.prefix)
    }

    /// What the name of every object of the tier begins with.
    pub(super) fn root(&self) -> String {
        let prefix = self.prefix.trim_matches('/');
        if prefix.is_empty() { String::new() } else { format!("{prefix}/") }
    }

    /// The client's options: HTTP/1.1, a connection for each request at a time.
    pub(super) fn options(&self) -> ClientOptions {
        let is_plain = self.endpoint.as_ref().is_some_and(|url| url.starts_with("http://"));
        ClientOptions::new()
            .with_allow_http(is_plain || self.endpoint.is_none())
            .with_timeout(self.deadline)
            .with_connect_timeout(CONNECT_TIME_MAX.min(self.deadline))
    }

    /// # Errors
    ///
    /// `Invalid` for a setting that means nothing, `Denied` for a profile that there is not.
    pub(super) fn build(&self) -> Result<(AmazonS3, Address)> {
        self.build_from(AmazonS3Builder::from_env())
    }

    fn build_from(&self, environment: AmazonS3Builder) -> Result<(AmazonS3, Address)> {
        let mut builder = environment
            .with_bucket_name(&self.bucket)
            .with_client_options(self.options())
            .with_disable_bulk_delete(true)
            // Nothing else finds a body that was damaged on the way: what was written is not read back.
            .with_unsigned_payload(false)
            .with_retry(RetryConfig {
                backoff: BackoffConfig {
                    init_backoff: BACKOFF_MIN,
                    max_backoff: BACKOFF_MAX,
                    base: 2.0,
                },
                max_retries: RETRIES_MAX,
                retry_timeout: retry_time(self.deadline),
            });
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        if let Some(profile) = self.wanted_profile()? {
            builder =
                builder.with_access_key_id(profile.key_id).with_secret_access_key(profile.secret);
            if let Some(token) = profile.token {
                builder = builder.with_token(token);
            }
        }
        let value = |key| builder.get_config_value(&key).filter(|value| !value.is_empty());
        let region = value(AmazonS3ConfigKey::Region).unwrap_or_else(|| "us-east-1".into());
        let endpoint = self.endpoint.clone();
        let endpoint = endpoint.or_else(|| value(AmazonS3ConfigKey::S3Endpoint));
        let endpoint = endpoint.or_else(|| value(AmazonS3ConfigKey::Endpoint));
        if let Some(reason) = endpoint.as_deref().and_then(Self::refusal_of_endpoint) {
            // The value is not repeated: it may have a password.
            let reason = format!("the endpoint (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL): {reason}");
            return Err(Error::invalid(OPERATION, reason).with("target", self.target()));
        }
        let endpoint = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        // The client and the signed requests go to one address, whatever the environment has besides.
        let builder = builder
            .with_config(AmazonS3ConfigKey::S3Endpoint, &endpoint)
            .with_virtual_hosted_style_request(false);
        let bucket_url = format!("{}/{}", endpoint.trim_end_matches('/'), self.bucket);
        let store = builder.build().map_err(|error| {
            Error::invalid(OPERATION, error.to_string()).with("target", self.target())
        })?;
        Ok((store, Address { bucket_url, region }))
    }

    /// Credentials of a file, where they come before those of the environment or there are none.
    fn wanted_profile(&self) -> Result<Option<Profile>> {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        const OF_THE_ENVIRONMENT: [&str; 4] = [
            "AWS_ACCESS_KEY_ID",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        ];
        let is_chosen = self.profile.is_some() || self.credentials.is_some();
        if !is_chosen && OF_THE_ENVIRONMENT.into_iter().any(is_set) {
            return Ok(None);
        }
        let is_named = is_chosen || is_set("AWS_PROFILE");
        let name = match &self.profile {
            Some(name) => name.clone(),
            None => {
                let name = std::env::var("AWS_PROFILE").ok().filter(|name| !name.is_empty());
                name.unwrap_or_else(|| "default".into())
            }
        };
        let usual = || {
            let file = std::env::var_os("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from);
            file.or_else(|| Some(std::env::home_dir()?.join(".aws/credentials")))
        };
        let Some(file) = self.credentials.clone().or_else(usual) else { return Ok(None) };
        let missing = |reason: &str| {
            Err(Error::new(ErrorKind::Denied, OPERATION)
                .because(reason.to_string())
                .with("profile", &name)
                .with("file", file.display()))
        };
        match read(&file) {
            Ok(text) => match Profile::find(&text, &name) {
                Some(profile) => Ok(Some(profile)),
                None if is_named => {
                    missing("the file of credentials has no such profile with keys")
                }
                None => Ok(None),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_named => Ok(None),
            Err(error) => missing(&format!("the file of credentials cannot be read: {error}")),
        }
    }
}

/// How long a request is retried: the last try has time left, and its error says more than that the time is over.
pub(super) fn retry_time(deadline: Duration) -> Duration {
    deadline * 7 / 10
}

/// How to reach a bucket for what the crate has no call for.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) bucket_url: String,
    pub(super) region: String,
}

fn read(file: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    fs::File::open(file)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// The keys of a profile; never printed.
struct Profile {
    key_id: String,
    secret: String,
    token: Option<String>,
}

impl Profile {
    /// The profile of a name in the text of a file such as `~/.aws/credentials`.
    fn find(text: &str, name: &str) -> Option<Self> {
        let (mut is_in, mut key_id, mut secret, mut token) = (false, None, None, None);
        for line in text.lines().map(str::trim) {
            if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                is_in = section.trim() == name;
                continue;
            }
            let Some((key, value)) = line.split_once('=').filter(|_| is_in) else { continue };
            let value = Some(value.trim().to_string());
            match key.trim() {
                "aws_access_key_id" => key_id = value,
                "aws_secret_access_key" => secret = value,
                "aws_session_token" => token = value,
                _ => {}
            }
        }
        Some(Self { key_id: key_id?, secret: secret?, token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_found_in_a_file_of_credentials() {
        let text = "[default]\naws_access_key_id = A\naws_secret_access_key=B=\n\
                    [ other ]\n# no keys\naws_access_key_id=C\naws_secret_access_key = D\n\
                    aws_session_token = E\n[half]\naws_access_key_id=F\n";
        let keys = |name| {
            Profile::find(text, name).map(|profile| (profile.key_id, profile.secret, profile.token))
        };
        assert_eq!(keys("default"), Some(("A".into(), "B=".into(), None)));
        assert_eq!(keys("other"), Some(("C".into(), "D".into(), Some("E".into()))));
        assert_eq!(keys("half"), None);
        assert_eq!(keys("missing"), None);
    }

    #[test]
    fn all_requests_go_to_the_endpoint_of_the_settings() {
        use object_store::client::{HttpRequest, HttpRequestBody};
        use object_store::signer::Signer;
        crate::object::service::requests::choose_cryptography();
        let keys = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(keys.path(), "[default]\naws_access_key_id=A\naws_secret_access_key=B\n")
            .expect("room");
        let of = |endpoint: Option<&str>| S3Settings {
            endpoint: endpoint.map(Into::into),
            credentials: Some(keys.path().into()),
            ..S3Settings::new("bucket")
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        // Of a request of the client, and of those that are signed here.
        let urls = |settings: &S3Settings, environment: &[(AmazonS3ConfigKey, &str)]| {
            let builder =
                environment.iter().fold(AmazonS3Builder::new(), |builder, (key, value)| {
                    builder.with_config(*key, *value)
                });
            let (store, address) = settings.build_from(builder)?;
            let path = object_store::path::Path::from("object");
            let method = HttpRequest::new(HttpRequestBody::empty()).method().clone();
            let signed = store.signed_url(method, &path, Duration::from_secs(1));
            let url = runtime.block_on(signed).expect("a request");
            let url =
                url.as_str().split_once("/object?").expect("the object is in it").0.to_string();
            Ok::<_, Error>((url, address.bucket_url))
        };
        use AmazonS3ConfigKey::{Endpoint, S3Endpoint, VirtualHostedStyleRequest};
        let other = [(S3Endpoint, "http://s3.other"), (VirtualHostedStyleRequest, "true")];
        let both = [(Endpoint, "http://every.other"), (S3Endpoint, "http://s3.other")];
        for (settings, environment, expected) in [
            (of(Some("http://own:9000")), &other[..], "http://own:9000/bucket"),
            (of(None), &other, "http://s3.other/bucket"),
            (of(None), &both, "http://s3.other/bucket"),
            (of(None), &both[..1], "http://every.other/bucket"),
            (of(None), &[(Endpoint, "")], "https://s3.us-east-1.amazonaws.com/bucket"),
        ] {
            let (client, signed) = urls(&settings, environment).expect("legal");
            assert_eq!((client.as_str(), signed.as_str()), (expected, expected), "{environment:?}");
        }
        let secret = [(Endpoint, "http://key:secret@host")];
        let refused = urls(&of(None), &secret).expect_err("wrong").chain();
        assert!(refused.contains("AWS_ENDPOINT_URL") && !refused.contains("secret"), "{refused}");
    }

    /// What is written is not read back: the signature finds a body that was damaged on the way.
    #[test]
    fn bodies_are_signed_whatever_the_environment_says() {
        crate::object::service::requests::choose_cryptography();
        let environment =
            AmazonS3Builder::new().with_access_key_id("A").with_secret_access_key("B");
        let environment = environment.with_config(AmazonS3ConfigKey::UnsignedPayload, "true");
        let settings = S3Settings::new("bucket");
        let (store, _) = settings.build_from(environment).expect("legal");
        let shown = format!("{store:?}");
        assert!(shown.contains("sign_payload: true"), "{shown}");
    }

    #[test]
    fn settings_name_the_bucket_and_the_root() {
        let settings = S3Settings { prefix: "a/b".into(), ..S3Settings::new("bucket") };
        assert_eq!(settings.target(), "s3://bucket/a/b");
        assert_eq!(settings.root(), "a/b/");
        assert_eq!(S3Settings::new("bucket").root(), "");
    }

    #[test]
    fn an_address_has_the_settings_behind_the_prefix() {
        let read = |text: &str| S3Settings::of_address(text);
        let full = S3Settings {
            prefix: "a/b=1".into(),
            endpoint: Some("http://127.0.0.1:9000".into()),
            region: Some("eu".into()),
            credentials: Some("keys".into()),
            profile: Some("p".into()),
            ..S3Settings::new("bucket")
        };
        let keys = ["endpoint=http://127.0.0.1:9000", "region=eu", "credentials=keys", "profile=p"];
        let query = format!("s3://bucket/a/b=1/?{}", keys.join("&"));
        assert_eq!(read(&query).expect("legal"), full);
        let tier = format!("s3://bucket/a/b=1,{}", keys.join(","));
        assert_eq!(read(&tier).expect("legal"), full);
        assert_eq!(read("s3://bucket").expect("legal"), S3Settings::new("bucket"));
        assert_eq!(read("s3://bucket/").expect("legal"), S3Settings::new("bucket"));
        assert_eq!(read("s3://bucket/a,b?").expect("legal").prefix, "a,b");
        for (wrong, reason) in [
            ("/mnt", "no address of S3"),
            ("s3://", "the bucket is \"\""),
            ("s3://b u/a", "letters from a to z"),
            ("s3://b//a", "one `/` between them"),
            ("s3://b/a/../c", "neither empty"),
            ("s3://b/a?region", "a key has no value"),
            ("s3://b/a?region=", "a key has no value"),
            ("s3://b/a?endpoint=https://key:secret@host", "without user and password"),
            ("s3://b/a?capacity=1TB", "there is no key \"capacity\""),
        ] {
            let refused = read(wrong).expect_err("wrong").to_string();
            assert!(refused.contains(reason), "{wrong}: {refused}");
            assert!(!refused.contains("key:secret"), "{refused}");
        }
    }
}
