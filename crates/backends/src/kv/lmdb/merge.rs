// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shows several ordered layers as one: of every key, what the newest layer says.

use terrace_core::{Pair, Result};

/// A key with its new value; `None` removes it.
pub(super) type Change<'a> = (&'a [u8], Option<&'a [u8]>);

/// Changes in the order of their keys.
pub(super) struct Layer<'a> {
    head: Option<Change<'a>>,
    rest: Box<dyn Iterator<Item = Result<Change<'a>>> + 'a>,
}

impl<'a> Layer<'a> {
    pub(super) fn new(rest: impl Iterator<Item = Result<Change<'a>>> + 'a) -> Result<Self> {
        let mut layer = Self { head: None, rest: Box::new(rest) };
        layer.advance()?;
        Ok(layer)
    }

    fn advance(&mut self) -> Result<()> {
        self.head = self.rest.next().transpose()?;
        Ok(())
    }
}

/// The first `max` pairs of all layers, of which the first is the newest.
pub(super) fn merged(mut layers: Vec<Layer<'_>>, max: usize) -> Result<Vec<Pair>> {
    let mut found = Vec::new();
    while found.len() < max {
        let heads = layers.iter().filter_map(|layer| layer.head);
        let Some(key) = heads.map(|(key, _)| key).min() else { break };
        let mut newest = None;
        for layer in &mut layers {
            if let Some((_, value)) = layer.head.filter(|head| head.0 == key) {
                newest.get_or_insert(value);
                layer.advance()?;
            }
        }
        if let Some(Some(value)) = newest {
            found.push((key.to_vec(), value.to_vec()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use terrace_core::{Error, ErrorKind};

    use super::*;

    fn layer<'a>(changes: &'a [Change<'a>]) -> Layer<'a> {
        Layer::new(changes.iter().map(|change| Ok(*change))).expect("no errors")
    }

    #[test]
    fn the_newest_layer_counts_and_removals_hide() {
        let newest: [Change; 2] = [(b"b", None), (b"c", Some(b"new"))];
        let middle: [Change; 2] = [(b"b", Some(b"old")), (b"d", Some(b"middle"))];
        let oldest: [Change; 3] = [(b"a", Some(b"old")), (b"c", Some(b"old")), (b"d", None)];
        let merge = |max| {
            let found = merged(vec![layer(&newest), layer(&middle), layer(&oldest)], max);
            found.expect("no errors")
        };
        let pair = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
        let all = [pair(b"a", b"old"), pair(b"c", b"new"), pair(b"d", b"middle")];
        assert_eq!(merge(10), all);
        assert_eq!(merge(2), all[..2]);
        assert_eq!(merge(0), []);
    }

    #[test]
    fn an_error_in_any_layer_is_returned() {
        let broken = || Err(Error::new(ErrorKind::Corrupt, "read"));
        let changes = [Ok((&b"a"[..], None)), broken()];
        let layers = vec![Layer::new(changes.into_iter()).expect("the first is fine")];
        assert_eq!(merged(layers, 10).expect_err("the second").kind(), ErrorKind::Corrupt);
        assert!(Layer::new([broken()].into_iter()).is_err());
    }
}
