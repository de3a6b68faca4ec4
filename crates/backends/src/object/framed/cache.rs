// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decoded frames of which a reader took a part: the next read wants the rest.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::lock;

/// Most frames that are kept, 8 MiB: those of as many readers.
const FRAMES_MAX: usize = 64;

#[derive(Default)]
pub(super) struct Cache {
    /// The one that was used last in front.
    frames: Mutex<VecDeque<Frame>>,
}

struct Frame {
    handle: u64,
    number: u64,
    data: Arc<[u8]>,
}

impl Frame {
    fn is(&self, handle: u64, number: u64) -> bool {
        (self.handle, self.number) == (handle, number)
    }
}

impl Cache {
    pub(super) fn get(&self, handle: u64, number: u64) -> Option<Arc<[u8]>> {
        let mut frames = lock(&self.frames);
        let at = frames.iter().position(|frame| frame.is(handle, number))?;
        let found = frames.remove(at)?;
        let data = Arc::clone(&found.data);
        frames.push_front(found);
        Some(data)
    }

    pub(super) fn put(&self, handle: u64, number: u64, data: Arc<[u8]>) {
        let mut frames = lock(&self.frames);
        frames.retain(|frame| !frame.is(handle, number));
        frames.truncate(FRAMES_MAX - 1);
        frames.push_front(Frame { handle, number, data });
    }

    /// Drops those of a handle.
    pub(super) fn forget(&self, handle: u64) {
        lock(&self.frames).retain(|frame| frame.handle != handle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frames_that_were_used_last_stay() {
        let cache = Cache::default();
        for number in 0..FRAMES_MAX as u64 {
            cache.put(1, number, Arc::from([number as u8]));
        }
        assert_eq!(cache.get(1, 0).as_deref(), Some(&[0][..]));
        cache.put(2, 0, Arc::from([99]));
        assert!(cache.get(1, 0).is_some() && cache.get(1, 1).is_none());
        cache.forget(1);
        assert!(cache.get(1, 0).is_none() && cache.get(2, 0).is_some());
    }
}
