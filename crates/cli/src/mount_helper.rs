// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command as mount(8) calls it: as its helper `mount.fuse.terrace`, or through the one of libfuse.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use terrace_store::Store;

/// Names of the file of the command by which mount(8) finds a helper.
const HELPERS: [&str; 2] = ["mount.fuse.terrace", "mount.terrace"];

/// The arguments of a helper of mount(8) as those of the verb `mount`; others as they are.
///
/// - mount(8) calls `mount.fuse.terrace STORE DIR [-sfnv] [-o OPTIONS] [-t TYPE]`, where that is a link to
///   this command.
/// - Without the link it calls `mount.fuse3`, which calls `terrace STORE DIR -o OPTIONS`.
pub(crate) fn as_verb(arguments: Vec<OsString>, is_verb: impl Fn(&OsStr) -> bool) -> Vec<OsString> {
    let called = arguments.first().map(Path::new).and_then(Path::file_name);
    let is_helper = called.is_some_and(|name| HELPERS.iter().any(|helper| name == *helper));
    if !is_helper && !is_from_libfuse(&arguments, is_verb) {
        return arguments;
    }
    let mut places = Vec::new();
    let mut options = Vec::new();
    let mut how = vec![OsString::from("--helper")];
    let mut rest = arguments.into_iter().skip(1);
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some("-o") => options.extend([Some(argument), rest.next()].into_iter().flatten()),
            // What kind of file system it is, is known.
            Some("-t") => drop(rest.next()),
            // Of no entry in /etc/mtab, and verbose, nothing changes here.
            Some(flags) if flags.starts_with('-') => {
                how.extend(flags.contains('f').then(|| "--fake".into()));
                how.extend(flags.contains('s').then(|| "--sloppy".into()));
            }
            _ => places.push(argument),
        }
    }
    let verb = ["terrace", "mount"].map(OsString::from);
    verb.into_iter().chain(how).chain(options).chain(["--".into()]).chain(places).collect()
}

/// Whether `mount.fuse3` calls: with a store and a directory in place of a verb, and their options behind
/// them. Both are absolute in its calls, which no verb is.
fn is_from_libfuse(arguments: &[OsString], is_verb: impl Fn(&OsStr) -> bool) -> bool {
    let [_, store, directory, option, _] = arguments else { return false };
    let is_store = |store: &OsStr| {
        Path::new(store).is_absolute() || store.to_str().is_some_and(Store::is_behind_servers)
    };
    option == "-o" && !is_verb(store) && is_store(store) && Path::new(directory).is_absolute()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn helper(arguments: &[&str]) -> Vec<String> {
        let arguments = arguments.iter().map(OsString::from).collect();
        let turned = as_verb(arguments, |name| name == "mount");
        turned.into_iter().map(|argument| argument.into_string().expect("it was text")).collect()
    }

    #[test]
    fn the_helper_of_mount_is_the_verb() {
        let called = ["/sbin/mount.fuse.terrace", "/srv/s", "/mnt", "-n", "-o", "rw,noatime"];
        let verb = ["terrace", "mount", "--helper", "-o", "rw,noatime", "--", "/srv/s", "/mnt"];
        assert_eq!(helper(&called), verb);
        let with_type = ["mount.fuse.terrace", "s", "/mnt", "-sv", "-t", "fuse.terrace"];
        let verb = ["terrace", "mount", "--helper", "--sloppy", "--", "s", "/mnt"];
        assert_eq!(helper(&with_type), verb);
        let fake = ["mount.fuse.terrace", "s", "/mnt", "-sf", "-n"];
        let verb = ["terrace", "mount", "--helper", "--fake", "--sloppy", "--", "s", "/mnt"];
        assert_eq!(helper(&fake), verb);
    }

    #[test]
    fn a_call_of_libfuse_is_the_verb() {
        for store in ["/srv/s", "terrace://host:7420/", "terrace+unix:///run/t"] {
            let called = ["terrace", store, "/mnt", "-o", "rw,dev,suid"];
            let verb = ["terrace", "mount", "--helper", "-o", "rw,dev,suid", "--", store, "/mnt"];
            assert_eq!(helper(&called), verb);
        }
    }

    #[test]
    fn the_command_is_left_as_it_is() {
        for command in [
            &["terrace", "ls", "-t", "x"][..],
            &["terrace", "mount", "/mnt", "-o", "ro"],
            &["terrace", "/srv/s", "/mnt"],
            &["terrace", "my-store", "/mnt", "-o", "ro"],
            &["terrace", "/srv/s", "mnt", "-o", "ro"],
        ] {
            assert_eq!(helper(command), command);
        }
    }
}
