// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A mounted source.

use std::io;
use std::path::Path;
use std::sync::Arc;

use terrace_fuse::{InitFlags, Session, Unmounter, Wanted};

use crate::cache::Cache;
use crate::front::Front;
use crate::options::SourceOptions;
use crate::source::Source;

/// A mounted source. Dropping it unmounts.
pub struct SourceMount {
    session: Session,
    front: Front,
    threads: usize,
    passthrough_refusal: Option<String>,
}

impl SourceMount {
    /// Mounts a source at a directory.
    ///
    /// # Errors
    ///
    /// Those of `mount(2)` or `fusermount3`; those of the source's root.
    pub fn new(
        source: &Arc<dyn Source>,
        cache: &Arc<Cache>,
        mountpoint: &Path,
        options: &SourceOptions,
    ) -> io::Result<Self> {
        let mut mount = options.mount.clone();
        mount.read_only = true;
        let session = Session::mount(mountpoint, &mount, &wanted(options))?;
        let (passthrough, passthrough_refusal) = match session.passthrough() {
            None => (
                None,
                Some("the kernel allows it to root alone (CAP_SYS_ADMIN), since Linux 6.9".into()),
            ),
            Some(kernel) => match kernel.refusal(cache.directory()) {
                None => (Some(kernel), None),
                refusal => (None, refusal),
            },
        };
        let front = Front::new(source, cache, passthrough, options)?;
        Ok(Self { session, front, threads: options.threads.max(1), passthrough_refusal })
    }

    /// Whether the kernel reads copies itself.
    pub fn passes_through(&self) -> bool {
        self.front.passes_through()
    }

    /// Why the kernel cannot read copies itself, also where it was not to.
    pub fn passthrough_refusal(&self) -> Option<&str> {
        self.passthrough_refusal.as_deref()
    }

    /// For ending the mount from another thread.
    pub fn unmounter(&self) -> Unmounter {
        self.session.unmounter()
    }

    /// Serves until it is unmounted.
    ///
    /// # Errors
    ///
    /// Those of the connection to the kernel.
    pub fn serve(&self) -> io::Result<()> {
        self.session.serve(self.threads, &self.front)
    }
}

fn wanted(options: &SourceOptions) -> Wanted {
    let mut wanted = Wanted::default();
    wanted.flags |= InitFlags::ASYNC_DIO
        | InitFlags::CACHE_SYMLINKS
        | InitFlags::DIRECT_IO_ALLOW_MMAP
        | InitFlags::NO_EXPORT_SUPPORT;
    if options.passes_through {
        wanted.flags |= InitFlags::PASSTHROUGH;
        wanted.max_stack_depth = 1;
    }
    wanted
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, FileTimes};
    use std::time::Duration;

    use terrace_fuse::MountOptions;

    use super::*;
    use crate::cache::CacheSettings;
    use crate::directory::Directory;

    const PATIENT: Duration = Duration::from_secs(60);

    #[test]
    fn an_open_of_a_file_passed_through_to_a_void_copy_reads_another() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: mounts are tested as root");
            return;
        }
        let ground = tempfile::tempdir().expect("a directory");
        let (origin, mountpoint) = (ground.path().join("source"), ground.path().join("mnt"));
        fs::create_dir(&origin).expect("room");
        fs::create_dir(&mountpoint).expect("room");
        let bytes = vec![7; 5000];
        fs::write(origin.join("file"), &bytes).expect("room");
        let file = File::options().write(true).open(origin.join("file")).expect("it is there");
        let old = FileTimes::new().set_modified(std::time::UNIX_EPOCH + PATIENT);
        file.set_times(old).expect("it is ours");
        let source: Arc<dyn Source> = Arc::new(Directory::open(&origin).expect("a directory"));
        let settings = CacheSettings {
            directory: ground.path().join("cache"),
            bytes_max: Some(1 << 30),
            purpose: "a test".into(),
        };
        let cache = Arc::new(Cache::open(&settings, source.identity()).expect("a cache"));
        let options = SourceOptions {
            mount: MountOptions::default(),
            ttl: PATIENT,
            deadline: PATIENT,
            threads: 2,
            passes_through: true,
        };
        let mount = SourceMount::new(&source, &cache, &mountpoint, &options).expect("mounted");
        if let Some(refusal) = mount.passthrough_refusal() {
            println!("skipped: {refusal}");
            return;
        }
        std::thread::scope(|scope| {
            scope.spawn(|| mount.serve().expect("served"));
            let path = mountpoint.join("file");
            let outcome = File::open(&path).and_then(|void| {
                cache.fail_sync(bytes.len());
                let read = (fs::read(&path)?, fs::read(&path)?);
                drop(void);
                Ok((read, fs::read(&path)?))
            });
            let _ = mount.unmounter().unmount_lazily();
            let ((first, second), third) = outcome.expect("read");
            assert!(first == bytes && second == bytes && third == bytes);
        });
        let report = cache.report();
        assert_eq!((report.misses, report.hits), (2, 2), "copied again once");
    }
}
