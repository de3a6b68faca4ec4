// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What may be found of an object after a crash.

use super::pattern::difference;

/// Everything that an object may be after a crash: what was certain, and what was done since.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected {
    /// The object's content as the application sees it; `None` while it does not exist.
    now: Option<Vec<u8>>,
    lives: Vec<Life>,
    may_be_missing: bool,
}

/// One object under the key: from a creation to its deletion.
#[derive(Clone, Debug)]
struct Life {
    /// The content that is certain, then every content since. A crash leaves at each place a byte
    /// of one of them.
    contents: Vec<Vec<u8>>,
}

impl Expected {
    /// An object that was never created.
    pub(crate) fn missing() -> Self {
        Self { now: None, lives: Vec::new(), may_be_missing: true }
    }

    /// The content now.
    pub(crate) fn now(&self) -> Option<&[u8]> {
        self.now.as_deref()
    }

    /// A step that leads to `next` begins; it may take effect in part.
    pub(crate) fn begin(&mut self, next: Option<Vec<u8>>) {
        match (&self.now, &next) {
            (_, None) => self.may_be_missing = true,
            (None, Some(_)) => self.lives.push(Life { contents: vec![Vec::new()] }),
            (Some(_), Some(_)) => {}
        }
        if let Some(content) = &next {
            let life = self.lives.last_mut().expect("an object that exists has a life");
            life.contents.push(content.clone());
        }
        self.now = next;
    }

    /// A replacement by `next` begins: the old content or the new is found, and no mixture.
    pub(crate) fn begin_put(&mut self, next: Vec<u8>) {
        self.lives.push(Life { contents: vec![next.clone()] });
        self.now = Some(next);
    }

    /// Everything so far is certain.
    pub(crate) fn settle(&mut self) {
        self.may_be_missing = self.now.is_none();
        self.lives.clear();
        if let Some(content) = &self.now {
            self.lives.push(Life { contents: vec![content.clone()] });
        }
    }

    /// Compares with what was found.
    ///
    /// # Errors
    ///
    /// Says what cannot be explained.
    pub(crate) fn explain(&self, found: Option<&[u8]>) -> Result<(), String> {
        let Some(found) = found else {
            return if self.may_be_missing { Ok(()) } else { Err("it is missing".into()) };
        };
        if self.lives.iter().any(|life| life.explains(found)) {
            return Ok(());
        }
        match self.lives.last() {
            None => Err(format!("it is back, with {} bytes", found.len())),
            Some(life) => {
                let nearest = life.contents.last().expect("a life has a content");
                let lives = self.lives.len();
                Err(format!("{} (of {lives} possible lives)", difference(found, nearest)))
            }
        }
    }

    /// From now on it is what was found.
    pub(crate) fn adopt(&mut self, found: Option<Vec<u8>>) {
        self.now = found;
        self.settle();
    }
}

impl Life {
    fn explains(&self, found: &[u8]) -> bool {
        let lengths = self.contents.iter().map(Vec::len);
        let shortest = lengths.clone().min().expect("a life has a content");
        let longest = lengths.max().expect("a life has a content");
        if found.len() < shortest || found.len() > longest {
            return false;
        }
        // Where the object had ended before it grew, bytes that did not arrive read as zeros.
        found.iter().enumerate().all(|(at, byte)| {
            self.contents.iter().any(|content| content.get(at).map_or(*byte == 0, |b| b == byte))
        })
    }
}
