// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a stack, and a trace of it, are opened with by the settings.

use std::path::Path;

use terrace_core::{Access, Result};

use crate::file::{Settings, TraceSettings};

/// What a stack is opened with, by the settings.
pub fn stack_settings(settings: &Settings, access: Access) -> terrace_stack::Settings {
    terrace_stack::Settings {
        access,
        persistency: settings.persistency,
        move_threads: settings.move_threads,
        move_bytes_per_s: settings.move_bandwidth,
        move_yields: settings.move_yields,
        entries_max: settings.objects_in_memory,
        scrub_every: settings.scrub_every,
        scrub_bytes_per_s: settings.scrub_bandwidth,
        boot_id: boot_id(),
        ..terrace_stack::Settings::default()
    }
}

/// What a stack needs to know of the trace that is configured.
///
/// # Errors
///
/// `Io` where the system has no random numbers.
pub fn trace_settings(trace: &TraceSettings) -> Result<terrace_trace::Settings> {
    Ok(terrace_trace::Settings {
        directory: trace.path.clone(),
        max_bytes: trace.max_bytes,
        salt: if trace.hash_names { Some(salt()?) } else { None },
        has_decisions: trace.decisions,
    })
}

/// A number that cannot be guessed.
fn salt() -> Result<u128> {
    let mut bytes = [0; 16];
    terrace_transport::random_bytes(&mut bytes)?;
    Ok(u128::from_le_bytes(bytes))
}

/// The id of this boot. Empty where the kernel does not tell; the stack then takes every opening for the same boot.
pub fn boot_id() -> String {
    let text = std::fs::read_to_string(Path::new("/proc/sys/kernel/random/boot_id"));
    text.map(|text| text.trim().into()).unwrap_or_default()
}
