// SPDX-License-Identifier: Apache-2.0 OR MIT
//! librados, loaded at run time: the only module that calls it.
//!
//! The functions are declared by hand as `librados.h` of Ceph 15 and later has them. Callers see owned
//! handles and slices; a failed call returns the number of the error. It is one file, so that there is one
//! place with `unsafe`.
#![allow(unsafe_code, reason = "librados is a library of C (docs/adr/0059)")]

use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use libloading::Library;
use rustix::io::Errno as Number;
use terrace_core::{Error, ErrorKind, Result};

const NAME: &str = "librados.so.2";

/// Object names that one request lists.
const LISTED_MAX: usize = 1000;

/// `LIBRADOS_CREATE_EXCLUSIVE`.
const CREATE_EXCLUSIVE: c_int = 1;
/// `LIBRADOS_CMPXATTR_OP_EQ`.
const EQUAL: u8 = 1;
/// `LIBRADOS_OPERATION_FULL_TRY`: a full pool refuses a write, which otherwise blocks until there is room.
const FULL_TRY: c_int = 64;

type Handle = *mut c_void;
type Name = *const c_char;

/// `rados_object_list_item`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ListItem {
    name_bytes: usize,
    name: *mut c_char,
    namespace_bytes: usize,
    namespace: *mut c_char,
    locator_bytes: usize,
    locator: *mut c_char,
}

/// `rados_pool_stat_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PoolStat {
    /// Allocated on the OSDs, of all replicas.
    pub(super) bytes: u64,
    pub(super) kib: u64,
    pub(super) objects: u64,
    pub(super) clones: u64,
    /// Objects times their replicas, or times the parts of an erasure code.
    pub(super) copies: u64,
    pub(super) rest: [u64; 11],
}

/// `rados_cluster_stat_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClusterStat {
    kib: u64,
    used_kib: u64,
    pub(super) available_kib: u64,
    objects: u64,
}

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library, which is never unloaded.
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            _code: Library,
        }

        impl Functions {
            fn of(code: Library) -> Result<Self, &'static str> {
                $(
                    let symbol = concat!("rados_", stringify!($name));
                    // SAFETY: `librados.h` declares the function with these types.
                    let found = unsafe {
                        code.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(symbol)
                    };
                    let $name = *found.map_err(|_| symbol)?;
                )*
                Ok(Self { $($name,)* _code: code })
            }
        }
    };
}

functions! {
    create2(*mut Handle, Name, Name, u64) -> c_int;
    conf_read_file(Handle, Name) -> c_int;
    conf_set(Handle, Name, Name) -> c_int;
    connect(Handle) -> c_int;
    shutdown(Handle);
    cluster_stat(Handle, *mut ClusterStat) -> c_int;
    ioctx_create(Handle, Name, *mut Handle) -> c_int;
    ioctx_destroy(Handle);
    ioctx_get_pool_name(Handle, *mut c_char, c_uint) -> c_int;
    ioctx_set_namespace(Handle, Name);
    ioctx_pool_stat(Handle, *mut PoolStat) -> c_int;
    ioctx_pool_requires_alignment2(Handle, *mut c_int) -> c_int;
    object_list_begin(Handle) -> Handle;
    object_list_end(Handle) -> Handle;
    object_list_is_end(Handle, Handle) -> c_int;
    object_list_slice(Handle, Handle, Handle, usize, usize, *mut Handle, *mut Handle);
    object_list(Handle, Handle, Handle, usize, Name, usize, *mut ListItem, *mut Handle) -> c_int;
    object_list_free(usize, *mut ListItem);
    object_list_cursor_free(Handle, Handle);
    object_list_cursor_cmp(Handle, Handle, Handle) -> c_int;
    aio_create_completion2(*mut c_void, *mut c_void, *mut Handle) -> c_int;
    aio_wait_for_complete(Handle) -> c_int;
    aio_get_return_value(Handle) -> c_int;
    aio_get_version(Handle) -> u64;
    aio_release(Handle);
    create_write_op() -> Handle;
    release_write_op(Handle);
    write_op_create(Handle, c_int, Name);
    write_op_assert_exists(Handle);
    write_op_assert_version(Handle, u64);
    write_op_cmpxattr(Handle, Name, u8, Name, usize);
    write_op_setxattr(Handle, Name, Name, usize);
    write_op_write(Handle, Name, usize, u64);
    write_op_write_full(Handle, Name, usize);
    write_op_truncate(Handle, u64);
    write_op_zero(Handle, u64, u64);
    write_op_remove(Handle);
    aio_write_op_operate(Handle, Handle, Handle, Name, *mut c_long, c_int) -> c_int;
    create_read_op() -> Handle;
    release_read_op(Handle);
    read_op_cmpxattr(Handle, Name, u8, Name, usize);
    read_op_read(Handle, u64, usize, *mut c_char, *mut usize, *mut c_int);
    read_op_stat(Handle, *mut u64, *mut c_long, *mut c_int);
    read_op_getxattrs(Handle, *mut Handle, *mut c_int);
    aio_read_op_operate(Handle, Handle, Handle, Name, c_int) -> c_int;
    getxattrs_next(Handle, *mut Name, *mut Name, *mut usize) -> c_int;
    getxattrs_end(Handle);
}

/// Number of an error of the operating system, above 0, as librados returns it.
pub(super) type Errno = i32;

fn done(result: c_int) -> Result<(), Errno> {
    if result < 0 { Err(-result) } else { Ok(()) }
}

/// Loads the library, once for the process.
///
/// # Errors
///
/// `Unsupported`.
fn functions() -> Result<&'static Functions> {
    static LOADED: OnceLock<Functions> = OnceLock::new();
    static LOADING: Mutex<()> = Mutex::new(());
    let _turn = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    match LOADED.get() {
        Some(functions) => Ok(functions),
        None => load(NAME).map(|functions| LOADED.get_or_init(|| functions)),
    }
}

fn load(name: &'static str) -> Result<Functions> {
    let unsupported = |reason: String| {
        Error::new(ErrorKind::Unsupported, "use Ceph").because(reason).with("library", name)
    };
    // SAFETY: the initialisers of Ceph's client library run, as in every client of Ceph.
    let code = unsafe { Library::new(name) }.map_err(|error| {
        unsupported(
            "the client library of Ceph cannot be loaded: install the package librados2 (Debian and \
             Ubuntu from their own repositories, RHEL and its relatives from that of Ceph)"
                .into(),
        )
        .caused_by(error)
    })?;
    Functions::of(code).map_err(|symbol| {
        unsupported(format!("it has no {symbol}: librados2 of Ceph 15 or later is needed"))
    })
}

/// A connection to a cluster; ends when the last owner is gone.
pub(super) struct Cluster {
    functions: &'static Functions,
    handle: Handle,
}

// SAFETY: "librados is thread-safe": the handle has locks of its own, and is set up by one thread.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

impl Cluster {
    /// A cluster that is not connected yet, to be used as `user`, for example `client.admin`.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the library is missing; the inner one is what the library returned.
    pub(super) fn create(user: &CStr) -> Result<Result<Self, Errno>> {
        let functions = functions()?;
        let mut handle = ptr::null_mut();
        // SAFETY: the names end with a null byte, and the handle is valid where 0 is returned.
        let result =
            unsafe { (functions.create2)(&raw mut handle, c"ceph".as_ptr(), user.as_ptr(), 0) };
        Ok(done(result).map(|()| Self { functions, handle }))
    }

    /// Reads this configuration, or the one of the usual places.
    pub(super) fn read_configuration(&self, path: Option<&CStr>) -> Result<(), Errno> {
        let path = path.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: the handle is valid, and the path ends with a null byte or is none.
        done(unsafe { (self.functions.conf_read_file)(self.handle, path) })
    }

    pub(super) fn set(&self, option: &CStr, value: &CStr) -> Result<(), Errno> {
        // SAFETY: the handle is valid, and both texts end with a null byte.
        done(unsafe { (self.functions.conf_set)(self.handle, option.as_ptr(), value.as_ptr()) })
    }

    /// Connects within the option `client_mount_timeout`.
    pub(super) fn connect(&self) -> Result<(), Errno> {
        // SAFETY: the handle is valid.
        done(unsafe { (self.functions.connect)(self.handle) })
    }

    pub(super) fn stat(&self) -> Result<ClusterStat, Errno> {
        let mut stat = ClusterStat::default();
        // SAFETY: the handle is valid, and the structure has the layout of `rados_cluster_stat_t`.
        done(unsafe { (self.functions.cluster_stat)(self.handle, &raw mut stat) })?;
        Ok(stat)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: no pool of the cluster is left, as each owns it; the handle is not used again.
        unsafe { (self.functions.shutdown)(self.handle) }
    }
}

/// A namespace of a pool.
pub(super) struct Pool {
    cluster: Arc<Cluster>,
    handle: Handle,
}

// SAFETY: operations on one context from several threads are allowed; what may not be changed
// meanwhile, its namespace, is set before it is returned.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

/// What an object has.
pub(super) struct Looked {
    pub(super) size_bytes: u64,
    /// When it was changed, seconds since 1970.
    pub(super) modified_s: c_long,
    pub(super) attributes: HashMap<Vec<u8>, Vec<u8>>,
    /// The version to compare with [`WriteOp::assert_version`].
    pub(super) version: u64,
}

/// Requests of one call that are on their way at a time.
const REQUESTS_MAX: usize = 16;

impl Pool {
    pub(super) fn open(
        cluster: &Arc<Cluster>,
        pool: &CStr,
        namespace: &CStr,
    ) -> Result<Self, Errno> {
        let mut handle = ptr::null_mut();
        let functions = cluster.functions;
        // SAFETY: the handle of the cluster is valid, the name ends with a null byte.
        let result =
            unsafe { (functions.ioctx_create)(cluster.handle, pool.as_ptr(), &raw mut handle) };
        done(result)?;
        let pool = Self { cluster: Arc::clone(cluster), handle };
        // SAFETY: the handle was just made and no other thread has it; the name ends with a null byte.
        unsafe { (functions.ioctx_set_namespace)(handle, namespace.as_ptr()) };
        Ok(pool)
    }

    fn functions(&self) -> &'static Functions {
        self.cluster.functions
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Whether bytes that are there cannot be written over: an erasure code without overwrites.
    pub(super) fn takes_appends_only(&self) -> Result<bool, Errno> {
        let mut asks = 0;
        // SAFETY: the handle is valid, and so is the place of the answer.
        done(unsafe {
            (self.functions().ioctx_pool_requires_alignment2)(self.handle, &raw mut asks)
        })?;
        Ok(asks != 0)
    }

    /// Whether the pool exists, by the newest map of the cluster that the client has.
    pub(super) fn exists(&self) -> bool {
        // Names are shorter; one that is not would be `ERANGE`.
        let mut name = [0; 256];
        // SAFETY: the handle is valid, and the array has this length.
        let result = unsafe {
            (self.functions().ioctx_get_pool_name)(
                self.handle,
                name.as_mut_ptr(),
                name.len() as c_uint,
            )
        };
        result != -Number::NOENT.raw_os_error()
    }

    pub(super) fn stat(&self) -> Result<PoolStat, Errno> {
        let mut stat = PoolStat::default();
        // SAFETY: the handle is valid, and the structure has the layout of `rados_pool_stat_t`.
        done(unsafe { (self.functions().ioctx_pool_stat)(self.handle, &raw mut stat) })?;
        Ok(stat)
    }

    /// A change that is to be made of an object, all of it or nothing.
    pub(super) fn change(&self) -> WriteOp {
        let functions = self.functions();
        // SAFETY: takes nothing, and returns a handle that its owner releases.
        let handle = unsafe { (functions.create_write_op)() };
        WriteOp { functions, handle }
    }

    /// Makes a change; returns the version of the object after it.
    pub(super) fn make(&self, name: &CStr, change: WriteOp) -> Result<u64, Errno> {
        self.begin_change(name, change)?.wait()
    }

    /// Makes changes, some of them at a time. The first error ends it once those on their way are over.
    pub(super) fn make_all(
        &self,
        name: &CStr,
        changes: impl Iterator<Item = WriteOp>,
    ) -> Result<(), Errno> {
        let mut begun = VecDeque::new();
        for change in changes {
            if begun.len() == REQUESTS_MAX {
                let first: Begun = begun.pop_front().expect("it is not empty");
                first.wait()?;
            }
            begun.push_back(self.begin_change(name, change)?);
        }
        begun.into_iter().try_for_each(|change| change.wait().map(drop))
    }

    fn begin_change(&self, name: &CStr, change: WriteOp) -> Result<Begun, Errno> {
        let functions = self.functions();
        let completion = Completion::new(functions)?;
        // SAFETY: all handles are valid, the name ends with a null byte. The operation has copies of
        // its bytes, and is released after its completion.
        let result = unsafe {
            (functions.aio_write_op_operate)(
                change.handle,
                self.handle,
                completion.handle,
                name.as_ptr(),
                ptr::null_mut(),
                FULL_TRY,
            )
        };
        if result < 0 {
            completion.abandon();
            return Err(-result);
        }
        Ok(Begun { completion, _change: change })
    }

    /// Size, time and attributes of an object, of one moment.
    pub(super) fn look(&self, name: &CStr) -> Result<Looked, Errno> {
        let functions = self.functions();
        let operation = ReadOp::new(functions);
        let (mut size_bytes, mut modified_s): (u64, c_long) = (0, 0);
        let (mut stat_result, mut list_result) = (0, 0);
        let mut list = Attributes { functions, handle: ptr::null_mut() };
        // SAFETY: the operation is valid. The places of the answers are locals of this call, which
        // waits for the operation before it returns.
        unsafe {
            (functions.read_op_stat)(
                operation.handle,
                &raw mut size_bytes,
                &raw mut modified_s,
                &raw mut stat_result,
            );
            (functions.read_op_getxattrs)(
                operation.handle,
                &raw mut list.handle,
                &raw mut list_result,
            );
        }
        let version = self.read(name, &operation)?.wait()?;
        done(stat_result)?;
        done(list_result)?;
        Ok(Looked { size_bytes, modified_s, attributes: list.all()?, version })
    }

    /// Fills the pieces with the bytes at their offsets, some of them at a time, where the attribute has this
    /// value; returns the bytes read of each.
    ///
    /// # Errors
    ///
    /// `ECANCELED` where the attribute has another value.
    pub(super) fn read_pieces(
        &self,
        name: &CStr,
        attribute: (&CStr, &[u8]),
        pieces: &mut [(u64, &mut [u8])],
    ) -> Result<Vec<usize>, Errno> {
        let functions = self.functions();
        let mut answers = vec![(0usize, 0 as c_int); pieces.len()];
        // Behind the answers and the pieces: dropped, and so waited for, before them.
        let mut begun: VecDeque<(Completion, ReadOp)> = VecDeque::new();
        for ((offset_bytes, piece), answer) in pieces.iter_mut().zip(&mut answers) {
            if begun.len() == REQUESTS_MAX {
                let (first, _operation) = begun.pop_front().expect("it is not empty");
                first.wait()?;
            }
            let operation = ReadOp::new(functions);
            let (key, value) = attribute;
            // SAFETY: the operation is valid. Key and value are copied. The piece and the place of its
            // answer stay where they are until `begun` is dropped, which waits for the operation.
            unsafe {
                (functions.read_op_cmpxattr)(
                    operation.handle,
                    key.as_ptr(),
                    EQUAL,
                    value.as_ptr().cast(),
                    value.len(),
                );
                (functions.read_op_read)(
                    operation.handle,
                    *offset_bytes,
                    piece.len(),
                    piece.as_mut_ptr().cast(),
                    &raw mut answer.0,
                    &raw mut answer.1,
                );
            }
            let completion = self.read(name, &operation)?;
            begun.push_back((completion, operation));
        }
        for (completion, _operation) in begun.drain(..) {
            completion.wait()?;
        }
        drop(begun);
        answers.into_iter().map(|(count, result)| done(result).map(|()| count)).collect()
    }

    /// Begins a read; its owner waits for it while all that it refers to is there.
    fn read(&self, name: &CStr, operation: &ReadOp) -> Result<Completion, Errno> {
        let functions = self.functions();
        let completion = Completion::new(functions)?;
        // SAFETY: all handles are valid, the name ends with a null byte; the callers wait for the
        // completion before the operation and what it fills are gone.
        let result = unsafe {
            (functions.aio_read_op_operate)(
                operation.handle,
                self.handle,
                completion.handle,
                name.as_ptr(),
                0,
            )
        };
        if result < 0 {
            completion.abandon();
            return Err(-result);
        }
        Ok(completion)
    }

    /// Names of the objects whose hashes are in one of `count` equal parts of all hashes.
    pub(super) fn list(
        &self,
        part: usize,
        count: usize,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), Errno> {
        self.walk(part, count, LISTED_MAX, |names| {
            names.iter().for_each(|name| take(name));
            true
        })
    }

    /// Whether there is no object.
    pub(super) fn is_empty(&self) -> Result<bool, Errno> {
        let mut is_empty = true;
        self.walk(0, 1, 1, |names| {
            is_empty &= names.is_empty();
            is_empty
        })?;
        Ok(is_empty)
    }

    /// Calls `take` with the names that one request found after the other, until it returns false.
    fn walk(
        &self,
        part: usize,
        count: usize,
        max: usize,
        mut take: impl FnMut(&[&[u8]]) -> bool,
    ) -> Result<(), Errno> {
        let functions = self.functions();
        let cursor = |make: unsafe extern "C" fn(Handle) -> Handle| {
            // SAFETY: the handle is valid; the result is a cursor that its owner frees.
            ListCursor { pool: self, handle: unsafe { make(self.handle) } }
        };
        let (begin, end) = (cursor(functions.object_list_begin), cursor(functions.object_list_end));
        // Those that are results have to be there before.
        let mut at = cursor(functions.object_list_begin);
        let mut finish = cursor(functions.object_list_end);
        // SAFETY: pool and cursors are valid, `part` is below `count`; the last two are changed in place.
        unsafe {
            (functions.object_list_slice)(
                self.handle,
                begin.handle,
                end.handle,
                part,
                count,
                &raw mut at.handle,
                &raw mut finish.handle,
            );
        }
        let none = ListItem {
            name_bytes: 0,
            name: ptr::null_mut(),
            namespace_bytes: 0,
            namespace: ptr::null_mut(),
            locator_bytes: 0,
            locator: ptr::null_mut(),
        };
        let mut items = vec![none; max];
        loop {
            let mut next = cursor(functions.object_list_end);
            // SAFETY: pool and cursors are valid; there is room for `max` items, and `next` is changed in
            // place. An empty filter is none.
            let result = unsafe {
                (functions.object_list)(
                    self.handle,
                    at.handle,
                    finish.handle,
                    max,
                    ptr::null(),
                    0,
                    items.as_mut_ptr(),
                    &raw mut next.handle,
                )
            };
            done(result)?;
            let found = Found { functions, items: &mut items[..result as usize] };
            let goes_on = take(&found.names());
            drop(found);
            // SAFETY: pool and cursor are valid.
            let is_end = unsafe { (functions.object_list_is_end)(self.handle, next.handle) } != 0;
            // SAFETY: as above.
            let from = |other: &ListCursor<'_>| unsafe {
                (functions.object_list_cursor_cmp)(self.handle, next.handle, other.handle)
            };
            // An answer without names is not the end: the placement group may hold none.
            if !goes_on || is_end || from(&finish) >= 0 || from(&at) <= 0 {
                return Ok(());
            }
            at = next;
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the handle is not used again; the cluster, which it needs, is dropped behind this.
        unsafe { (self.functions().ioctx_destroy)(self.handle) }
    }
}

/// A place in the list of all objects.
struct ListCursor<'a> {
    pool: &'a Pool,
    handle: Handle,
}

impl Drop for ListCursor<'_> {
    fn drop(&mut self) {
        // SAFETY: the library made the cursor, and it is not used again.
        unsafe { (self.pool.functions().object_list_cursor_free)(self.pool.handle, self.handle) }
    }
}

/// Names that a request found.
struct Found<'a> {
    functions: &'static Functions,
    items: &'a mut [ListItem],
}

impl Found<'_> {
    fn names(&self) -> Vec<&[u8]> {
        let name = |item: &ListItem| match item.name.is_null() {
            true => &[][..],
            // SAFETY: the library made the name with this length, and it lives as long as the items.
            false => unsafe { std::slice::from_raw_parts(item.name.cast(), item.name_bytes) },
        };
        self.items.iter().map(name).collect()
    }
}

impl Drop for Found<'_> {
    fn drop(&mut self) {
        // SAFETY: the library filled these items, and they are not read again.
        unsafe { (self.functions.object_list_free)(self.items.len(), self.items.as_mut_ptr()) }
    }
}

/// A change of one object, which is made as a whole.
pub(super) struct WriteOp {
    functions: &'static Functions,
    handle: Handle,
}

impl WriteOp {
    /// Makes the object, which must not exist.
    pub(super) fn create_new(self) -> Self {
        // SAFETY: the handle is valid; no category is allowed.
        unsafe { (self.functions.write_op_create)(self.handle, CREATE_EXCLUSIVE, ptr::null()) }
        self
    }

    /// Fails with `ENOENT` where the object does not exist.
    pub(super) fn assert_exists(self) -> Self {
        // SAFETY: the handle is valid.
        unsafe { (self.functions.write_op_assert_exists)(self.handle) }
        self
    }

    /// Fails with `ERANGE` or `EOVERFLOW` where the object has another version.
    pub(super) fn assert_version(self, version: u64) -> Self {
        // SAFETY: the handle is valid.
        unsafe { (self.functions.write_op_assert_version)(self.handle, version) }
        self
    }

    /// Fails with `ECANCELED` where the attribute has another value; a missing one is as an empty one.
    pub(super) fn assert_attribute(self, name: &CStr, value: &[u8]) -> Self {
        // SAFETY: the handle is valid; the name ends with a null byte, both are copied.
        unsafe {
            (self.functions.write_op_cmpxattr)(
                self.handle,
                name.as_ptr(),
                EQUAL,
                value.as_ptr().cast(),
                value.len(),
            );
        }
        self
    }

    pub(super) fn set_attribute(self, name: &CStr, value: &[u8]) -> Self {
        // SAFETY: the handle is valid; the name ends with a null byte, both are copied.
        unsafe {
            (self.functions.write_op_setxattr)(
                self.handle,
                name.as_ptr(),
                value.as_ptr().cast(),
                value.len(),
            );
        }
        self
    }

    pub(super) fn write(self, offset_bytes: u64, data: &[u8]) -> Self {
        // SAFETY: the handle is valid; the bytes are copied.
        unsafe {
            (self.functions.write_op_write)(
                self.handle,
                data.as_ptr().cast(),
                data.len(),
                offset_bytes,
            );
        }
        self
    }

    /// Replaces all bytes of the object.
    pub(super) fn write_full(self, data: &[u8]) -> Self {
        // SAFETY: the handle is valid; the bytes are copied.
        unsafe {
            (self.functions.write_op_write_full)(self.handle, data.as_ptr().cast(), data.len());
        }
        self
    }

    pub(super) fn truncate(self, size_bytes: u64) -> Self {
        // SAFETY: the handle is valid.
        unsafe { (self.functions.write_op_truncate)(self.handle, size_bytes) }
        self
    }

    /// Makes a range read as zeros; it must not be empty.
    pub(super) fn zero(self, offset_bytes: u64, length_bytes: u64) -> Self {
        // SAFETY: the handle is valid.
        unsafe { (self.functions.write_op_zero)(self.handle, offset_bytes, length_bytes) }
        self
    }

    pub(super) fn remove(self) -> Self {
        // SAFETY: the handle is valid.
        unsafe { (self.functions.write_op_remove)(self.handle) }
        self
    }
}

impl Drop for WriteOp {
    fn drop(&mut self) {
        // SAFETY: the handle is not used again; a change that was begun is over by now.
        unsafe { (self.functions.release_write_op)(self.handle) }
    }
}

/// A change on its way. Its fields are dropped in their order: the wait comes before the release.
struct Begun {
    completion: Completion,
    _change: WriteOp,
}

impl Begun {
    fn wait(self) -> Result<u64, Errno> {
        self.completion.wait()
    }
}

struct ReadOp {
    functions: &'static Functions,
    handle: Handle,
}

impl ReadOp {
    fn new(functions: &'static Functions) -> Self {
        // SAFETY: takes nothing, and returns a handle that its owner releases.
        let handle = unsafe { (functions.create_read_op)() };
        Self { functions, handle }
    }
}

impl Drop for ReadOp {
    fn drop(&mut self) {
        // SAFETY: the handle is not used again; what was begun with it is over by now.
        unsafe { (self.functions.release_read_op)(self.handle) }
    }
}

/// What waits for an operation; dropped, it waits as well.
struct Completion {
    functions: &'static Functions,
    handle: Handle,
    is_begun: bool,
}

impl Completion {
    fn new(functions: &'static Functions) -> Result<Self, Errno> {
        let mut handle = ptr::null_mut();
        // SAFETY: there is no callback, and the place of the handle is valid.
        let result = unsafe {
            (functions.aio_create_completion2)(ptr::null_mut(), ptr::null_mut(), &raw mut handle)
        };
        done(result)?;
        Ok(Self { functions, handle, is_begun: true })
    }

    /// For an operation that was not begun, which never completes.
    fn abandon(mut self) {
        self.is_begun = false;
    }

    /// Waits for the operation; returns the version of its object.
    fn wait(&self) -> Result<u64, Errno> {
        // SAFETY: the handle is valid, and the operation completes at the latest after its timeout.
        let (result, version) = unsafe {
            (self.functions.aio_wait_for_complete)(self.handle);
            let result = (self.functions.aio_get_return_value)(self.handle);
            (result, (self.functions.aio_get_version)(self.handle))
        };
        done(result).map(|()| version)
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        // SAFETY: the handle is valid and not used again. Memory that the operation uses may go behind this.
        unsafe {
            if self.is_begun {
                (self.functions.aio_wait_for_complete)(self.handle);
            }
            (self.functions.aio_release)(self.handle);
        }
    }
}

/// Attributes that a read operation fills.
struct Attributes {
    functions: &'static Functions,
    handle: Handle,
}

impl Attributes {
    fn all(&self) -> Result<HashMap<Vec<u8>, Vec<u8>>, Errno> {
        let mut all = HashMap::new();
        loop {
            let (mut name, mut value, mut bytes) = (ptr::null(), ptr::null(), 0);
            // SAFETY: the operation that fills the list has completed; the places are valid.
            done(unsafe {
                (self.functions.getxattrs_next)(
                    self.handle,
                    &raw mut name,
                    &raw mut value,
                    &raw mut bytes,
                )
            })?;
            if name.is_null() {
                return Ok(all);
            }
            // SAFETY: the name ends with a null byte and the value has this length, until the list is freed.
            let (name, value) = unsafe {
                let value = match value.is_null() {
                    true => &[][..],
                    false => std::slice::from_raw_parts(value.cast(), bytes),
                };
                (CStr::from_ptr(name).to_bytes().to_vec(), value.to_vec())
            };
            all.insert(name, value);
        }
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the library made the list, and it is not used again.
            unsafe { (self.functions.getxattrs_end)(self.handle) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &'static str) -> Error {
        let error = load(name).err().expect("it is not librados");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        error
    }

    #[test]
    fn a_missing_library_names_its_package() {
        let text = refused("librados-missing.so.2").chain();
        assert!(text.contains("install the package librados2"), "{text}");
        assert!(text.contains("library=librados-missing.so.2"), "{text}");
    }

    #[test]
    fn a_library_without_a_function_is_refused() {
        let text = refused("libc.so.6").chain();
        assert!(text.contains("rados_create2") && text.contains("Ceph 15"), "{text}");
    }
}
