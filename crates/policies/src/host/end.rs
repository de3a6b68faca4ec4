// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Destroys instances, without waiting for ever for one that hangs.

use std::ffi::c_void;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use terrace_policy_abi as abi;

/// Longest that anybody waits for it. One that goes on is not disturbed.
const DESTROY_TIME_MAX: Duration = Duration::from_secs(1);

/// The last call with an instance.
pub(super) struct End {
    destroy: abi::Destroy,
    instance: *mut c_void,
}

// SAFETY: the header allows calls from different threads as long as they do not overlap, and this is
// the last one.
unsafe impl Send for End {}

impl End {
    /// # Safety
    ///
    /// The instance is alive, belongs to the library with this function, and is used only here from
    /// now on.
    pub(super) unsafe fn new(destroy: abi::Destroy, instance: *mut c_void) -> Self {
        Self { destroy, instance }
    }

    /// Makes the call in a thread of its own; whether it is over. Where it is not, the library must
    /// stay loaded.
    pub(super) fn carry_out(self) -> bool {
        let (done, is_done) = channel::<()>();
        let thread = thread::Builder::new().name("terrace-destroy".into()).spawn(move || {
            self.call();
            drop(done);
        });
        // Without a thread there is no call, and whatever the instance has goes on.
        let Ok(thread) = thread else { return false };
        // Nothing comes but the end. The thread must be gone before the library: it may have
        // left something to do for the end of the thread.
        match is_done.recv_timeout(DESTROY_TIME_MAX) {
            Err(RecvTimeoutError::Timeout) => false,
            _ => thread.join().is_ok(),
        }
    }

    fn call(self) {
        // SAFETY: `new` requires it.
        unsafe { (self.destroy)(self.instance) };
    }
}
