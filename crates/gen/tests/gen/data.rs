// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writing and reading, by real processes.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

use super::program::{names, run, total};
use tempfile::tempdir;

#[test]
fn what_is_written_is_read_whole_and_right_by_others() {
    for form in ["", "-F", "-z", "-F -z"] {
        let directory = tempdir().unwrap();
        let path = directory.path().display();
        let sizes = "-t 4k -b 64k -s 3 --seed 5 --processes 3 --threads 2 -k";
        let written = run(&format!("write -o {path}/f {form} {sizes} -e -W")).report();
        assert_eq!(total(&written, "bytes"), 3 * 3 * (64 << 10), "{form}");
        assert_eq!(total(&written, "operations"), 3 * 3 * 16, "{form}");
        for shift in ["", "-C", "-C 2"] {
            let read = run(&format!("read -o {path}/f {form} {sizes} {shift} -R")).report();
            assert_eq!(total(&read, "bytes"), 3 * 3 * (64 << 10), "{form} {shift}");
        }
        let other_order = "-t 8k -b 64k -s 3 --seed 5 --processes 3 -k -R";
        run(&format!("read -o {path}/f {form} {other_order}")).report();
    }
}

#[test]
fn a_flipped_byte_is_found_where_it_is() {
    let directory = tempdir().unwrap();
    let path = directory.path().display();
    let common = format!("-o {path}/f -F -t 4k -b 64k --processes 2 -k");
    run(&format!("write {common}")).report();
    let file =
        OpenOptions::new().read(true).write(true).open(format!("{path}/f.00000001")).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 40_001).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 40_001).unwrap();
    let failure = run(&format!("read {common} -R")).failure();
    assert!(failure.contains("f.00000001 offset_bytes=40001 rank=1"), "{failure}");
    run(&format!("read {common}")).report();
}

#[test]
fn another_seed_is_other_data() {
    let directory = tempdir().unwrap();
    let common = format!("-o {}/f -t 4k -b 4k -k", directory.path().display());
    run(&format!("write {common} --seed 1")).report();
    let failure = run(&format!("read {common} --seed 2 -R")).failure();
    assert!(failure.contains("not those that were written"), "{failure}");
}

#[test]
fn a_file_that_ends_early_is_no_success() {
    let directory = tempdir().unwrap();
    let path = directory.path().display();
    run(&format!("write -o {path}/f -t 4k -b 64k -k")).report();
    OpenOptions::new().write(true).open(format!("{path}/f")).unwrap().set_len(60_000).unwrap();
    let failure = run(&format!("read -o {path}/f -t 4k -b 64k -k")).failure();
    assert!(failure.contains("cannot read") && failure.contains("offset_bytes=57344"), "{failure}");
}

#[test]
fn a_stonewall_counts_what_was_finished_and_nothing_else() {
    let directory = tempdir().unwrap();
    let path = directory.path().display();
    let words = "-F -t 4k -b 1t -Y -D 0.05 --threads 2 --processes 2 -k";
    let report = run(&format!("write -o {path}/f {words}")).report();
    for process in report["processes"].as_array().unwrap() {
        let rank = process["rank"].as_u64().unwrap();
        let bytes = fs::metadata(format!("{path}/f.{rank:08}")).unwrap().len();
        assert_eq!(process["bytes"].as_u64(), Some(bytes));
        assert_eq!(process["is_stonewalled"].as_bool(), Some(true));
    }
    assert!(total(&report, "bytes") < 1 << 40);
}

#[test]
fn a_stonewall_that_is_far_away_changes_nothing() {
    let directory = tempdir().unwrap();
    let report = run(&format!("write -o {}/f -D 1000", directory.path().display())).report();
    assert_eq!(total(&report, "bytes"), 1 << 20);
    assert_eq!(report["processes"][0]["is_stonewalled"].as_bool(), Some(false));
}

#[test]
fn fixed_time_goes_on_after_the_last_transfer() {
    let directory = tempdir().unwrap();
    let common = format!("-o {}/f -t 4k -b 16k -k", directory.path().display());
    run(&format!("write {common}")).report();
    let report = run(&format!("read {common} -z --duration 0.1")).report();
    assert!(total(&report, "operations") > 4);
    assert!(report["total"]["seconds"].as_f64().unwrap() >= 0.1);
}

#[test]
fn files_are_removed_unless_they_are_kept() {
    let directory = tempdir().unwrap();
    let path = directory.path().display();
    run(&format!("write -o {path}/f -F --processes 2 -k")).report();
    assert_eq!(names(directory.path()), ["f.00000000", "f.00000001"]);
    run(&format!("read -o {path}/f -F --processes 2 -C")).report();
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn an_existing_file_is_overwritten_only_when_asked_to() {
    let directory = tempdir().unwrap();
    let path = directory.path().display();
    File::create(format!("{path}/f")).unwrap().set_len(3 << 20).unwrap();
    run(&format!("write -o {path}/f -E -k")).report();
    assert_eq!(fs::metadata(format!("{path}/f")).unwrap().len(), 3 << 20);
    run(&format!("write -o {path}/f -k")).report();
    assert_eq!(fs::metadata(format!("{path}/f")).unwrap().len(), 1 << 20);
}

#[test]
fn latencies_are_of_all_operations_and_stamps_in_order() {
    let directory = tempdir().unwrap();
    let words = "-t 4k -b 400k --processes 2";
    let report = run(&format!("write -o {}/f {words}", directory.path().display())).report();
    let steps = report["latency"]["ecdf_ns"].as_array().unwrap();
    assert!(steps.len() <= 200);
    assert_eq!(steps.last().unwrap()[1].as_f64(), Some(1.0));
    for process in report["processes"].as_array().unwrap() {
        for clock in ["real_ns", "raw_ns"] {
            assert!(process["begin"][clock].as_u64() < process["end"][clock].as_u64());
        }
        assert!(process["latency_ns"]["p50"].as_u64() <= process["latency_ns"]["p99.9"].as_u64());
    }
}

#[test]
fn a_directory_that_is_missing_is_named() {
    let failure = run("write -o /nonexistent/f --processes 3").failure();
    assert!(failure.contains("No such file") && failure.contains("/nonexistent/f"), "{failure}");
    assert_eq!(failure.lines().count(), 1, "one reason is enough: {failure}");
}
