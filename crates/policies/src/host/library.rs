// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opens a shared library and checks the table of functions that it exports.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use libloading::os::unix::{Library as Code, RTLD_LOCAL, RTLD_NOW};
use rustix::fs::{MemfdFlags, memfd_create};
use terrace_core::{Error, ErrorKind, Interest, Result};
use terrace_policy_abi as abi;

use super::exchange;

const OPERATION: &str = "load a policy library";

/// Larger files are refused: a policy has kilobytes, with a language's runtime megabytes.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Longest name of a policy.
const NAME_BYTES_MAX: usize = 64;

/// `RTLD_NOLOAD` of Linux (`dlfcn.h`): look only among the libraries that are loaded.
const RTLD_NOLOAD: i32 = 4;

/// A loaded library with its functions; unloaded when the last owner is gone.
///
/// The functions are those of [`abi::Api`]; what it requires is no longer optional.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) name: String,
    pub(super) create: abi::Create,
    pub(super) destroy: abi::Destroy,
    pub(super) observe: abi::Observe,
    pub(super) plan: abi::Plan,
    pub(super) publish: Option<abi::Publish>,
    pub(super) place: Option<abi::Place>,
    pub(super) message: Option<abi::Message>,
    pub(super) parameters: Option<abi::ListParameters>,
    pub(super) set_parameter: Option<abi::SetParameter>,
    pub(super) save: Option<abi::Save>,
    pub(super) restore: Option<abi::Restore>,
    pub(super) state_version: u32,
    pub(super) interest: Interest,
    /// Keeps the functions loaded.
    _code: Code,
}

impl Library {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let code = open_code(path).map_err(|error| error.with("library", path.display()))?;
        Self::from_code(code).map_err(|error| error.with("library", path.display()))
    }

    fn from_code(code: Code) -> Result<Self> {
        let api = api(&code)?;
        let missing =
            |function| Error::invalid(OPERATION, format!("it has no {function} function"));
        Ok(Self {
            name: name(&api)?,
            create: api.create.ok_or_else(|| missing("create"))?,
            destroy: api.destroy.ok_or_else(|| missing("destroy"))?,
            observe: api.observe.ok_or_else(|| missing("observe"))?,
            plan: api.plan.ok_or_else(|| missing("plan"))?,
            publish: api.publish,
            place: api.place,
            message: api.message,
            parameters: api.parameters,
            set_parameter: api.set_parameter,
            save: api.save,
            restore: api.restore,
            state_version: api.state_version,
            interest: Interest {
                stat: api.interest & abi::interest::STAT != 0,
                sync: api.interest & abi::interest::SYNC != 0,
            },
            _code: code,
        })
    }
}

/// Loads a private copy of the file.
///
/// The dynamic linker would map the file itself, so that a compiler that overwrites it crashes the
/// running store, and it knows loaded libraries by path, so that the new code would not be seen
/// as long as the old one runs.
fn open_code(path: &Path) -> Result<Code> {
    let copy = copy_to_memory(path)?;
    let mut descriptors = vec![copy];
    let private_path = loop {
        let newest = &descriptors[descriptors.len() - 1];
        let candidate = format!("/proc/self/fd/{}", newest.as_raw_fd());
        // A library may stay loaded under the path of a descriptor that was closed long ago.
        if !is_loaded(&candidate) {
            break candidate;
        }
        let next = newest.try_clone().map_err(|error| Error::from_io(OPERATION, error))?;
        descriptors.push(next);
    };
    // SAFETY: the library's initialisers run; the configuration that names a library trusts it with
    // the process, as the header says.
    unsafe { Code::open(Some(&private_path), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| {
        let why = error.to_string().replace(&private_path, "the file");
        Error::invalid(OPERATION, format!("it is no shared library for this machine: {why}"))
    })
}

fn is_loaded(path: &str) -> bool {
    // SAFETY: nothing is loaded, so no initialiser runs; a handle that is found is given back.
    unsafe { Code::open(Some(path), RTLD_NOW | RTLD_NOLOAD) }.is_ok()
}

fn copy_to_memory(path: &Path) -> Result<OwnedFd> {
    let failed = |error| Error::from_io(OPERATION, error);
    // Opening a pipe would wait for its writer, so the type is asked for first.
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(Error::invalid(OPERATION, "it is not a file"));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(Error::invalid(OPERATION, "it is too large to be a policy")
            .with("size_bytes", metadata.len())
            .with("size_bytes_max", FILE_BYTES_MAX));
    }
    let mut source = File::open(path).map_err(failed)?;
    let memory = memfd_create("terrace-policy", MemfdFlags::CLOEXEC)
        .map_err(|error| failed(error.into()))?;
    let mut target = File::from(memory);
    io::copy(&mut source, &mut target).map_err(failed)?;
    Ok(target.into())
}

/// The library's table, if it has the version and the size that this host reads.
fn api(code: &Code) -> Result<abi::Api> {
    let no_symbol = || {
        let reason = format!("it does not export {}, so it is no policy", abi::ENTRY_SYMBOL);
        Error::invalid(OPERATION, reason)
    };
    // SAFETY: the header fixes the type of this symbol.
    let entry = unsafe { code.get::<abi::Entry>(abi::ENTRY_SYMBOL) }.map_err(|_| no_symbol())?;
    // SAFETY: the header allows this call at any time.
    let table = unsafe { entry(abi::ABI_VERSION) };
    let other_version = |theirs: &str| {
        let reason = format!(
            "it was made for version {theirs} of terrace_policy.h, this program has version {}",
            abi::ABI_VERSION
        );
        Error::new(ErrorKind::Unsupported, OPERATION).because(reason)
    };
    if table.is_null() {
        return Err(other_version("another"));
    }
    // SAFETY: every version of the table begins with these two numbers; it is valid as long as the
    // library is loaded. Reads through a reference to all of it would assume the right size.
    let (abi_version, struct_bytes) =
        unsafe { ((*table).abi_version, (*table).struct_bytes as usize) };
    if abi_version != abi::ABI_VERSION {
        return Err(other_version(&abi_version.to_string()));
    }
    if struct_bytes < size_of::<abi::Api>() {
        return Err(Error::invalid(OPERATION, "its table of functions is too short")
            .with("struct_bytes", struct_bytes)
            .with("struct_bytes_min", size_of::<abi::Api>()));
    }
    // SAFETY: the table says that it has at least this size.
    Ok(unsafe { *table })
}

fn name(api: &abi::Api) -> Result<String> {
    let wrong = || {
        let reason = format!("its name is not 1 to {NAME_BYTES_MAX} bytes of UTF-8");
        Error::invalid(OPERATION, reason)
    };
    // SAFETY: the name is valid as long as the library is loaded.
    let bytes = unsafe { exchange::bytes(api.name) }.ok_or_else(wrong)?;
    let name = str::from_utf8(bytes).map_err(|_| wrong())?;
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(char::is_control) {
        return Err(wrong());
    }
    Ok(name.into())
}
