// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several servers at the same time.

use std::panic::resume_unwind;

/// Runs all tasks at once and returns their results in order. The last one runs on the caller's
/// thread, so that one alone takes none. As many threads as servers: few.
pub(super) fn at_once<T: Send>(tasks: Vec<impl FnOnce() -> T + Send>) -> Vec<T> {
    let mut tasks = tasks;
    let Some(last) = tasks.pop() else { return Vec::new() };
    if tasks.is_empty() {
        return vec![last()];
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = tasks.into_iter().map(|task| scope.spawn(task)).collect();
        let last = last();
        let joined = threads.into_iter().map(|thread| thread.join());
        let mut results: Vec<T> =
            joined.map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect();
        results.push(last);
        results
    })
}
