// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is tried side by side: policies on the tiers of a store, and what bounds them.

use terrace_core::{Error, ErrorKind, Policy, TierIndex};
use terrace_policies::POLICIES;
use terrace_replay::{Order, TimedOptions};
use terrace_store::PolicySource;
use terrace_tuning::{Chosen, Manner, Modelled};

use super::pictures::Drawing;
use crate::failure::Result;

/// What a replay is called that has everything on the first tier, or on the last.
const FAST_ONLY: &str = "fast-only";
const SLOW_ONLY: &str = "slow-only";

/// Where nothing moves.
const PINNED: &str = "pinned";

/// One of those that are tried.
pub(super) struct Contender {
    /// As it was asked for.
    pub(super) name: String,
    pub(super) options: TimedOptions,
    pub(super) policy: Box<dyn Policy>,
    /// Whether it only bounds what others can do.
    pub(super) is_bound: bool,
    /// What it does is drawn there.
    pub(super) drawing: Option<Drawing>,
}

/// Everything to try: the policies, or the store's own, between the bounds.
pub(super) fn contenders(
    modelled: &Modelled,
    policies: &[String],
    manner: &Manner,
) -> Result<Vec<Contender>> {
    let options = modelled.options(manner)?;
    let mut contenders = vec![alone(FAST_ONLY, &options, 0)?];
    for policy in policies {
        contenders.push(contender(policy, &options)?);
    }
    if policies.is_empty() {
        contenders.push(own(modelled, &options)?);
    }
    contenders.push(alone(SLOW_ONLY, &options, options.tiers.len() - 1)?);
    Ok(contenders)
}

/// The policy of the store.
fn own(modelled: &Modelled, options: &TimedOptions) -> Result<Contender> {
    // What a store without one does.
    let none = || (PolicySource::Name(PINNED.into()), Vec::new());
    let (source, parameters) = modelled.policy()?.unwrap_or_else(none);
    make(source.to_string(), &source, &parameters, options.clone())
}

fn contender(text: &str, options: &TimedOptions) -> Result<Contender> {
    let (source, parameters) = named(text)?;
    if let PolicySource::Name(name) = &source
        && Order::from_word(name).is_ok()
        && !POLICIES.iter().any(|entry| entry.name == name)
    {
        let reason =
            "it is an order of replacement alone, which moves nothing: --model cache has it";
        return Err(Error::new(ErrorKind::NotFound, "find a policy")
            .because(reason)
            .with("policy", name)
            .into());
    }
    make(text.into(), &source, &parameters, options.clone())
}

/// A policy as the command line names it, with parameters behind colons.
pub(crate) fn named(text: &str) -> Result<Chosen> {
    let mut words = text.split(':');
    let name = words.next().unwrap_or_default();
    let mut parameters = Vec::new();
    for word in words {
        let Some((parameter, value)) = word.split_once('=') else {
            let reason = "behind the policy come parameters, each with a colon: \
                          lru:idle=5s:high=0.8";
            return Err(Error::invalid("choose a policy", reason)
                .with("policy", format!("{text:?}"))
                .into());
        };
        parameters.push((parameter.to_string(), value.to_string()));
    }
    Ok((PolicySource::named(name), parameters))
}

/// Everything on one tier, without a bound.
fn alone(name: &str, options: &TimedOptions, index: usize) -> Result<Contender> {
    let mut tier = options.tiers[index].clone();
    tier.view.figures.capacity_bytes = u64::MAX;
    let options = TimedOptions { tiers: vec![tier], present_on: TierIndex(0), ..options.clone() };
    let alone = make(name.into(), &PolicySource::Name(PINNED.into()), &[], options)?;
    Ok(Contender { is_bound: true, ..alone })
}

fn make(
    name: String,
    source: &PolicySource,
    parameters: &[(String, String)],
    options: TimedOptions,
) -> Result<Contender> {
    let policy = source.make(&options.view(), parameters)?;
    Ok(Contender { name, options, policy, is_bound: false, drawing: None })
}
