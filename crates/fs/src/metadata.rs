// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What keeps the metadata of a file system.

use std::time::Duration;

use crate::failure::Result;
use crate::node::{Node, Time};
use crate::request::{Listed, Reply, Request};

/// How often a cache was looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheReport {
    /// What it holds.
    pub cache: &'static str,
    /// Looks that found an answer.
    pub hits: u64,
    /// Looks that found none.
    pub misses: u64,
}

/// The metadata of a file system: here, or with a server.
///
/// # Contract
///
/// - Calls may be made from many threads at once and may block.
/// - Each takes effect at once for all, or not at all.
/// - What one call acknowledged, every later call sees.
pub trait Metadata: Send + Sync {
    /// Carries out a request.
    ///
    /// # Errors
    ///
    /// As POSIX says for what was asked; `IO` and others with a text where something broke.
    fn call(&self, request: &Request<'_>) -> Result<Reply>;

    /// Acknowledges a make that is carried out a little later: with what is written to it, before anything else
    /// is asked that may depend on it, and in any case soon. Its failure is returned to the user of the file
    /// ([`Metadata::check`]), until it is closed. `None` where it cannot be acknowledged, and the request is left
    /// to [`Metadata::call`].
    fn make_later(&self, _request: &Request<'_>) -> Option<Reply> {
        None
    }

    /// Acknowledges the unlink of a file, which is carried out a little later: before anything else is asked
    /// that may depend on it, and in any case soon; or takes it away at once. Where it stays after all, that
    /// is a loss ([`Metadata::take_loss`]) of the directory. `None` where it cannot be acknowledged, and is left to
    /// [`Metadata::call`].
    ///
    /// # Errors
    ///
    /// The server that is to carry out what was acknowledged before does not answer.
    fn remove_later(&self, _directory: u64, _name: &[u8]) -> Result<Option<Reply>> {
        Ok(None)
    }

    /// Notes the time of a change that is returned to a program: no change that is deferred from now on gets
    /// an earlier one.
    fn note_returned(&self, _changed: Time) {}

    /// Notes that bytes of an object were changed through this: the time of that is not known here, and no
    /// change that is deferred from now on gets an earlier one.
    fn note_object_written(&self) {}

    /// Carries out whatever was acknowledged, for a caller that asks nothing more.
    ///
    /// # Errors
    ///
    /// The server does not answer.
    fn finish(&self) -> Result<()> {
        Ok(())
    }

    /// A node as it was less than `age_max` ago, and how long ago, where that is known without
    /// asking anybody. What was changed in it through this since then is in it; of a file that is
    /// open for writing through this nothing is known.
    fn recent(&self, _number: u64, _age_max: Duration) -> Option<(Node, Duration)> {
        None
    }

    /// What a name led to less than `age_max` ago, and how long ago, where that was fetched with the
    /// names around it, or asked for. What was changed through this since then counts. Each answer is
    /// given once until the node is [forgotten](Metadata::forgotten), so that a second question may find a
    /// newer one.
    ///
    /// # Errors
    ///
    /// The server that was asked does not answer.
    fn ahead(
        &self,
        _directory: u64,
        _name: &[u8],
        _age_max: Duration,
    ) -> Result<Option<(Node, Duration)>> {
        Ok(None)
    }

    /// Entries of a directory behind a position, `max` at most and fewer only at the end, with what is known
    /// of them, and how long ago they were asked for: less than `age_max`, or only now. Others that are
    /// likely to be listed next are fetched with it. No other client was acknowledged a change of names
    /// there since; what was changed through this counts, and of each node it returns the last state, or nothing.
    /// `None` where it is to be listed as any other.
    ///
    /// # Errors
    ///
    /// The server that was asked does not answer.
    fn list_ahead(
        &self,
        _directory: u64,
        _after: u64,
        _max: usize,
        _age_max: Duration,
    ) -> Result<Option<(Vec<Listed>, Duration)>> {
        Ok(None)
    }

    /// A small file and others of its directory that were listed or written here, as many at most, and about
    /// so many bytes of them: each of these once, until they are listed again. None where there is no other.
    /// Sends no request.
    fn neighbours(&self, _number: u64, _max: usize, _bytes_max: u64) -> Vec<u64> {
        Vec::new()
    }

    /// The kernel has forgotten the names of a node: if it asks again, it is because of that.
    fn forgotten(&self, _number: u64) {}

    /// Whether a file can still be used as it was opened and locked through this. Sends no request, unless
    /// the server has forgotten this client, as far as is known, and its state is to be reclaimed.
    ///
    /// # Errors
    ///
    /// `STALE` where the file was removed, and is gone since, or where it is no more known where its
    /// bytes are; `IO` where another one has got a lock of it, of which its owner here does not know;
    /// where that cannot be found out now, that it may be later.
    fn check(&self, _number: u64) -> Result<()> {
        Ok(())
    }

    /// The same for a close of a file, which is made now if it was to be made later: where it is not locked
    /// through this, nothing is to be reclaimed before that, and no server is waited for.
    ///
    /// # Errors
    ///
    /// As [`Metadata::check`], as far as is known.
    fn check_to_close(&self, _number: u64) -> Result<()> {
        Ok(())
    }

    /// Whether a change that was acknowledged of a node, or of any, may be lost, because the server
    /// ended before it was durable, or did not carry it out: as far as a [`Request::Sync`] found
    /// that has ended since.
    /// True once for each node, and once for all of them.
    fn take_loss(&self, _of: Option<u64>) -> bool {
        false
    }

    /// Which life of the server it is, as far as is known here. A later one has a larger
    /// number.
    fn life(&self) -> u64 {
        0
    }

    /// The first life of which nothing is lost, as far as is known here: what was changed in an earlier
    /// one, and not made durable, may be undone.
    fn whole_since(&self) -> u64 {
        0
    }

    /// How often caches of what was asked before had an answer, by cache. None where nothing is cached.
    fn caches(&self) -> Vec<CacheReport> {
        Vec::new()
    }

    /// Whether a node had no extended attribute of this name, or none at all, less than `age_max`
    /// ago, where that is known without asking anybody. What was set through this since then counts.
    fn lacks_xattr(&self, _number: u64, _name: Option<&[u8]>, _age_max: Duration) -> bool {
        false
    }
}
