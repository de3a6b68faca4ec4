// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several servers at the same time.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;

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
    let tasks: Vec<_> = tasks.into_iter().map(|task| Mutex::new(Some(task))).collect();
    std::thread::scope(|scope| {
        let mut threads = Vec::with_capacity(tasks.len());
        for task in &tasks {
            threads.push(Builder::new().spawn_scoped(scope, move || {
                terrace_affinity::roam();
                carried.resume(take(task))
            }));
        }
        let last = last();
        let ended = threads.into_iter().zip(&tasks).map(|(thread, task)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // Where there is no thread to be had it comes behind the others.
            Err(_) => carried.resume(take(task)),
        });
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

/// A task that no thread has begun.
fn take<F>(task: &Mutex<Option<F>>) -> F {
    let mut task = task.lock().unwrap_or_else(PoisonError::into_inner);
    task.take().expect("a thread that was not started has not taken it")
}
