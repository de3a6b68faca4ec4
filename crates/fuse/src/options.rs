// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a file system is mounted.

use std::io;

use rustix::mount::MountFlags;

/// How a file system is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// What the table of mounts shows as the device.
    pub source: String,
    /// What the table of mounts shows behind `fuse.` as the kind of file system.
    pub subtype: String,
    /// Other users may use it, not only the one that mounts it. Users other than root need
    /// `user_allow_other` in `/etc/fuse.conf`.
    pub allow_other: bool,
    /// The kernel checks permissions by owner, group and mode.
    pub default_permissions: bool,
    /// Nothing can be changed.
    pub read_only: bool,
    /// Set-id bits and file capabilities count. Root only.
    pub suid: bool,
    /// Devices can be opened. Root only.
    pub dev: bool,
    /// Programs can be run.
    pub exec: bool,
    /// When reads change the time of access.
    pub access_time: AccessTime,
    /// Reads of directories do not change their time of access.
    pub no_directory_access_time: bool,
    /// Every write is durable when it returns.
    pub synchronous: bool,
    /// Every change of a directory is durable when it returns.
    pub synchronous_directories: bool,
    /// Times may stay in memory for a day.
    pub lazy_time: bool,
    /// Symbolic links are not followed.
    pub no_symlinks: bool,
    /// The kernel says nothing of what it refuses to mount.
    pub silent: bool,
}

/// When the kernel has a read change the time of access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTime {
    /// Where it is older than the time of modification, or than a day: the kernel's default.
    #[default]
    Relative,
    /// Never.
    Never,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            source: "terrace".into(),
            subtype: "terrace".into(),
            allow_other: false,
            default_permissions: false,
            read_only: false,
            suid: false,
            dev: false,
            exec: true,
            access_time: AccessTime::default(),
            no_directory_access_time: false,
            synchronous: false,
            synchronous_directories: false,
            lazy_time: false,
            no_symlinks: false,
            silent: false,
        }
    }
}

impl MountOptions {
    /// Changes options by words as `mount -o` has them; each may be several with commas between.
    ///
    /// The last one counts. Words that are meant for the program that mounts at boot (`_netdev`,
    /// `noauto`, `nofail`, `user`, `users`, `owner`, `group`, `comment`, `x-…`) are accepted and
    /// mean nothing here, as do locks and counters that Linux has no more (`mand`, `iversion`).
    ///
    /// # Errors
    ///
    /// `InvalidInput` names a word that is not known; `Unsupported` for `remount` and `strictatime`, which
    /// are.
    pub fn apply<'a>(&mut self, words: impl IntoIterator<Item = &'a str>) -> io::Result<()> {
        let words = words.into_iter().flat_map(|words| words.split(','));
        words.filter(|word| !word.is_empty()).try_for_each(|word| self.apply_word(word))
    }

    fn apply_word(&mut self, word: &str) -> io::Result<()> {
        match word.split_once('=') {
            Some(("fsname", source)) => self.source = source.into(),
            Some(("subtype", subtype)) => self.subtype = subtype.into(),
            // The user that mounted it, for the table of mounts.
            Some(("user" | "comment", _)) => {}
            Some((name, _)) if name.starts_with("x-") => {}
            None => match word {
                "allow_other" => self.allow_other = true,
                "default_permissions" => self.default_permissions = true,
                "ro" => self.read_only = true,
                "rw" => self.read_only = false,
                "suid" => self.suid = true,
                "nosuid" => self.suid = false,
                "dev" => self.dev = true,
                "nodev" => self.dev = false,
                "exec" => self.exec = true,
                "noexec" => self.exec = false,
                "atime" | "relatime" | "nostrictatime" => self.access_time = AccessTime::Relative,
                "noatime" => self.access_time = AccessTime::Never,
                // The kernel does not report reads from its cache, nor those that it passes through.
                "strictatime" | "norelatime" => {
                    let message = "the kernel does not report every read; use relatime or noatime";
                    let message = format!("{message} option={word}");
                    return Err(io::Error::new(io::ErrorKind::Unsupported, message));
                }
                "diratime" => self.no_directory_access_time = false,
                "nodiratime" => self.no_directory_access_time = true,
                "sync" => self.synchronous = true,
                "async" => self.synchronous = false,
                "dirsync" => self.synchronous_directories = true,
                "lazytime" => self.lazy_time = true,
                "nolazytime" => self.lazy_time = false,
                "nosymfollow" => self.no_symlinks = true,
                "symfollow" => self.no_symlinks = false,
                "silent" => self.silent = true,
                "loud" => self.silent = false,
                "mand" | "nomand" | "iversion" | "noiversion" => {}
                "defaults" | "auto" | "noauto" | "nofail" | "_netdev" | "user" | "nouser"
                | "nousers" | "users" | "owner" | "noowner" | "group" | "nogroup" => {}
                "remount" => {
                    let message = "a mount keeps its options while it is there; \
                                   unmount it, and mount it again option=remount";
                    return Err(io::Error::new(io::ErrorKind::Unsupported, message));
                }
                _ if word.starts_with("x-") => {}
                _ => return Err(unknown(word)),
            },
            Some(_) => return Err(unknown(word)),
        }
        Ok(())
    }

    /// Those that the kernel knows for every file system.
    pub(crate) fn flags(&self) -> MountFlags {
        let access_time = match self.access_time {
            AccessTime::Relative => MountFlags::empty(),
            AccessTime::Never => MountFlags::NOATIME,
        };
        [
            (self.read_only, MountFlags::RDONLY),
            (!self.suid, MountFlags::NOSUID),
            (!self.dev, MountFlags::NODEV),
            (!self.exec, MountFlags::NOEXEC),
            (self.no_directory_access_time, MountFlags::NODIRATIME),
            (self.synchronous, MountFlags::SYNCHRONOUS),
            (self.synchronous_directories, MountFlags::DIRSYNC),
            (self.lazy_time, MountFlags::LAZYTIME),
            (self.no_symlinks, MountFlags::NOSYMFOLLOW),
            (self.silent, MountFlags::SILENT),
        ]
        .into_iter()
        .filter(|(is_set, _)| *is_set)
        .fold(access_time, |flags, (_, flag)| flags | flag)
    }

    /// All of them as `fusermount3 -o` takes them.
    pub(crate) fn words(&self) -> String {
        // Commas and backslashes in a value would end it.
        let escaped = |value: &str| value.replace('\\', "\\\\").replace(',', "\\,");
        let names = [("fsname", &self.source), ("subtype", &self.subtype)];
        let names = names.map(|(name, value)| format!("{name}={}", escaped(value)));
        let known = self.flag_words().into_iter().map(Into::into);
        names.into_iter().chain(known).collect::<Vec<String>>().join(",")
    }

    /// All of them in a line for [`MountOptions::apply_line`], with tabs between.
    pub(crate) fn line(&self) -> String {
        // What the table of mounts shows is for reading.
        let shown = |value: &str| value.replace(['\t', '\n'], " ");
        let names = [("fsname", &self.source), ("subtype", &self.subtype)];
        let names = names.map(|(name, value)| format!("{name}={}", shown(value)));
        let more = [(self.lazy_time, "lazytime"), (self.silent, "silent")];
        let more = more.into_iter().filter(|(is_set, _)| *is_set).map(|(_, word)| word);
        let flags = self.flag_words().into_iter().chain(more).map(Into::into);
        names.into_iter().chain(flags).collect::<Vec<String>>().join("\t") + "\n"
    }

    /// Changes options by such a line.
    pub(crate) fn apply_line(&mut self, line: &str) -> io::Result<()> {
        line.split('\t').try_for_each(|word| self.apply_word(word))
    }

    /// Those without a value, as `fusermount3` knows them.
    fn flag_words(&self) -> Vec<&'static str> {
        let flags = [
            (self.allow_other, "allow_other"),
            (self.default_permissions, "default_permissions"),
            (self.read_only, "ro"),
            (self.suid, "suid"),
            (!self.suid, "nosuid"),
            (self.dev, "dev"),
            (!self.dev, "nodev"),
            (!self.exec, "noexec"),
            (self.access_time == AccessTime::Never, "noatime"),
            (self.no_directory_access_time, "nodiratime"),
            (self.synchronous, "sync"),
            (self.synchronous_directories, "dirsync"),
            // `lazytime` and `silent` it does not know, and nothing goes wrong without them.
            (self.no_symlinks, "nosymfollow"),
        ];
        flags.iter().filter(|(is_set, _)| *is_set).map(|(_, word)| *word).collect()
    }
}

fn unknown(word: &str) -> io::Error {
    let message = format!("unknown option option={word}");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_counts() {
        let mut options = MountOptions::default();
        options.apply(["ro,noatime,allow_other", "rw,,nodev", "fsname=a store"]).expect("words");
        let expected = MountOptions {
            source: "a store".into(),
            allow_other: true,
            access_time: AccessTime::Never,
            ..MountOptions::default()
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn an_unknown_word_is_named() {
        for word in ["max_reed=4", "quux", "umask=022"] {
            let error = MountOptions::default().apply(["ro", word]).expect_err(word);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert_eq!(error.to_string(), format!("unknown option option={word}"));
        }
    }

    #[test]
    fn a_line_has_all_of_them() {
        let words =
            "ro,noatime,nodiratime,noexec,suid,dev,sync,dirsync,lazytime,nosymfollow,silent";
        for words in [words, "allow_other,default_permissions", ""] {
            let mut options = MountOptions::default();
            options.apply([words]).expect("words");
            options.source = "/a,b\\c d".into();
            let mut again = MountOptions::default();
            again.apply_line(options.line().trim_end_matches('\n')).expect("a line");
            assert_eq!(again, options);
        }
    }

    #[test]
    fn what_is_mounted_is_not_mounted_anew() {
        let error = MountOptions::default().apply(["remount,ro"]).expect_err("it cannot be done");
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("unmount it"), "{error}");
    }

    #[test]
    fn strict_access_times_are_refused() {
        for word in ["strictatime", "norelatime"] {
            let error = MountOptions::default().apply(["noatime", word]).expect_err(word);
            assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{word}");
            assert!(error.to_string().contains("noatime"), "{error}");
        }
    }

    #[test]
    fn words_for_the_boot_mean_nothing() {
        let mut options = MountOptions::default();
        options.apply(["defaults,_netdev,nofail,noauto,x-systemd.automount,x-a=b"]).expect("words");
        options.apply(["user,nouser,users,owner,group,user=somebody"]).expect("words");
        options.apply(["nouser,nousers,noowner,nogroup,comment=data of 2024"]).expect("words");
        options.apply(["mand,nomand,iversion,noiversion"]).expect("words");
        assert_eq!(options, MountOptions::default());
    }

    #[test]
    fn words_of_all_file_systems_are_flags_of_the_kernel() {
        for (word, flag, back) in [
            ("lazytime", MountFlags::LAZYTIME, "nolazytime"),
            ("nosymfollow", MountFlags::NOSYMFOLLOW, "symfollow"),
            ("silent", MountFlags::SILENT, "loud"),
        ] {
            let mut options = MountOptions::default();
            let before = options.flags();
            options.apply([word]).expect(word);
            assert_eq!(options.flags(), before | flag);
            options.apply([back]).expect(back);
            assert_eq!(options, MountOptions::default());
        }
    }

    #[test]
    fn neither_devices_nor_set_ids_count_unless_asked_for() {
        let mut options = MountOptions::default();
        assert_eq!(options.flags(), MountFlags::NOSUID | MountFlags::NODEV);
        options.apply(["suid,dev,ro,noatime"]).expect("words");
        assert_eq!(options.flags(), MountFlags::RDONLY | MountFlags::NOATIME);
    }

    #[test]
    fn words_are_those_that_were_applied() {
        let mut options = MountOptions::default();
        options.apply(["allow_other,ro,noexec,noatime,fsname=a\\b"]).expect("words");
        options.source.push_str(",c");
        assert_eq!(
            options.words(),
            "fsname=a\\\\b\\,c,subtype=terrace,allow_other,ro,nosuid,nodev,noexec,noatime"
        );
    }
}
