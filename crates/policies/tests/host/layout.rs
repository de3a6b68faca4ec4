// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The header and its structs in Rust are one interface: the C compiler says so.

use std::fmt::Write;
use std::mem::{offset_of, size_of};

use terrace_core::{EventKind, Outcome, Persistency, TierIndex};
use terrace_policy_abi as abi;

use crate::build;

/// Pairs of a C expression and the value that it has in Rust.
type Pairs = Vec<(String, u64)>;

macro_rules! structs {
    ($($c:literal => $rust:ty { $($field:ident),+ })+) => {{
        let mut pairs = Pairs::new();
        $(
            pairs.push((format!("sizeof(struct {})", $c), size_of::<$rust>() as u64));
            pairs.push((format!("_Alignof(struct {})", $c), align_of::<$rust>() as u64));
            $(
                let expression = format!("offsetof(struct {}, {})", $c, stringify!($field));
                pairs.push((expression, offset_of!($rust, $field) as u64));
                let expression = format!("sizeof(((struct {} *)0)->{})", $c, stringify!($field));
                pairs.push((expression, field_bytes(|value: &$rust| &value.$field)));
            )+
        )+
        pairs
    }};
}

fn field_bytes<S, F>(_field: fn(&S) -> &F) -> u64 {
    size_of::<F>() as u64
}

#[test]
fn structs_have_the_layout_of_the_header() {
    assert_equal(structs! {
        "terrace_text" => abi::Text { bytes, length }
        "terrace_sink" => abi::Sink { struct_bytes, reserved, write, host }
        "terrace_tier" => abi::Tier {
            name, capacity_bytes, latency_ns, read_bytes_per_s, write_bytes_per_s, idle_w, active_w,
            low, high, critical, used_bytes, reserved_bytes, copy_bytes, garbage_bytes,
            incoming_bytes, outgoing_bytes, utilisation, parallelism, persistency, is_writable,
            reserved
        }
        "terrace_prices" => abi::Prices {
            per_1000_write_requests, per_1000_read_requests, per_gb_month, per_gb_read,
            reserved
        }
        "terrace_segment" => abi::Segment {
            key, namespace_length, segment, start_bytes, size_bytes, created_ns, last_read_ns,
            last_write_ns, last_close_ns, incarnation, copies, opens, tier, persistency,
            temperature, is_live, is_moving, is_pinned, reserved
        }
        "terrace_view" => abi::View {
            struct_bytes, tier_count, now_ns, tiers, segments, segment_count, random, host,
            prices
        }
        "terrace_event" => abi::Event {
            kind, slot, incarnation, count, time_ns, offset_bytes, length_bytes, latency_ns, tier,
            outcome
        }
        "terrace_action" => abi::Action {
            struct_bytes, kind, slot, incarnation, tier, priority, benefit_s, reason
        }
        "terrace_actions" => abi::Actions { struct_bytes, count_left, bytes_left, push, host }
        "terrace_placement" => abi::Placement {
            struct_bytes, segment, key, namespace_length, temperature, size_hint_bytes, start_bytes
        }
        "terrace_placed" => abi::Placed {
            struct_bytes, tier, layout, start_count, segment_bytes, starts_bytes
        }
        "terrace_parameters" => abi::Parameters { struct_bytes, reserved, add, host }
        "terrace_policy_api" => abi::Api {
            abi_version, struct_bytes, name, create, destroy, observe, plan, publish, place,
            message, parameters, set_parameter, save, restore, state_version, interest
        }
    });
}

#[test]
fn numbers_are_those_of_the_header_and_of_core() {
    let bounds = [
        ("POLICY_ABI_VERSION", abi::ABI_VERSION as u64),
        ("SLOT_NONE", abi::SLOT_NONE.into()),
        ("SLOT_NONE", terrace_core::SLOT_NONE.into()),
        ("SIZE_UNKNOWN", abi::SIZE_UNKNOWN),
        ("TIERS_MAX", TierIndex::COUNT_MAX as u64),
        ("STARTS_MAX", abi::STARTS_MAX as u64),
        ("REASON_BYTES_MAX", abi::REASON_BYTES_MAX as u64),
        ("TEXT_BYTES_MAX", abi::TEXT_BYTES_MAX as u64),
        ("PUBLISHED_BYTES_MAX", abi::PUBLISHED_BYTES_MAX as u64),
        ("REPLY_BYTES_MAX", abi::REPLY_BYTES_MAX as u64),
        ("STATE_BYTES_MAX", abi::STATE_BYTES_MAX as u64),
        ("ERROR_BYTES_MAX", abi::ERROR_BYTES_MAX as u64),
        ("PARAMETERS_MAX", abi::PARAMETERS_MAX as u64),
    ];
    let statuses = [
        ("OK", abi::status::OK),
        ("INVALID", abi::status::INVALID),
        ("NOT_FOUND", abi::status::NOT_FOUND),
        ("UNSUPPORTED", abi::status::UNSUPPORTED),
        ("CORRUPT", abi::status::CORRUPT),
        ("FULL", abi::status::FULL),
        ("FAILED", abi::status::FAILED),
    ];
    let actions = [
        ("ACTION_MOVE", abi::action::MOVE),
        ("ACTION_PROMOTE", abi::action::PROMOTE),
        ("ACTION_COPY", abi::action::COPY),
        ("ACTION_DROP_COPY", abi::action::DROP_COPY),
        ("ACTION_CANCEL", abi::action::CANCEL),
        ("INTEREST_STAT", abi::interest::STAT),
        ("INTEREST_SYNC", abi::interest::SYNC),
        ("LAYOUT_ONE", abi::layout::ONE),
        ("LAYOUT_FIXED", abi::layout::FIXED),
        ("LAYOUT_STEPS", abi::layout::STEPS),
        ("TEMPERATURE_UNKNOWN", abi::temperature::UNKNOWN),
        ("TEMPERATURE_HOT", abi::temperature::HOT),
        ("TEMPERATURE_COLD", abi::temperature::COLD),
        ("PERSISTENCY_NONE", Persistency::None as u32),
        ("PERSISTENCY_PROCESS", Persistency::Process as u32),
        ("PERSISTENCY_STORAGE", Persistency::Storage as u32),
    ];
    let events = [
        ("CREATE", abi::event::CREATE, EventKind::Create),
        ("PRESENT", abi::event::PRESENT, EventKind::Present),
        ("OPEN", abi::event::OPEN, EventKind::Open),
        ("CLOSE", abi::event::CLOSE, EventKind::Close),
        ("READ", abi::event::READ, EventKind::Read),
        ("WRITE", abi::event::WRITE, EventKind::Write),
        ("SET_LEN", abi::event::SET_LEN, EventKind::SetLen),
        ("DELETE", abi::event::DELETE, EventKind::Delete),
        ("QUEUED", abi::event::QUEUED, EventKind::Queued),
        ("MOVED", abi::event::MOVED, EventKind::Moved),
        ("COPIED", abi::event::COPIED, EventKind::Copied),
        ("UNCOPIED", abi::event::UNCOPIED, EventKind::Uncopied),
        ("RECEIPT", abi::event::RECEIPT, EventKind::Receipt),
        ("TIMER", abi::event::TIMER, EventKind::Timer),
        ("PIN", abi::event::PIN, EventKind::Pin),
        ("UNPIN", abi::event::UNPIN, EventKind::Unpin),
        ("STAT", abi::event::STAT, EventKind::Stat),
        ("SYNC", abi::event::SYNC, EventKind::Sync),
    ];
    let outcomes = [
        ("DONE", abi::outcome::DONE, Outcome::Done),
        ("STALE", abi::outcome::STALE, Outcome::Stale),
        ("ALREADY", abi::outcome::ALREADY, Outcome::Already),
        ("PINNED", abi::outcome::PINNED, Outcome::Pinned),
        ("TOO_WEAK", abi::outcome::TOO_WEAK, Outcome::TooWeak),
        ("INVALID", abi::outcome::INVALID, Outcome::Invalid),
        ("BUSY", abi::outcome::BUSY, Outcome::Busy),
        ("HOT_WRITE", abi::outcome::HOT_WRITE, Outcome::HotWrite),
        ("NO_SPACE", abi::outcome::NO_SPACE, Outcome::NoSpace),
        ("IO", abi::outcome::IO, Outcome::Io),
        ("CANCELLED", abi::outcome::CANCELLED, Outcome::Cancelled),
        ("DRY_RUN", abi::outcome::DRY_RUN, Outcome::DryRun),
    ];
    let mut pairs = Pairs::new();
    pairs.extend(bounds.map(|(name, value)| (format!("TERRACE_{name}"), value)));
    pairs.extend(statuses.map(|(name, value)| (format!("TERRACE_{name}"), value as u64)));
    pairs.extend(actions.map(|(name, value)| (format!("TERRACE_{name}"), value.into())));
    for (name, value, core) in events {
        assert_eq!(value, core as u32, "{name}");
        pairs.push((format!("TERRACE_EVENT_{name}"), value.into()));
    }
    for (name, value, core) in outcomes {
        assert_eq!(value, core as u32, "{name}");
        pairs.push((format!("TERRACE_OUTCOME_{name}"), value.into()));
    }
    assert_equal(pairs);
}

fn assert_equal(pairs: Pairs) {
    let mut program =
        String::from("#include \"terrace_policy.h\"\n#include <stdio.h>\nint main(void)\n{\n");
    for (expression, _) in &pairs {
        writeln!(program, "    printf(\"%llu\\n\", (unsigned long long)({expression}));")
            .expect("a string takes everything");
    }
    program.push_str("    return 0;\n}\n");
    let printed = build::run_c(&program);
    assert_eq!(printed.lines().count(), pairs.len());
    for ((expression, value), line) in pairs.iter().zip(printed.lines()) {
        assert_eq!(line, value.to_string(), "{expression}");
    }
}
