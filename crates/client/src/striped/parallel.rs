// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several servers at the same time.

use std::panic::resume_unwind;

use crate::deadline;

/// Runs all tasks at once and returns their results in order. The last one runs on the caller's
/// thread, so that one alone takes none. As many threads as servers: few. Of a shared deadline they
/// take what the longest takes.
pub(super) fn at_once<T: Send, F: FnOnce() -> T + Send>(tasks: Vec<F>) -> Vec<T> {
    let mut tasks = tasks;
    let Some(last) = tasks.pop() else { return Vec::new() };
    if tasks.is_empty() {
        return vec![last()];
    }
    let carried = deadline::carried();
    std::thread::scope(|scope| {
        let begin = |task: F| {
            scope.spawn(move || {
                terrace_affinity::roam();
                carried.resume(task)
            })
        };
        let threads: Vec<_> = tasks.into_iter().map(begin).collect();
        let last = last();
        let joined = threads.into_iter().map(|thread| thread.join());
        let ended = joined.map(|result| result.unwrap_or_else(|panic| resume_unwind(panic)));
        let mut results: Vec<T> = ended
            .map(|(result, after)| {
                after.join();
                result
            })
            .collect();
        results.push(last);
        results
    })
}
