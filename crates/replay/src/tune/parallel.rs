// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many replays at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// What comes of the work for each number up to `count`, in their order, on so many threads.
/// `progress` is told, on this thread, whatever the work tells.
pub(super) fn each<T: Send>(
    count: usize,
    threads: usize,
    progress: &mut dyn FnMut(u64),
    work: impl Fn(usize, &mut dyn FnMut(u64)) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let found: Vec<_> = (0..count).map(|_| Mutex::new(None)).collect();
    let (sender, replayed) = channel();
    let run = |sender: Sender<u64>| {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(place) = found.get(index) else { return };
            // Nobody is interested in progress any more where sending fails.
            let one = work(index, &mut |requests| _ = sender.send(requests));
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(one);
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads.min(count) {
            let (sender, run) = (sender.clone(), &run);
            scope.spawn(move || run(sender));
        }
        drop(sender);
        // It ends with the last sender.
        replayed.iter().for_each(progress);
    });
    let one = |place: Mutex<Option<T>>| {
        let one = place.into_inner().unwrap_or_else(PoisonError::into_inner);
        one.expect("all of them were worked on")
    };
    found.into_iter().map(one).collect()
}
