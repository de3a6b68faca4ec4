// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory and a bucket that tests fill past the source.

use std::fs::{self, File, FileTimes};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use terrace_backends::object::S3Settings;
use terrace_source::{Bucket, BucketOwner, Directory, Listing, Name, Source};
use terrace_testkit::s3::{BUCKET, KEY_ID, REGION, S3Server, SECRET};

/// Storage that a source shows.
pub(crate) trait Origin {
    /// Opens a source of it, as after a restart.
    fn open(&self) -> Box<dyn Source>;

    /// Makes a file, or gives one other bytes; with the directories above.
    fn put(&self, name: &str, bytes: &[u8]);

    /// Removes a file, and directories above that nothing is in.
    fn remove(&self, name: &str);
}

/// A directory.
pub(crate) struct Local {
    ground: TempDir,
}

impl Local {
    pub(crate) fn new() -> Self {
        Self { ground: tempfile::tempdir().expect("a directory") }
    }
}

impl Origin for Local {
    fn open(&self) -> Box<dyn Source> {
        Box::new(Directory::open(self.ground.path()).expect("a directory"))
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.ground.path().join(name);
        fs::create_dir_all(path.parent().expect("below the ground")).expect("room");
        fs::write(&path, bytes).expect("room");
        // In the past, as the time of a file that is not being written.
        let old = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let file = File::options().write(true).open(&path).expect("it is there");
        file.set_times(FileTimes::new().set_modified(old)).expect("it is ours");
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.ground.path().join(name)).expect("it is there");
        for above in Path::new(name).ancestors().skip(1) {
            // Fails where something is in it.
            let _ = fs::remove_dir(self.ground.path().join(above));
        }
    }
}

/// A bucket of a service in this process. The source is what is below `sets`.
pub(crate) struct Remote {
    pub(crate) server: S3Server,
    ground: TempDir,
}

impl Remote {
    pub(crate) fn new() -> Self {
        let remote =
            Self { server: S3Server::start(), ground: tempfile::tempdir().expect("a directory") };
        let text =
            format!("[default]\naws_access_key_id={KEY_ID}\naws_secret_access_key={SECRET}\n");
        fs::write(remote.keys(), text).expect("room");
        // Beside the source, where it must not be seen.
        remote.server.plant("set", b"beside");
        remote.server.plant("sets-other/file", b"beside");
        remote
    }

    pub(crate) fn keys(&self) -> PathBuf {
        self.ground.path().join("keys")
    }

    pub(crate) fn settings(&self) -> S3Settings {
        S3Settings {
            prefix: "sets".into(),
            endpoint: Some(self.server.endpoint()),
            region: Some(REGION.into()),
            credentials: Some(self.keys()),
            deadline: Duration::from_secs(20),
            ..S3Settings::new(BUCKET)
        }
    }

    pub(crate) fn bucket(&self) -> Bucket {
        Bucket::open(&self.settings(), OWNER).expect("a bucket")
    }
}

pub(crate) const OWNER: BucketOwner = BucketOwner { uid: 1234, gid: 4321, umask: 0o027 };

impl Origin for Remote {
    fn open(&self) -> Box<dyn Source> {
        Box::new(self.bucket())
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        self.server.plant(&format!("sets/{name}"), bytes);
    }

    fn remove(&self, name: &str) {
        self.server.remove(&format!("sets/{name}"));
    }
}

/// All names of a listing, in order.
pub(crate) fn names(mut listing: Box<dyn Listing>) -> Vec<Name> {
    let mut names = Vec::new();
    loop {
        let page = listing.next_page().expect("a page");
        if page.is_empty() {
            return names;
        }
        names.extend(page);
    }
}

/// The names of a directory as text, sorted, without `.` and `..`.
pub(crate) fn listed(source: &dyn Source, path: &str) -> Vec<String> {
    let names = names(source.list(Path::new(path), None).expect("a directory"));
    let text = |name: &Name| String::from_utf8(name.name.to_vec()).expect("UTF-8");
    let mut names: Vec<_> = names.iter().map(text).filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}
