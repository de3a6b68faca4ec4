// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects in a pool of Ceph (RADOS).
//!
//! An object is one object of the pool, written in place. What is kept beside the bytes is in its
//! attributes, changed together with them. Each change is guarded by the attribute that tells the
//! object from the next one of its name, so that a handle on a deleted object never meets another.

mod attributes;
mod failure;
mod library;
mod listing;
mod object;
mod settings;
mod superblock_writes;

use std::ffi::{CStr, CString};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno as Number;
use terrace_core::{
    Access, Backend, Capability, Clock, Create, Cursor, Error, ErrorKind, Identity, Key, Object,
    Op, Open, Page, Persistency, Reply, Result, Semantics, Space, Stat, Superblock, SystemClock,
    TierBackend,
};

use self::attributes::{Attributes, IDENTITY, INSTANCE, LABEL, MODIFIED, SUPERBLOCK};
use self::library::{Cluster, Errno, Pool, PoolStat, WriteOp};
use self::object::{PIECE_BYTES, RadosObject};
use self::superblock_writes::{FoundSuperblock, SuperblockWrites, Version};
use super::execute_creating;
use super::file::{identity, superblock};

pub use settings::RadosSettings;

const OPEN: &str = "open a pool";

/// How old a space may be: each migration asks for one, and that of the monitors is some seconds old.
const SPACE_AGE_MAX: Duration = Duration::from_secs(1);

/// Appends to different objects seldom wait for each other.
const TURNS: usize = 64;

/// Replicas of a pool that has no objects yet, by default (`osd_pool_default_size`).
const REPLICAS: u64 = 3;

/// A pool, or one namespace of it.
pub struct Rados {
    shared: Arc<Shared>,
    capacity_bytes: u64,
    is_read_only: bool,
}

/// What a pool and its open objects share.
struct Shared {
    pool: Pool,
    target: String,
    deadline: Duration,
    clock: SystemClock,
    turns: [Mutex<()>; TURNS],
    superblock: Mutex<SuperblockWrites>,
    /// The space that the monitors reported last, and when, by the monotonic clock.
    space: Mutex<Option<(u64, Space)>>,
}

impl Rados {
    /// Largest object. OSDs refuse what is above 128 MiB (`osd_max_object_size`), and recover an object as a
    /// whole.
    pub const OBJECT_BYTES_MAX: u64 = 64 << 20;

    /// Connects to the cluster of a pool.
    ///
    /// # Errors
    ///
    /// `Unsupported` (librados is missing, or the pool takes appends only), `Denied` (the key is missing or
    /// refused), `Invalid`, `Io` (no monitor answers, there is no such pool).
    pub fn open(settings: &RadosSettings, capacity_bytes: u64, is_read_only: bool) -> Result<Self> {
        let target = settings.target();
        let pool = connect(settings).map_err(|error| error.with("target", &target))?;
        let shared = Arc::new(Shared {
            pool,
            target,
            deadline: settings.deadline,
            clock: SystemClock::default(),
            turns: [const { Mutex::new(()) }; TURNS],
            superblock: Mutex::default(),
            space: Mutex::default(),
        });
        Ok(Self { shared, capacity_bytes, is_read_only })
    }

    /// Whether the namespace of the pool has no objects.
    ///
    /// # Errors
    ///
    /// What the cluster returns.
    pub fn is_empty(&self) -> Result<bool> {
        self.shared.pool.is_empty().map_err(|errno| self.shared.failed("list a pool", errno))
    }

    /// Removes everything that a tier keeps in the namespace, and nothing else.
    ///
    /// # Errors
    ///
    /// What the cluster returns.
    pub fn clear(&self) -> Result<()> {
        const OPERATION: &str = "clear a pool";
        self.check_writable(OPERATION)?;
        let mut names = vec![SUPERBLOCK.to_owned()];
        self.shared
            .pool
            .list(0, 1, |name| {
                if attributes::parts(name).is_some() {
                    names.extend(CString::new(name));
                }
            })
            .map_err(|errno| self.shared.failed(OPERATION, errno))?;
        // The superblock comes last: without it, what is left would be foreign.
        for name in names.iter().rev() {
            match self.shared.pool.make(name, self.shared.pool.change().remove()) {
                Err(errno) if errno != Number::NOENT.raw_os_error() => {
                    return Err(self.shared.failed(OPERATION, errno));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_writable(&self, operation: &'static str) -> Result<()> {
        match self.is_read_only {
            false => Ok(()),
            true => Err(Error::new(ErrorKind::Denied, operation)
                .because("the tier is open for reading only")
                .with("target", self.target())),
        }
    }

    /// Makes an object that holds `data`, in one request.
    fn create(&self, key: &Key, how: &Open, data: &[u8]) -> Result<RadosObject> {
        const OPERATION: &str = "create an object";
        self.check_writable(OPERATION)?;
        let shared = &self.shared;
        let name = attributes::name(key)?;
        let now_ns = shared.clock.wall_ns();
        let instance = attributes::new_instance(now_ns, random(OPERATION)?);
        let mut change = shared.pool.change().create_new();
        change = change.set_attribute(INSTANCE, &instance);
        change = change.set_attribute(MODIFIED, &now_ns.to_le_bytes());
        if let Some(identity) = &how.identity {
            change = change.set_attribute(IDENTITY, &identity::encode(identity));
        }
        if let Some(label) = &how.label {
            change = change.set_attribute(LABEL, label);
        }
        if !data.is_empty() {
            change = change.write(0, data);
        }
        shared.make(OPERATION, key, &name, change)?;
        Ok(self.handle(key, name, how.access, instance, how.label.clone()))
    }

    fn existing(&self, key: &Key, how: &Open) -> Result<RadosObject> {
        if how.access == Access::Write {
            self.check_writable("open an object for writing")?;
        }
        let name = attributes::name(key)?;
        let (found, _) = self.shared.look("open an object", key, &name)?;
        Ok(self.handle(key, name, how.access, found.instance, found.label))
    }

    fn handle(
        &self,
        key: &Key,
        name: CString,
        access: Access,
        instance: Vec<u8>,
        label: Option<Arc<[u8]>>,
    ) -> RadosObject {
        let (shared, key) = (Arc::clone(&self.shared), key.clone());
        RadosObject { shared, key, name, access, instance, label }
    }

    fn open_object(&self, key: &Key, how: &Open) -> Result<RadosObject> {
        self.capability()
            .check_open("open an object", how)
            .map_err(|error| error.with("key", key).with("target", self.target()))?;
        match how.create {
            Create::New => self.create(key, how, &[]),
            Create::Never => self.existing(key, how),
            Create::IfMissing => loop {
                match self.existing(key, how) {
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    other => return other,
                }
                match self.create(key, how, &[]) {
                    // Another one was faster.
                    Err(error) if error.kind() == ErrorKind::Exists => {}
                    other => return other,
                }
            },
        }
    }

    /// Carries out a create with data: in one request where it is short.
    fn create_whole(&self, key: &Key, data: &[u8], semantics: &Semantics) -> Result<Reply> {
        let how = Open::create_new().with_semantics(*semantics);
        self.capability()
            .check_open("create an object", &how)
            .map_err(|error| error.with("key", key).with("target", self.target()))?;
        let (first, rest) = data.split_at(data.len().min(PIECE_BYTES));
        let object = self.create(key, &how, first)?;
        if !rest.is_empty() {
            let rest = [std::io::IoSlice::new(rest)];
            object.write_at(first.len() as u64, &rest)?;
        }
        Ok(Reply::Done)
    }
}

impl Shared {
    fn failed(&self, operation: &'static str, errno: Errno) -> Error {
        failure::of(operation, errno, || self.pool.exists(), self.deadline)
            .with("target", &self.target)
    }

    fn make(&self, operation: &'static str, key: &Key, name: &CStr, change: WriteOp) -> Result<()> {
        let made = self.pool.make(name, change);
        made.map(drop).map_err(|errno| self.failed(operation, errno).with("key", key))
    }

    /// Attributes and version of an object.
    fn look(&self, operation: &'static str, key: &Key, name: &CStr) -> Result<(Attributes, u64)> {
        let looked = self.pool.look(name);
        let looked = looked.map_err(|errno| self.failed(operation, errno).with("key", key))?;
        let version = looked.version;
        Ok((Attributes::of(looked), version))
    }

    /// Held from the look at the end of an object to the change that depends on it.
    fn turn(&self, name: &CStr) -> MutexGuard<'_, ()> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
        lock(&self.turns[hash as usize % TURNS])
    }

    fn read_superblock(&self, operation: &'static str) -> Result<Option<FoundSuperblock>> {
        /// Far more than any superblock has.
        const BYTES_MAX: usize = 4096;
        loop {
            let looked = match self.pool.look(SUPERBLOCK) {
                Err(errno) if errno == Number::NOENT.raw_os_error() && self.pool.exists() => {
                    return Ok(None);
                }
                looked => looked.map_err(|errno| self.failed(operation, errno))?,
            };
            let instance = looked.attributes.get(INSTANCE.to_bytes()).cloned().unwrap_or_default();
            let mut bytes = vec![0; BYTES_MAX];
            // Each write gives it another instance, so that the bytes are of this version.
            match self.pool.read_pieces(SUPERBLOCK, (INSTANCE, &instance), &mut [(0, &mut bytes)]) {
                Err(errno) if errno == Number::CANCELED.raw_os_error() => {}
                read => {
                    let counts = read.map_err(|errno| self.failed(operation, errno))?;
                    bytes.truncate(counts[0]);
                    let version = looked.version;
                    return Ok(Some(FoundSuperblock { bytes, instance, version }));
                }
            }
        }
    }
}

impl Backend for Rados {
    fn target(&self) -> &str {
        &self.shared.target
    }

    fn capability(&self) -> Capability {
        Capability {
            persistency: Persistency::Shared,
            identity: true,
            labels: true,
            object_bytes_max: Self::OBJECT_BYTES_MAX,
            ..Capability::LEAST
        }
    }

    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        self.open_object(key, how).map(|object| Box::new(object) as _)
    }

    fn stat(&self, key: &Key) -> Result<Stat> {
        let name = attributes::name(key)?;
        self.shared.look("stat an object", key, &name).map(|(found, _)| found.stat)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        const OPERATION: &str = "delete an object";
        self.check_writable(OPERATION)?;
        let name = attributes::name(key)?;
        self.shared.make(OPERATION, key, &name, self.shared.pool.change().remove())
    }

    fn list(&self, namespace: &str, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page> {
        listing::page(&self.shared, namespace, prefix, cursor, max)
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        listing::namespaces(&self.shared)
    }

    fn space(&self) -> Result<Space> {
        // Held across the requests: those that come meanwhile get the same answer.
        let mut known = lock(&self.shared.space);
        let now_ns = self.shared.clock.now_ns();
        if let Some((then_ns, space)) = *known
            && Duration::from_nanos(now_ns.saturating_sub(then_ns)) < SPACE_AGE_MAX
        {
            return Ok(space);
        }
        let failed = |errno| self.shared.failed("ask a pool for its space", errno);
        let pool = self.shared.pool.stat().map_err(failed)?;
        let cluster = self.shared.pool.cluster().stat().map_err(failed)?;
        let space = space_of(self.capacity_bytes, &pool, cluster.available_kib);
        *known = Some((now_ns, space));
        Ok(space)
    }

    fn execute(&self, operations: &mut [Op<'_>], semantics: &Semantics) {
        execute_creating(
            self,
            operations,
            |key, data| self.create_whole(key, data, semantics),
            semantics,
        );
    }

    fn sync(&self) -> Result<()> {
        // What was acknowledged is durable on the OSDs.
        Ok(())
    }

    fn sync_all(&self) -> Result<()> {
        Ok(())
    }

    fn tier(&self) -> Option<&dyn TierBackend> {
        Some(self)
    }
}

impl TierBackend for Rados {
    fn identity(&self, key: &Key) -> Result<Option<Identity>> {
        let name = attributes::name(key)?;
        let (found, _) = self.shared.look("read an identity", key, &name)?;
        found.identity().map_err(|error| error.with("key", key).with("target", self.target()))
    }

    fn set_identity(&self, key: &Key, identity: &Identity) -> Result<()> {
        const OPERATION: &str = "set an identity";
        self.check_writable(OPERATION)?;
        let name = attributes::name(key)?;
        let change = self.shared.pool.change().assert_exists();
        let change = change.set_attribute(IDENTITY, &identity::encode(identity));
        self.shared.make(OPERATION, key, &name, change)
    }

    fn superblock(&self) -> Result<Option<Superblock>> {
        const OPERATION: &str = "read the superblock";
        let found = self.shared.read_superblock(OPERATION)?;
        lock(&self.shared.superblock).note(found.as_ref());
        let Some(found) = found else { return Ok(None) };
        superblock::decode(&found.bytes).map(Some).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, OPERATION)
                .because("its text is not as this program or an earlier one writes it")
                .with("target", self.target())
        })
    }

    fn set_superblock(&self, superblock: &Superblock) -> Result<()> {
        const OPERATION: &str = "write the superblock";
        self.check_writable(OPERATION)?;
        let shared = &self.shared;
        let bytes = superblock::encode(superblock).into_bytes();
        let write = |expected: Version, instance: &[u8]| {
            let change = match expected {
                Version::Missing => shared.pool.change().create_new(),
                Version::There(version) => shared.pool.change().assert_version(version),
            };
            let change = change.write_full(&bytes).set_attribute(INSTANCE, instance);
            shared.pool.make(SUPERBLOCK, change)
        };
        let mut writes = lock(&shared.superblock);
        let written = writes.write(
            || Ok(attributes::new_instance(shared.clock.wall_ns(), random(OPERATION)?)),
            || shared.read_superblock(OPERATION),
            write,
        )?;
        match written {
            Ok(()) => Ok(()),
            // Another machine has written it since it was read.
            Err(errno) if is_other_version(errno) => Err(Error::new(ErrorKind::Denied, OPERATION)
                .because("another process has written it since: the store is open elsewhere")
                .with("target", self.target())),
            Err(errno) => Err(shared.failed(OPERATION, errno)),
        }
    }
}

/// Whether a change failed because its object is another one than was expected.
fn is_other_version(errno: Errno) -> bool {
    let number = Number::from_raw_os_error(errno);
    matches!(number, Number::RANGE | Number::OVERFLOW | Number::EXIST | Number::NOENT)
}

/// What a tier with a capacity may hold. The numbers of the cluster are of all replicas; those of the space are of
/// one. Objects of others in the pool take nothing from the capacity, but room of the cluster.
fn space_of(configured_bytes: u64, pool: &PoolStat, available_kib: u64) -> Space {
    let replicas = match pool.objects {
        0 => REPLICAS,
        objects => pool.copies.div_ceil(objects).max(1),
    };
    let available_bytes = available_kib.saturating_mul(1024) / replicas;
    let pool_bytes = pool.bytes / replicas;
    let capacity_bytes = configured_bytes.min(pool_bytes.saturating_add(available_bytes));
    let used_bytes = capacity_bytes.saturating_sub(available_bytes);
    Space { capacity_bytes, used_bytes, file_system: None }
}

fn connect(settings: &RadosSettings) -> Result<Pool> {
    let deadline = settings.deadline;
    let user = attributes::c_text(&format!("client.{}", settings.user))?;
    let connecting =
        |errno| failure::of_connecting(OPEN, errno, deadline).with("user", user.to_string_lossy());
    let cluster = Cluster::create(&user)?.map_err(connecting)?;
    configure(&cluster, settings)?;
    cluster.connect().map_err(connecting)?;
    let (pool, namespace) =
        (attributes::c_text(&settings.pool)?, attributes::c_text(&settings.namespace)?);
    let pool = Pool::open(&Arc::new(cluster), &pool, &namespace).map_err(|errno| {
        match errno == Number::NOENT.raw_os_error() {
            true => Error::new(ErrorKind::Io, OPEN).because("the cluster has no such pool"),
            false => failure::of(OPEN, errno, || true, deadline),
        }
    })?;
    if pool.takes_appends_only().map_err(|errno| failure::of(OPEN, errno, || true, deadline))? {
        return Err(Error::new(ErrorKind::Unsupported, OPEN).because(
            "the pool is erasure-coded and cannot be written in place: \
             `ceph osd pool set POOL allow_ec_overwrites true`",
        ));
    }
    Ok(pool)
}

fn configure(cluster: &Cluster, settings: &RadosSettings) -> Result<()> {
    let path_of = |path: &Path| {
        CString::new(path.as_os_str().as_bytes())
            .map_err(|_| Error::invalid(OPEN, "a path holds a null byte"))
    };
    let configuration = settings.configuration.as_deref();
    let path = configuration.map(path_of).transpose()?;
    cluster.read_configuration(path.as_deref()).map_err(|errno| {
        let number = Number::from_raw_os_error(errno);
        let named =
            configuration.map_or("of the usual places".into(), |path| path.display().to_string());
        Error::invalid(OPEN, "the configuration of Ceph cannot be read; set `conf`")
            .with("conf", named)
            .caused_by(std::io::Error::from(number))
    })?;
    let set = |option: &CStr, value: &CStr| {
        cluster.set(option, value).map_err(|errno| {
            Error::invalid(OPEN, "librados refuses an option")
                .with("option", option.to_string_lossy())
                .caused_by(std::io::Error::from_raw_os_error(errno))
        })
    };
    if let Some(keyring) = &settings.keyring {
        // librados names no file when it cannot read one.
        std::fs::File::open(keyring).map_err(|error| {
            Error::new(ErrorKind::Denied, OPEN)
                .because("the file with the key of the user cannot be read")
                .with("keyring", keyring.display())
                .caused_by(error)
        })?;
        set(c"keyring", &path_of(keyring)?)?;
    }
    let seconds = settings.deadline.as_millis().div_ceil(1000).max(1);
    let seconds = attributes::c_text(&seconds.to_string())?;
    for option in [c"client_mount_timeout", c"rados_mon_op_timeout", c"rados_osd_op_timeout"] {
        set(option, &seconds)?;
    }
    // This process is none of Ceph's: it prints nothing of them, and makes no socket.
    for option in [c"log_to_stderr", c"err_to_stderr", c"log_to_file", c"log_to_syslog"] {
        set(option, c"false")?;
    }
    for option in [c"log_file", c"admin_socket"] {
        set(option, c"")?;
    }
    Ok(())
}

fn random(operation: &'static str) -> Result<[u8; 8]> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Error::from_io(operation, errno.into()))?;
    Ok(bytes)
}

/// No method leaves what a lock guards half changed, so it is sound even after a panic elsewhere.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn pool(bytes: u64, objects: u64, copies: u64) -> PoolStat {
        PoolStat { bytes, objects, copies, ..PoolStat::default() }
    }

    #[test]
    fn space_is_that_of_one_replica() {
        // 3 replicas of 100 GiB, and room for 200 GiB more of each.
        let space = space_of(u64::MAX, &pool(300 * GIB, 10, 30), 600 * GIB / 1024);
        assert_eq!((space.capacity_bytes, space.used_bytes), (300 * GIB, 100 * GIB));
        let empty = space_of(u64::MAX, &pool(0, 0, 0), 600 * GIB / 1024);
        assert_eq!((empty.capacity_bytes, empty.used_bytes), (200 * GIB, 0));
        // A replica is missing.
        let degraded = space_of(u64::MAX, &pool(299 * GIB, 10, 29), 600 * GIB / 1024);
        assert_eq!(degraded.capacity_bytes - degraded.used_bytes, 200 * GIB);
    }

    #[test]
    fn objects_of_others_leave_the_capacity_of_a_tier() {
        let pool = pool(3000 * GIB, 10, 30);
        let roomy = space_of(10 * GIB, &pool, 600 * GIB / 1024);
        assert_eq!((roomy.capacity_bytes, roomy.used_bytes), (10 * GIB, 0));
        // The cluster has less room than the tier may take.
        let full = space_of(10 * GIB, &pool, 12 * GIB / 1024);
        assert_eq!((full.capacity_bytes, full.used_bytes), (10 * GIB, 6 * GIB));
    }
}
