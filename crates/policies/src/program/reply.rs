// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program answers.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use terrace_core::{Action, Bounds, Error, ErrorKind, EventKind, Interest, Parameter, Result};
use terrace_policy_abi::REASON_BYTES_MAX;

use super::placement::Placement;
use crate::mechanism::boundary::{action_kind, benefit_s};

/// Bytes of an action: kind, slot, incarnation, tier, priority, number of the reason, benefit.
const ACTION_BYTES: usize = 32;

/// An answer, as it came.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u32,
    pub(super) head: Vec<u8>,
    pub(super) body: Vec<u8>,
}

/// Why an answer is none.
pub(super) struct Refusal {
    /// `None` for a policy that cannot go on.
    pub(super) kind: Option<ErrorKind>,
    pub(super) reason: String,
}

/// Of a policy that starts.
#[derive(Debug, Deserialize)]
pub(super) struct Start {
    pub(super) name: String,
    #[serde(default)]
    pub(super) state_version: u32,
    /// Optional kinds of events that it wants, by number.
    #[serde(default)]
    pub(super) interest: Vec<u32>,
}

impl Start {
    pub(super) fn interest(&self) -> Interest {
        let has = |kind: EventKind| self.interest.contains(&(kind as u32));
        Interest { stat: has(EventKind::Stat), sync: has(EventKind::Sync) }
    }
}

/// What any answer may say.
#[derive(Debug, Deserialize)]
pub(super) struct Says {
    pub(super) placement: Option<Placement>,
    pub(super) parameters: Option<Vec<Told>>,
}

/// A parameter, as a list of these.
#[derive(Debug, Deserialize)]
pub(super) struct Told {
    name: String,
    value: String,
    description: String,
    values: Option<Values>,
}

impl From<Told> for Parameter {
    fn from(told: Told) -> Self {
        let bounds = told.values.map(Into::into);
        Self { bounds, ..Self::new(&told.name, told.value, &told.description) }
    }
}

/// Values that a parameter may have.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Values {
    Numbers(f64, f64),
    Whole(i64, i64),
    Switch,
}

impl From<Values> for Bounds {
    fn from(values: Values) -> Self {
        match values {
            Values::Numbers(least, most) => Bounds::Numbers(least, most),
            Values::Whole(least, most) => Bounds::Whole(least, most),
            Values::Switch => Bounds::Switch,
        }
    }
}

#[derive(Debug, Deserialize)]
struct Refused {
    #[serde(default)]
    error: String,
}

#[derive(Debug, Default, Deserialize)]
struct Reasons {
    #[serde(default)]
    reasons: Vec<String>,
}

impl Reply {
    /// Why the program refused, where it did.
    pub(super) fn refusal(&self, operation: &'static str) -> Option<Refusal> {
        if self.status == 0 {
            return None;
        }
        let reason = match self.parse::<Refused>() {
            Ok(refused) if !refused.error.is_empty() => refused.error,
            _ => format!("it refused to {operation}"),
        };
        Some(Refusal { kind: super::kind(self.status), reason })
    }

    pub(super) fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.head).map_err(|error| {
            Error::invalid("understand the policy", "its answer is damaged").caused_by(error)
        })
    }

    /// The actions of a plan. Tiers and slots that do not exist are the stack's to refuse.
    pub(super) fn actions(&self) -> Result<Vec<Action>> {
        const OPERATION: &str = "understand the policy";
        let reasons = self.parse::<Reasons>()?.reasons;
        if !self.body.len().is_multiple_of(ACTION_BYTES) {
            return Err(Error::invalid(OPERATION, "its actions end in the middle of one"));
        }
        let one = |bytes: &[u8]| {
            let number =
                |field: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[4 * field + byte]));
            let Some(kind) = action_kind(number(0), number(3)) else {
                let reason = format!("there is no action {}", number(0));
                return Err(Error::invalid(OPERATION, reason));
            };
            let benefit = u64::from(number(6)) | u64::from(number(7)) << 32;
            let reason = reasons.get(number(5) as usize).map_or("", String::as_str);
            Ok(Action {
                slot: number(1),
                incarnation: number(2),
                kind,
                priority: number(4) as i32,
                reason: cut(reason).into(),
                benefit_s: benefit_s(f64::from_bits(benefit)),
            })
        };
        self.body.chunks_exact(ACTION_BYTES).map(one).collect()
    }
}

/// The beginning of a reason, of the length that is shown.
fn cut(reason: &str) -> &str {
    let mut end = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}
