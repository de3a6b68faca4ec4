// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All built-in policies: adding one is one file, one page and one line here.

use terrace_core::{Error, ErrorKind, Policy, Result, View};

use crate::{
    elevator, energy, filter, heat, lru, pinned, prefetch, rules, size, workflow, write_buffer,
};

/// Makes a policy for the tiers of a view, with parameters as (name, value) in readable units.
///
/// # Errors
///
/// `NotFound` for a parameter it does not have, `Invalid` with what would be right.
pub type Create = fn(&View, &[(String, String)]) -> Result<Box<dyn Policy>>;

/// A built-in policy.
#[derive(Clone, Copy, Debug)]
pub struct PolicyEntry {
    /// Its name in the configuration.
    pub name: &'static str,
    /// One sentence for lists.
    pub summary: &'static str,
    /// Makes one.
    pub create: Create,
}

/// The built-in policies, simplest first.
pub const POLICIES: &[PolicyEntry] = &[
    PolicyEntry {
        name: "pinned",
        summary: "everything to one tier, or by rules; never moves",
        create: pinned::create,
    },
    PolicyEntry {
        name: "lru",
        summary: "demotes what was not used for longest, promotes what is used again",
        create: lru::create,
    },
    PolicyEntry {
        name: "write-buffer",
        summary: "new objects on the fast tier, demoted some time after their last write",
        create: write_buffer::create,
    },
    PolicyEntry {
        name: "size",
        summary: "small objects and heads of large ones on the fast tiers; never moves",
        create: size::create,
    },
    PolicyEntry {
        name: "heat",
        summary: "what is read most and most lately moves up, the coldest moves down",
        create: heat::create,
    },
    PolicyEntry {
        name: "elevator",
        summary: "everything on the fast tier, copied down in write order in the background",
        create: elevator::create,
    },
    PolicyEntry {
        name: "s3-fifo",
        summary: "S3-FIFO says what may come up: what comes back soon",
        create: filter::create_s3_fifo,
    },
    PolicyEntry {
        name: "sieve",
        summary: "SIEVE says what may come up: what is touched again",
        create: filter::create_sieve,
    },
    PolicyEntry {
        name: "arc",
        summary: "ARC says what may come up: recency and frequency in shares that adapt",
        create: filter::create_arc,
    },
    PolicyEntry {
        name: "2q",
        summary: "2Q says what may come up: what comes back after a first queue",
        create: filter::create_two_q,
    },
    PolicyEntry {
        name: "w-tinylfu",
        summary: "W-TinyLFU says what may come up: what is touched more often than others",
        create: filter::create_w_tiny_lfu,
    },
    PolicyEntry {
        name: "gdsf",
        summary: "GDSF says what may come up: what is touched often for its size",
        create: filter::create_gdsf,
    },
    PolicyEntry {
        name: "workflow",
        summary: "follows a plan that messages tell; heat decides about the rest",
        create: workflow::create,
    },
    PolicyEntry {
        name: "prefetch",
        summary: "brings up what is going to be read next; heat decides about the rest",
        create: prefetch::create,
    },
    PolicyEntry {
        name: "energy",
        summary: "lets lower tiers rest: copies down in batches, brings up what would wake them",
        create: energy::create,
    },
    PolicyEntry {
        name: "rules",
        summary: "does what ordered rules say: place, move, keep, by name, size, age and heat",
        create: rules::create,
    },
];

/// Makes the built-in policy of this name for the tiers of a view.
///
/// # Errors
///
/// `NotFound` with the names there are, or for a parameter that the policy does not have;
/// `Invalid` for a parameter's value, with what would be right.
pub fn create(name: &str, view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
    let Some(entry) = POLICIES.iter().find(|entry| entry.name == name) else {
        let names: Vec<_> = POLICIES.iter().map(|entry| entry.name).collect();
        let names = names.join(", ");
        // A store can be made without one, and then a user looks for the way back to that.
        let reason = match name {
            "none" => format!("`pinned` never moves anything; the built-in policies are {names}"),
            _ => format!("the built-in policies are {names}"),
        };
        return Err(Error::new(ErrorKind::NotFound, "find a policy")
            .because(reason)
            .with("policy", format!("{name:?}")));
    };
    (entry.create)(view, parameters).map_err(|error| error.with("policy", name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::tiers;

    fn given(name: &str, value: &str) -> Vec<(String, String)> {
        vec![(name.into(), value.into())]
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let view = View::new(tiers(&[1000, 1000]), 0);
        let error = create("lfu", &view, &[]).err().expect("unknown");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("pinned, lru, write-buffer, size"), "{error}");
        let error = create("none", &view, &[]).err().expect("unknown");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("`pinned` never moves anything"), "{error}");
    }

    #[test]
    fn a_wrong_parameter_says_what_would_be_right() {
        let view = View::new(tiers(&[1000, 1000]), 0);
        for (policy, name, value, kind, right) in [
            ("lru", "hihg", "0.9", ErrorKind::NotFound, "high"),
            ("lru", "high", "9", ErrorKind::Invalid, "from 0 to 1"),
            ("write-buffer", "timeout", "2", ErrorKind::Invalid, "80us"),
            ("pinned", "tier", "quick", ErrorKind::Invalid, "t0, t1"),
            ("size", "steps", "0B", ErrorKind::Invalid, "above zero"),
            ("heat", "half_life", "0s", ErrorKind::Invalid, "above zero"),
            ("elevator", "streams", "0", ErrorKind::Invalid, "from 1 to 64"),
            ("rules", "rules", "[[rule]]\naction = 3", ErrorKind::Invalid, "rule=1"),
            ("energy", "batch", "2", ErrorKind::Invalid, "from 0 to 1"),
            ("prefetch", "deadline", "0s", ErrorKind::Invalid, "above zero"),
            ("workflow", "lease", "0s", ErrorKind::Invalid, "above zero"),
        ] {
            let error = create(policy, &view, &given(name, value)).err().expect(value);
            assert_eq!(error.kind(), kind);
            let text = error.to_string();
            assert!(text.contains(right) && text.contains(policy) && text.contains(name), "{text}");
        }
    }

    /// What code says of a parameter, its page says too: name, default and meaning.
    #[test]
    fn every_parameter_is_on_the_page_of_its_policy() {
        let view = View::new(tiers(&[1000, 1000, 1000]), 0);
        for entry in POLICIES {
            let file =
                format!("{}/../../docs/policies/{}.md", env!("CARGO_MANIFEST_DIR"), entry.name);
            let page = std::fs::read_to_string(&file).expect(&file);
            for parameter in create(entry.name, &view, &[]).expect(entry.name).parameters() {
                let default = match parameter.value.as_str() {
                    "" => "(none)".into(),
                    "t0" => "first tier".into(),
                    value => format!("`{value}`"),
                };
                let row =
                    format!("| `{}` | {default} | {} |", parameter.name, parameter.description);
                assert!(page.contains(&row), "{file} lacks the row\n{row}");
            }
        }
    }

    #[test]
    fn every_policy_is_in_the_lists_of_pages() {
        for (file, form) in [
            ("docs/README.md", "[NAME](policies/NAME.md)"),
            ("docs/policies/README.md", "| [`NAME`](NAME.md) |"),
            ("docs/reference/configuration.md", "`NAME`"),
        ] {
            let path = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
            let page = std::fs::read_to_string(&path).expect(&path);
            for entry in POLICIES {
                let text = form.replace("NAME", entry.name);
                assert!(page.contains(&text), "{file} lacks {text}");
            }
        }
    }

    #[test]
    fn every_policy_works_on_a_single_tier() {
        let view = View::new(tiers(&[1000]), 0);
        for entry in POLICIES {
            create(entry.name, &view, &[]).expect(entry.name);
        }
    }
}
