// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pictures of events that were made up.

use super::*;

fn seen(number: u64, time_ns: u64, what: What, tier: Option<usize>) -> Seen {
    Seen {
        id: (number, 0),
        time_ns,
        what,
        tier,
        bytes: if matches!(what, What::Read | What::Write) { 100 } else { 0 },
        size_bytes: 100,
        latency_ns: if matches!(what, What::Read | What::Write) { 10 + time_ns } else { 0 },
        guard_ns: 0,
        stack_ns: 0,
        count: 1,
    }
}

fn picture(events: &[Seen]) -> Picture {
    let mut builder = Builder::new(CELLS_MAX);
    builder.tier("fast", 1000);
    builder.tier("slow", u64::MAX);
    for seen in events {
        builder.take(seen, || format!("run/{}", seen.id.0));
    }
    builder.finish()
}

/// Group, tier, start, end, objects of each life at the finest level.
fn lives(picture: &Picture) -> Vec<(u32, u32, u64, i64)> {
    picture.lives[0]
        .cells
        .iter()
        .map(|(at, change)| (at.group, at.what, at.span, *change))
        .collect()
}

#[test]
fn a_life_changes_its_tier_with_each_migration() {
    let picture = picture(&[
        seen(7, 10, What::Create, Some(0)),
        seen(7, 20, What::Write, Some(0)),
        seen(7, 30, What::Moved, Some(1)),
        seen(7, 40, What::Read, Some(1)),
        seen(7, 50, What::Moved, Some(0)),
        seen(7, 60, What::Delete, Some(0)),
    ]);
    let expected = [
        (0, 0, 10, 1),
        (0, 0, 30, -1),
        (0, 1, 30, 1),
        (0, 1, 50, -1),
        (0, 0, 50, 1),
        (0, 0, 60, -1),
    ];
    let mut found = lives(&picture);
    found.sort_by_key(|(_, tier, span, _)| (*span, *tier));
    let mut expected = expected.to_vec();
    expected.sort_by_key(|(_, tier, span, _)| (*span, *tier));
    assert_eq!(found, expected);
    let moves: Vec<_> = picture.moves.iter().map(|one| (one.time_ns, one.from, one.to)).collect();
    assert_eq!(moves, [(30, 0, 1), (50, 1, 0)]);
    let marks: Vec<_> =
        picture.totals.iter().map(|((mark, tier), total)| (*mark, *tier, total.count)).collect();
    assert_eq!(
        marks,
        [
            (Mark::Read, 1, 1),
            (Mark::Write, 0, 1),
            (Mark::Handle, 0, 1),
            (Mark::Delete, 0, 1),
            (Mark::Down, 1, 1),
            (Mark::Up, 0, 1)
        ]
    );
}

#[test]
fn the_fill_follows_sizes_migrations_and_deletions() {
    let picture = picture(&[
        seen(1, 10, What::Write, Some(0)),
        seen(2, 20, What::Write, Some(0)),
        seen(1, 30, What::Moved, Some(1)),
        seen(2, 40, What::Copied, Some(1)),
        seen(2, 50, What::Delete, Some(0)),
    ]);
    let course = |tier: u8| -> Vec<(u64, u64)> {
        let (_, course) =
            picture.fill.iter().find(|(other, _)| *other == tier).expect("it has one");
        course.spans.iter().map(|(at, filled)| (*at, filled.last)).collect()
    };
    assert_eq!(course(0), [(10, 100), (20, 200), (30, 100), (50, 0)]);
    assert_eq!(course(1), [(30, 100), (40, 200), (50, 100)]);
    assert_eq!(picture.source, Source::Trace);
}

#[test]
fn what_places_an_empty_object_is_no_migration() {
    let picture = picture(&[
        seen(1, 10, What::Create, Some(0)),
        seen(1, 10, What::Moved, Some(1)),
        seen(1, 20, What::Write, Some(1)),
    ]);
    assert!(picture.moves.is_empty());
    assert_eq!(lives(&picture), [(0, 1, 10, 1), (0, 1, 20, -1)]);
}

#[test]
fn a_read_from_a_copy_leaves_an_object_where_it_is() {
    let picture = picture(&[
        seen(1, 10, What::Write, Some(1)),
        seen(1, 20, What::Copied, Some(0)),
        seen(1, 30, What::Read, Some(0)),
    ]);
    assert_eq!(lives(&picture), [(0, 1, 10, 1), (0, 1, 30, -1)]);
    assert_eq!(picture.totals[&(Mark::Read, 0)].count, 1);
}

#[test]
fn what_is_posted_behind_a_deletion_brings_nothing_back() {
    let picture = picture(&[
        seen(1, 10, What::Write, Some(0)),
        seen(1, 30, What::Delete, Some(0)),
        seen(1, 20, What::Read, Some(0)),
        seen(1, 40, What::Create, Some(1)),
        seen(1, 50, What::Write, Some(1)),
    ]);
    assert_eq!(lives(&picture), [(0, 0, 10, 1), (0, 0, 30, -1), (0, 1, 40, 1), (0, 1, 50, -1)]);
    assert_eq!(picture.totals[&(Mark::Read, 0)].count, 1);
    let (_, fast) = &picture.fill[0];
    assert_eq!(fast.spans.values().last().map(|filled| filled.last), Some(0));
}

#[test]
fn names_share_what_they_begin_with() {
    let names = ["run/a", "run/ab", "run/ä😀1", "run/ä😀2", ""].map(String::from);
    let coded: Vec<_> = front_coded(&names).collect();
    assert_eq!(coded, [(0, "run/a"), (5, "b"), (4, "ä😀1"), (5, "😀2"), (0, "")]);
}

#[test]
fn nothing_in_the_data_ends_its_element() {
    let mut builder = Builder::new(CELLS_MAX);
    builder.tier("</script>", u64::MAX);
    builder.take(&seen(1, 1, What::Write, Some(0)), || "</script><b>".into());
    let html = builder.finish().html("<i>");
    assert_eq!(html.matches("</script>").count(), 1);
    assert!(!html.contains("<b>") && !html.contains("<i>"), "{html}");
}

#[test]
fn long_numbers_are_grouped() {
    assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
}
