// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything in a block of records but accesses.

use terrace_core::{
    Action, ActionKind, Figures, Hint, Key, Persistency, Prices, SegmentView, Temperature,
    TierIndex, TierSet, Watermarks,
};

use crate::codec::{Decoder, Encoder, Wrong};
use crate::record::{
    Cause, Head, ObjectName, ParameterValue, PolicyChange, Round, SavedState, Snapshot, State,
    Subject, Tier, TierState,
};

/// The first bytes of entries; those up to 16, 0x16 and 0x17 are accesses (`access.rs`).
pub(crate) const SNAPSHOT: u8 = 0x11;
pub(crate) const STATE: u8 = 0x12;
pub(crate) const ROUND: u8 = 0x13;
pub(crate) const DECISION: u8 = 0x14;
pub(crate) const POLICY: u8 = 0x15;
/// The first part of an entry that is too long for a block.
pub(crate) const FIRST_PART: u8 = 0x1d;
/// Another part of it.
pub(crate) const PART: u8 = 0x1e;
/// The last part of an entry, after which the whole can be read.
pub(crate) const LAST_PART: u8 = 0x1f;

/// Longest name of a tier that is kept.
pub(crate) const TIER_NAME_BYTES_MAX: usize = 255;

/// Bytes of the shortest state of a tier.
const TIER_STATE_BYTES_MIN: usize = 15;

impl Encoder {
    pub(crate) fn subject(&mut self, slot: (u32, u32), subject: &Subject) -> &mut Self {
        self.number(slot.0.into()).number(slot.1.into());
        self.number(subject.object_id).number(subject.segment.into()).number(subject.start_bytes);
        match &subject.name {
            ObjectName::Key(key) => self.u8(0).text(key.as_str()),
            ObjectName::Hash(hash) => self.u8(1).u128(*hash),
        }
    }

    pub(crate) fn snapshot(&mut self, snapshot: &Snapshot) -> &mut Self {
        self.number(snapshot.time_ns).number(snapshot.slots.into())
    }

    /// The key is that of the slot's subject, which comes before.
    pub(crate) fn state(&mut self, state: &State) -> &mut Self {
        let view = &state.view;
        self.number(state.slot.into()).number(view.incarnation.into()).number(view.segment.into());
        self.u8(u8::from(view.is_live) | u8::from(view.is_moving) << 1);
        self.u8(u8::from(view.is_pinned)).number(view.start_bytes).number(view.size_bytes);
        self.u8(view.tier.0).u32(view.copies.0).number(view.opens.into());
        self.u8(view.persistency as u8).u8(view.hint.temperature as u8);
        self.number(view.created_ns).number(view.last_read_ns).number(view.last_write_ns);
        self.number(view.last_close_ns)
    }

    fn tier_states(&mut self, tiers: &[TierState]) -> &mut Self {
        self.number(tiers.len() as u64);
        for tier in tiers {
            self.number(tier.used_bytes).number(tier.reserved_bytes).number(tier.copy_bytes);
            self.number(tier.garbage_bytes).number(tier.incoming_bytes);
            self.number(tier.outgoing_bytes).f64(tier.utilisation).u8(tier.is_writable.into());
        }
        self
    }

    pub(crate) fn round(&mut self, round: &Round) -> &mut Self {
        self.number(round.number).number(round.now_ns).number(round.events).number(round.actions);
        self.number(round.budget_bytes).number(round.budget_actions).tier_states(&round.tiers)
    }

    pub(crate) fn decision(&mut self, action: &Action) -> &mut Self {
        let (kind, tier) = match action.kind {
            ActionKind::Move { to } => (0, to),
            ActionKind::Promote { to } => (1, to),
            ActionKind::Copy { to } => (2, to),
            ActionKind::DropCopy { tier } => (3, tier),
            ActionKind::Cancel => (4, TierIndex(0)),
        };
        self.number(action.slot.into()).number(action.incarnation.into()).u8(kind).u8(tier.0);
        self.u32(action.priority as u32).f64(action.benefit_s).text(&action.reason)
    }

    fn parameter(&mut self, parameter: &ParameterValue) -> &mut Self {
        self.text(&parameter.name).text(&parameter.value)
    }

    pub(crate) fn policy(&mut self, change: &PolicyChange) -> &mut Self {
        self.number(change.now_ns).text(&change.name).u64(change.seed);
        self.tier_states(&change.tiers).number(change.parameters.len() as u64);
        for parameter in &change.parameters {
            self.parameter(parameter);
        }
        match &change.cause {
            Cause::Start(None) => self.u8(0),
            Cause::Start(Some(state)) => self.u8(1).u32(state.version).list(&state.bytes),
            Cause::Running => self.u8(2),
            Cause::Parameter(parameter) => self.u8(3).parameter(parameter),
            Cause::Message { kind, body } => self.u8(4).text(kind).list(body),
            Cause::Fallback { why } => self.u8(5).text(why),
        }
    }

    pub(crate) fn head(&mut self, head: &Head) -> &mut Self {
        self.u128(head.store_id).u64(head.started_wall_ns).u64(head.number);
        self.u64(head.wall_ns).u64(head.monotonic_ns);
        self.u8(head.has_hashed_names.into()).u8(head.has_decisions.into());
        self.u64(head.deleted_files).u64(head.deleted_records).u64(head.lost_records);
        self.number(head.tiers.len() as u64);
        for tier in &head.tiers {
            let Figures { capacity_bytes, latency_ns, parallelism, .. } = tier.figures;
            let mut end = tier.name.len().min(TIER_NAME_BYTES_MAX);
            while !tier.name.is_char_boundary(end) {
                end -= 1;
            }
            self.text(&tier.name[..end]).u64(capacity_bytes).u64(latency_ns);
            self.f64(tier.figures.read_bytes_per_s).f64(tier.figures.write_bytes_per_s);
            self.u32(parallelism).f64(tier.figures.idle_w).f64(tier.figures.active_w);
            self.f64(tier.watermarks.low).f64(tier.watermarks.high).f64(tier.watermarks.critical);
            self.u8(tier.persistency as u8);
        }
        self
    }
}

impl Decoder<'_> {
    pub(crate) fn subject(&mut self) -> Result<((u32, u32), Subject), Wrong> {
        let slot = (self.number_u32()?, self.number_u32()?);
        let (object_id, segment) = (self.number()?, self.number_u32()?);
        let start_bytes = self.number()?;
        let name = match self.u8()? {
            0 => {
                ObjectName::Key(Key::parse(self.text()?).map_err(|_| Wrong("a name is not legal"))?)
            }
            1 => ObjectName::Hash(self.u128()?),
            _ => return Err(Wrong("there is no such kind of name")),
        };
        Ok((slot, Subject { object_id, segment, start_bytes, name }))
    }

    pub(crate) fn snapshot(&mut self) -> Result<Snapshot, Wrong> {
        Ok(Snapshot { time_ns: self.number()?, slots: self.number_u32()? })
    }

    /// A state with the key that `key_of` gives for its slot and incarnation.
    pub(crate) fn state(&mut self, key_of: impl Fn((u32, u32)) -> Key) -> Result<State, Wrong> {
        let (slot, incarnation) = (self.number_u32()?, self.number_u32()?);
        let segment = self.number_u32()?;
        let flags = self.u8()?;
        if flags > 3 {
            return Err(Wrong("a segment has an unknown flag"));
        }
        let view = SegmentView {
            key: key_of((slot, incarnation)),
            segment,
            incarnation,
            is_live: flags & 1 != 0,
            is_moving: flags & 2 != 0,
            is_pinned: self.flag()?,
            start_bytes: self.number()?,
            size_bytes: self.number()?,
            tier: self.tier()?,
            copies: TierSet(self.u32()?),
            opens: self.number_u32()?,
            persistency: self.persistency()?,
            hint: Hint { temperature: self.temperature()? },
            created_ns: self.number()?,
            last_read_ns: self.number()?,
            last_write_ns: self.number()?,
            last_close_ns: self.number()?,
        };
        Ok(State { slot, view })
    }

    fn tier(&mut self) -> Result<TierIndex, Wrong> {
        let tier = self.u8()?;
        let is_small = usize::from(tier) < TierIndex::COUNT_MAX;
        if is_small { Ok(TierIndex(tier)) } else { Err(Wrong("a tier is too large")) }
    }

    fn persistency(&mut self) -> Result<Persistency, Wrong> {
        match self.u8()? {
            0 => Ok(Persistency::None),
            1 => Ok(Persistency::Process),
            2 => Ok(Persistency::Storage),
            3 => Ok(Persistency::Shared),
            _ => Err(Wrong("there is no such level")),
        }
    }

    fn temperature(&mut self) -> Result<Temperature, Wrong> {
        match self.u8()? {
            0 => Ok(Temperature::Unknown),
            1 => Ok(Temperature::Hot),
            2 => Ok(Temperature::Cold),
            _ => Err(Wrong("there is no such hint")),
        }
    }

    fn tier_count(&mut self) -> Result<usize, Wrong> {
        let count = self.count(TIER_STATE_BYTES_MIN)?;
        if count > TierIndex::COUNT_MAX { Err(Wrong("too many tiers")) } else { Ok(count) }
    }

    fn tier_states(&mut self) -> Result<Vec<TierState>, Wrong> {
        let count = self.tier_count()?;
        let mut one = || {
            Ok(TierState {
                used_bytes: self.number()?,
                reserved_bytes: self.number()?,
                copy_bytes: self.number()?,
                garbage_bytes: self.number()?,
                incoming_bytes: self.number()?,
                outgoing_bytes: self.number()?,
                utilisation: self.f64()?,
                is_writable: self.flag()?,
            })
        };
        (0..count).map(|_| one()).collect()
    }

    pub(crate) fn round(&mut self) -> Result<Round, Wrong> {
        Ok(Round {
            number: self.number()?,
            now_ns: self.number()?,
            events: self.number()?,
            actions: self.number()?,
            budget_bytes: self.number()?,
            budget_actions: self.number()?,
            tiers: self.tier_states()?,
        })
    }

    pub(crate) fn decision(&mut self) -> Result<Action, Wrong> {
        let (slot, incarnation) = (self.number_u32()?, self.number_u32()?);
        let kind = self.u8()?;
        let tier = self.tier()?;
        let kind = match kind {
            0 => ActionKind::Move { to: tier },
            1 => ActionKind::Promote { to: tier },
            2 => ActionKind::Copy { to: tier },
            3 => ActionKind::DropCopy { tier },
            4 => ActionKind::Cancel,
            _ => return Err(Wrong("there is no such action")),
        };
        let (priority, benefit_s) = (self.u32()? as i32, self.f64()?);
        let reason = self.text()?.into();
        Ok(Action { slot, incarnation, kind, priority, reason, benefit_s })
    }

    fn parameter(&mut self) -> Result<ParameterValue, Wrong> {
        Ok(ParameterValue { name: self.text()?.into(), value: self.text()?.into() })
    }

    pub(crate) fn policy(&mut self) -> Result<PolicyChange, Wrong> {
        let now_ns = self.number()?;
        let name = self.text()?.into();
        let seed = self.u64()?;
        let tiers = self.tier_states()?;
        let parameters = (0..self.count(2)?).map(|_| self.parameter()).collect::<Result<_, _>>()?;
        let cause = match self.u8()? {
            0 => Cause::Start(None),
            1 => Cause::Start(Some(SavedState {
                version: self.u32()?,
                bytes: self.list()?.to_vec(),
            })),
            2 => Cause::Running,
            3 => Cause::Parameter(self.parameter()?),
            4 => Cause::Message { kind: self.text()?.into(), body: self.list()?.to_vec() },
            5 => Cause::Fallback { why: self.text()?.into() },
            _ => return Err(Wrong("there is no such cause")),
        };
        Ok(PolicyChange { now_ns, cause, name, parameters, seed, tiers })
    }

    pub(crate) fn head(&mut self) -> Result<Head, Wrong> {
        let mut head = Head {
            store_id: self.u128()?,
            started_wall_ns: self.u64()?,
            number: self.u64()?,
            wall_ns: self.u64()?,
            monotonic_ns: self.u64()?,
            has_hashed_names: self.flag()?,
            has_decisions: self.flag()?,
            deleted_files: self.u64()?,
            deleted_records: self.u64()?,
            lost_records: self.u64()?,
            tiers: Vec::new(),
        };
        for _ in 0..self.tier_count()? {
            head.tiers.push(Tier {
                name: self.text()?.into(),
                figures: Figures {
                    capacity_bytes: self.u64()?,
                    latency_ns: self.u64()?,
                    read_bytes_per_s: self.f64()?,
                    write_bytes_per_s: self.f64()?,
                    parallelism: self.u32()?,
                    idle_w: self.f64()?,
                    active_w: self.f64()?,
                    // Replays take them from a configuration, and 0.1.0 reads no head with more in it.
                    prices: Prices::default(),
                },
                watermarks: Watermarks {
                    low: self.f64()?,
                    high: self.f64()?,
                    critical: self.f64()?,
                },
                persistency: self.persistency()?,
            });
        }
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_no_prices() {
        let head = |prices| Head {
            store_id: 1,
            started_wall_ns: 2,
            number: 3,
            wall_ns: 4,
            monotonic_ns: 5,
            has_hashed_names: false,
            has_decisions: true,
            deleted_files: 6,
            deleted_records: 7,
            lost_records: 8,
            tiers: vec![Tier {
                name: "tier".into(),
                figures: Figures { prices, ..Figures::default() },
                watermarks: Watermarks::default(),
                persistency: Persistency::Shared,
            }],
        };
        let encoded = |head: &Head| Encoder::default().head(head).bytes.clone();
        let free = head(Prices::default());
        let priced = encoded(&head(Prices { per_gb_month: 0.02, ..Prices::default() }));
        assert_eq!(priced, encoded(&free));
        assert_eq!(crate::file::read_head(&priced), Some(free));
    }
}
