// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments and output of foreign test suites. The tests of mounts include this file, too.

use std::collections::BTreeMap;

/// The arguments of fsx: everything that it can do.
pub(crate) const FSX: &str = "
flen = 1048576
[opsize]
max = 131072
[weights]
close_open = 1
invalidate = 1
mapread = 5
mapwrite = 5
read = 10
write = 10
truncate = 2
fsync = 1
fdatasync = 1
posix_fallocate = 2
punch_hole = 3
sendfile = 3
posix_fadvise = 1
copy_file_range = 3
";

/// The arguments of pjdfstest. naptime: more than four of the kernel's ticks at 250 Hz, in which file times
/// advance. The users and groups are those that every Debian has.
pub(crate) const PJDFSTEST: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.02

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// Makes as many links as the C library says that the file system allows, which knows ext4's bound and
/// takes that of FUSE for too large to try.
const SKIPPED: &str = "link::link_count_max";

/// pjdfstest has about 400 tests; where fewer are found its output was not understood.
const TESTS_MIN: usize = 300;

/// What became of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Skipped,
    /// With what the suite says about it.
    Failed(String),
}

/// What became of each test of pjdfstest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdicts(BTreeMap<String, Verdict>);

impl Verdicts {
    /// Reads what the suite prints: a line for each test, and details below some of them. None where
    /// that are not its tests.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut verdicts = BTreeMap::new();
        let mut failed: Option<String> = None;
        for line in text.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            let verdict = match words[..] {
                [name, "ok"] => Some((name, Verdict::Passed)),
                [name, "skipped"] => Some((name, Verdict::Skipped)),
                [name, "FAILED"] => Some((name, Verdict::Failed(String::new()))),
                _ => None,
            };
            match (verdict, &failed) {
                (Some((name, verdict)), _) => {
                    failed = matches!(verdict, Verdict::Failed(_)).then(|| name.to_string());
                    verdicts.insert(name.to_string(), verdict);
                }
                (None, Some(name)) => {
                    if let Some(Verdict::Failed(why)) = verdicts.get_mut(name) {
                        why.push_str(line);
                    }
                }
                (None, None) => {}
            }
        }
        (verdicts.len() >= TESTS_MIN).then_some(Self(verdicts))
    }

    /// What passes twice: some tests depend on time.
    pub(crate) fn and(mut self, second: Self) -> Self {
        self.0.extend(second.0.into_iter().filter(|(_, verdict)| *verdict != Verdict::Passed));
        self
    }

    /// What does not pass here and does there, each with what the suite says.
    pub(crate) fn failed_beside(&self, native: &Self) -> Vec<String> {
        let passed = native.0.iter().filter(|(_, verdict)| **verdict == Verdict::Passed);
        let failed = passed.filter_map(|(name, _)| match self.0.get(name) {
            Some(Verdict::Passed) => None,
            Some(Verdict::Skipped) if name == SKIPPED => None,
            Some(Verdict::Skipped) => Some(format!("{name}: skipped")),
            Some(Verdict::Failed(why)) => Some(format!("{name}: {}", why.trim())),
            None => Some(format!("{name}: it did not come to that")),
        });
        failed.collect()
    }

    /// It in a few words.
    pub(crate) fn summary(&self) -> String {
        let count = |is_it: fn(&Verdict) -> bool| self.0.values().filter(|one| is_it(one)).count();
        let passed = count(|verdict| *verdict == Verdict::Passed);
        let skipped = count(|verdict| *verdict == Verdict::Skipped);
        format!("{passed} passed, {skipped} skipped, {} failed", self.0.len() - passed - skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the suite prints it, with other tests around.
    fn read(text: &str) -> Verdicts {
        let others: String =
            (0..TESTS_MIN).map(|number| format!("other::{number}  ok\n")).collect();
        Verdicts::read(&format!("{others}{text}\nSummary: 1 failed, 2 total\n")).expect("enough")
    }

    #[test]
    fn a_test_fails_where_it_passes_natively_and_not_here() {
        let native =
            read("a::one  ok\na::two  ok\na::three  FAILED\n\twhy\nlink::link_count_max ok");
        let mounted = read("a::one  FAILED\n\tEPERM\na::two  skipped\n\twhy\na::three  FAILED");
        assert_eq!(native.failed_beside(&native), [""; 0]);
        let expected =
            ["a::one: EPERM", "a::two: skipped", "link::link_count_max: it did not come to that"];
        assert_eq!(mounted.failed_beside(&native), expected);
        let counted = format!("{} passed, 1 skipped, 2 failed", TESTS_MIN);
        assert_eq!(mounted.summary(), counted);
    }

    #[test]
    fn what_the_file_system_is_not_asked_for_may_be_skipped() {
        let native = read("link::link_count_max ok");
        assert!(read("link::link_count_max skipped").failed_beside(&native).is_empty());
    }

    #[test]
    fn what_fails_once_natively_does_not_count() {
        let native = read("a::one ok").and(read("a::one FAILED\n\tlate"));
        assert!(read("a::one FAILED").failed_beside(&native).is_empty());
    }

    #[test]
    fn what_prints_no_tests_is_not_the_suite() {
        assert_eq!(Verdicts::read("a::one ok\n"), None);
    }
}
