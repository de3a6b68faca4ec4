// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Policies in Python, each in a process of its own: asks one over a socket and presents it as a
//! [`Policy`].
//!
//! The other side is `bindings/python/python/terrace/host.py`; both speak `docs/formats/policy-program.md`.
//! Events are kept until the policy is asked for something, so that a round costs one answer.

mod memory;
mod news;
mod placement;
mod process;
mod reply;
mod socket;

use std::cell::RefCell;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use terrace_core::{
    Actions, Canceller, Error, ErrorKind, Event, Interest, Parameter, Placer, Policy, Result, View,
};

use crate::mechanism::boundary::{give_up, moved_bytes};

use news::News;
use placement::Table;
pub use process::Process;
use reply::{Reply, Start};
use socket::{Call, Socket};

/// The version of what both sides say.
const VERSION: u32 = 4;

/// Starts the program at `path` and gives its policy its parameters, in order.
///
/// It ends when the policy is dropped.
///
/// # Errors
///
/// `NotFound` where there is no such file or no Python; `Invalid` with what Python says for a file
/// that is no policy, for a policy that refuses these tiers, and for wrong parameters.
pub fn start(path: &Path, view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
    let (socket, process) = process::start(path)?;
    let program = Program::create(socket, Some(process), view)
        .map_err(|error| error.with("program", path.display()))?;
    program.with(parameters)
}

/// Takes a policy that another process offers at the other end.
///
/// # Errors
///
/// As [`start`].
pub fn connect(
    stream: UnixStream,
    view: &View,
    parameters: &[(String, String)],
) -> Result<Box<dyn Policy>> {
    Program::create(Socket::new(stream), None, view)?.with(parameters)
}

/// A policy whose code runs in another process.
struct Program {
    /// For people: the name of its class.
    name: String,
    state_version: u32,
    interest: Interest,
    /// As the program returned them last.
    parameters: Vec<Parameter>,
    placement: Arc<Table>,
    /// What it was not shown yet.
    news: RefCell<News>,
    socket: Socket,
    /// Where it is ours to end. The last field: it ends once its connection is closed.
    _process: Option<Process>,
}

impl Program {
    fn create(socket: Socket, process: Option<Process>, view: &View) -> Result<Self> {
        const OPERATION: &str = "start the policy";
        let seed = view.random.clone().next_u64();
        let mut news = News::new()?;
        let mut head = news.head(view);
        head["version"] = VERSION.into();
        head["seed"] = seed.into();
        let reply = socket.start(&head, news.memory()).map_err(|error| {
            Error::invalid(OPERATION, "the program does not answer").caused_by(error)
        })?;
        if let Some(refused) = reply.refusal(OPERATION) {
            // Whatever went wrong before there was a policy is the author's to mend.
            return Err(Error::invalid(OPERATION, refused.reason));
        }
        let start: Start = reply.parse()?;
        let mut program = Self {
            interest: start.interest(),
            name: start.name,
            state_version: start.state_version,
            parameters: Vec::new(),
            placement: Arc::default(),
            news: RefCell::new(news),
            socket,
            _process: process,
        };
        program.take_over(&reply)?;
        Ok(program)
    }

    fn with(mut self, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
        for (name, value) in parameters {
            self.set_parameter(name, value)?;
        }
        Ok(Box::new(self))
    }

    /// Asks with everything that it was not shown yet.
    fn ask(&self, call: Call, view: &View, more: Value, body: &[u8]) -> Result<Reply> {
        let mut news = self.news.borrow_mut();
        let mut head = news.head(view);
        news.tell(view, &mut head);
        drop(news);
        if let (Some(head), Value::Object(more)) = (head.as_object_mut(), more) {
            head.extend(more);
        }
        self.socket.ask(call, &head, body)
    }

    /// Notes what the answer says about placement and parameters, where that is new.
    fn take_over(&mut self, reply: &Reply) -> Result<()> {
        let says: reply::Says = reply.parse()?;
        if let Some(placement) = says.placement {
            self.placement = Arc::new(Table::new(placement));
        }
        if let Some(parameters) = says.parameters {
            self.parameters = parameters.into_iter().map(Parameter::from).collect();
        }
        Ok(())
    }

    /// The answer to a call that has no error to return. The panic is what the contract of
    /// [`Policy`] offers: the stack replaces the policy by its fallback and reports the text.
    fn require(&self, call: Call, reply: Result<Reply>) -> Reply {
        match reply {
            Ok(reply) => match reply.refusal(call.operation()) {
                None => reply,
                Some(refused) => self.fail(call, &refused.reason),
            },
            Err(error) => self.fail(call, &error.chain().to_string()),
        }
    }

    /// The answer to a call that may refuse.
    fn accept(&self, call: Call, reply: Result<Reply>) -> Result<Reply> {
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => self.fail(call, &error.chain().to_string()),
        };
        let Some(refused) = reply.refusal(call.operation()) else { return Ok(reply) };
        let Some(kind) = refused.kind else { self.fail(call, &refused.reason) };
        Err(Error::new(kind, call.operation()).because(refused.reason).with("policy", &self.name))
    }

    fn fail(&self, call: Call, reason: &str) -> ! {
        let word = call.word();
        give_up(format!("the policy program {} failed in {word}: {reason}", self.name))
    }

    fn taken(&mut self, call: Call, reply: &Reply) {
        if let Err(error) = self.take_over(reply) {
            self.fail(call, &error.chain().to_string());
        }
    }
}

impl Policy for Program {
    fn placer(&self) -> Arc<dyn Placer> {
        self.placement.clone()
    }

    fn interest(&self) -> Interest {
        self.interest
    }

    fn observe(&mut self, view: &View, events: &[Event]) {
        for events in events.chunks(news::EVENTS_MAX) {
            let news = self.news.get_mut();
            news.add(view, events);
            if news.is_full() {
                let reply = self.ask(Call::Observe, view, Value::Null, &[]);
                let reply = self.require(Call::Observe, reply);
                self.taken(Call::Observe, &reply);
            }
        }
    }

    fn plan(&mut self, view: &View, actions: &mut Actions) {
        let budget =
            json!({ "bytes_left": actions.bytes_left(), "count_left": actions.count_left() });
        let reply = self.ask(Call::Plan, view, budget, &[]);
        let reply = self.require(Call::Plan, reply);
        self.taken(Call::Plan, &reply);
        match reply.actions() {
            Ok(list) => {
                for action in list {
                    let moved_bytes = moved_bytes(view, &action);
                    if !actions.push(action, moved_bytes) {
                        break;
                    }
                }
            }
            Err(error) => self.fail(Call::Plan, &error.chain().to_string()),
        }
    }

    fn message(&mut self, view: &View, kind: &str, body: &[u8]) -> Result<Vec<u8>> {
        let reply = self.ask(Call::Message, view, json!({ "kind": kind }), body);
        let reply = self.accept(Call::Message, reply).map_err(|error| error.with("kind", kind))?;
        self.taken(Call::Message, &reply);
        Ok(reply.body)
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn set_parameter(&mut self, name: &str, value: &str) -> Result<()> {
        let head = json!({ "name": name, "value": value });
        let reply = self.socket.ask(Call::SetParameter, &head, &[]);
        let reply = self
            .accept(Call::SetParameter, reply)
            .map_err(|refused| refused.with("parameter", name).with("value", value))?;
        self.taken(Call::SetParameter, &reply);
        Ok(())
    }

    fn canceller(&self) -> Option<Canceller> {
        self.socket.canceller().ok()
    }

    fn state_version(&self) -> u32 {
        self.state_version
    }

    fn save(&self, view: &View, out: &mut Vec<u8>) {
        let reply = self.ask(Call::Save, view, Value::Null, &[]);
        out.append(&mut self.require(Call::Save, reply).body);
    }

    fn restore(&mut self, view: &View, version: u32, state: &[u8]) -> Result<()> {
        if state.is_empty() {
            return Ok(());
        }
        let reply = self.ask(Call::Restore, view, json!({ "state_version": version }), state);
        let reply = self
            .accept(Call::Restore, reply)
            .map_err(|refused| refused.with("state_version", version))?;
        self.taken(Call::Restore, &reply);
        Ok(())
    }
}

/// What a program refuses, by the number of its answer; `None` for one that cannot go on.
fn kind(status: u32) -> Option<ErrorKind> {
    use terrace_policy_abi::status;
    match i32::try_from(status) {
        Ok(status::INVALID) => Some(ErrorKind::Invalid),
        Ok(status::NOT_FOUND) => Some(ErrorKind::NotFound),
        Ok(status::UNSUPPORTED) => Some(ErrorKind::Unsupported),
        Ok(status::CORRUPT) => Some(ErrorKind::Corrupt),
        _ => None,
    }
}
