// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Policies that do not come back from one of their calls.

use std::io::Cursor;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use terrace_core::{
    Actions, Canceller, Event, Parameter, Placed, Placement, Placer, Policy, Result, TierIndex,
    View,
};
use terrace_policies::calls::Call;

use super::tests::options;
use super::{Population, Timed, TimedOptions, TimedReplay};
use crate::read::{Options, Trace};

/// Hangs in one call until it is cancelled, with nothing that could do so or not.
pub(crate) struct Hanging {
    call: Call,
    /// Its holder ends the call.
    gate: Arc<Mutex<Option<Sender<()>>>>,
    waits: Arc<Mutex<Receiver<()>>>,
    has_canceller: bool,
}

impl Hanging {
    pub(crate) fn policy(call: Call, has_canceller: bool) -> Box<dyn Policy> {
        let (gate, waits) = channel();
        let gate = Arc::new(Mutex::new(Some(gate)));
        Box::new(Self { call, gate, waits: Arc::new(Mutex::new(waits)), has_canceller })
    }

    fn hang_in(&self, call: Call) {
        if call == self.call {
            wait(&self.waits);
        }
    }
}

fn wait(waits: &Mutex<Receiver<()>>) {
    let waits = waits.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = waits.recv();
    panic!("it was cancelled");
}

#[derive(Debug)]
struct HangingPlacer(Option<Arc<Mutex<Receiver<()>>>>);

impl Placer for HangingPlacer {
    fn place(&self, _: &Placement<'_>) -> Placed {
        self.0.as_deref().map(wait);
        Placed::on(TierIndex(0))
    }

    fn is_foreign(&self) -> bool {
        true
    }
}

impl Policy for Hanging {
    fn placer(&self) -> Arc<dyn Placer> {
        self.hang_in(Call::Publish);
        Arc::new(HangingPlacer((self.call == Call::Place).then(|| Arc::clone(&self.waits))))
    }

    fn observe(&mut self, _: &View, _: &[Event]) {
        self.hang_in(Call::Observe);
    }

    fn plan(&mut self, _: &View, _: &mut Actions) {
        self.hang_in(Call::Plan);
    }

    fn message(&mut self, _: &View, _: &str, _: &[u8]) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn parameters(&self) -> Vec<Parameter> {
        Vec::new()
    }

    fn set_parameter(&mut self, _: &str, _: &str) -> Result<()> {
        Ok(())
    }

    fn state_version(&self) -> u32 {
        1
    }

    fn save(&self, _: &View, _: &mut Vec<u8>) {}

    fn restore(&mut self, _: &View, _: u32, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn canceller(&self) -> Option<Canceller> {
        let gate = Arc::clone(&self.gate);
        let cancel = move || _ = gate.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.has_canceller.then(|| Box::new(cancel) as Canceller)
    }
}

fn replay(policy: Box<dyn Policy>, call_time_max: Duration) -> Result<Timed> {
    let text = "time,id,size,op\n1,1,1000,write\n3,1,1000,read\n";
    let open = || Trace::from_stream(Box::new(Cursor::new(text)), "test", &Options::default());
    let population = Population::read(&mut open()?, &mut |_| {})?;
    let options = TimedOptions { call_time_max, ..options(1 << 20) };
    TimedReplay::new(options).run(population, open()?, policy, &mut |_| {})
}

#[test]
fn a_policy_that_hangs_in_any_call_ends_its_replay_which_says_in_which() {
    for call in [Call::Observe, Call::Plan, Call::Place, Call::Publish] {
        let policy = Hanging::policy(call, false);
        let error = replay(policy, Duration::from_millis(40)).expect_err("it hangs").to_string();
        let expected = format!("the policy did not come back from `{}` within 40ms", call.word());
        assert!(error.contains(&expected) && error.contains("goes on in a thread"), "{error}");
    }
}

#[test]
fn a_policy_that_hangs_is_ended_where_it_can_be() {
    let policy = Hanging::policy(Call::Plan, true);
    let error = replay(policy, Duration::from_millis(40)).expect_err("it hangs").to_string();
    assert!(error.contains("from `plan` within 40ms; it was ended"), "{error}");
}

#[test]
fn what_a_call_may_take_changes_nothing_for_a_policy_that_comes_back() {
    let comes_back = || Hanging::policy(Call::Message, false);
    let hurried = replay(comes_back(), Duration::from_secs(3600)).expect("it comes back");
    assert_eq!(replay(comes_back(), Duration::from_secs(10)).expect("it comes back"), hurried);
}
