// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The mounts of one tree, each beside a view of the directory that it is compared with.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use terrace_core::{Clock, SystemClock};

use super::Happening;
use super::operation::Chooser;
use super::side::Side;
use crate::scene::{Mounted, Scene};
use crate::suites::{How, Place};

/// How old names and attributes of a client may be that is not strict, where there are several.
const CACHE: &str = "20ms";
const CACHED_FOR: Duration = Duration::from_millis(20);

/// The kernel counts in ticks of up to 10 ms, and what one client does is sent within a few milliseconds.
const SLACK: Duration = Duration::from_millis(20);

/// So many operations one of them does before the next one goes on, on average.
const TURN: u64 = 30;

/// The clients of one store, and what each has open.
pub(super) struct Clients {
    // Open files are closed before what they are in ends.
    sides: Vec<(Side, Side)>,
    others: Vec<Mounted>,
    place: Place,
    current: usize,
    is_strict: bool,
    clock: SystemClock,
}

impl Clients {
    /// `None` where that cannot be tested here.
    pub(super) fn new(how: How, count: usize) -> Option<Self> {
        let mut options = vec!["-o", "suid,dev"];
        if count > 1 && how == How::Network {
            options.extend(["--cache", CACHE]);
        }
        let place = Place::new(how, &options)?;
        let arguments = [how.arguments(), &options].concat();
        let other = |number| {
            let served = place.served.as_ref().expect("several clients need a server");
            place.scene.mount_served(served, &format!("mount{number}"), &arguments)
        };
        let others: Vec<_> = (1..count).map(other).collect();
        let native = place.scene.directory("native");
        let roots: Vec<PathBuf> = std::iter::once(place.mounted.path())
            .chain(others.iter().map(Mounted::path))
            .map(Into::into)
            .collect();
        // The command makes neither.
        for root in [&native, &roots[0]] {
            rustix::fs::chmod(root, 0o755.into()).expect("it is there");
        }
        let sides = roots.iter().map(|root| (Side::new(&native), Side::new(root))).collect();
        let (is_strict, clock) = (how == How::Strict, SystemClock::default());
        Some(Self { sides, others, place, current: 0, is_strict, clock })
    }

    pub(super) fn count(&self) -> usize {
        self.sides.len()
    }

    pub(super) fn current(&self) -> usize {
        self.current
    }

    /// The directory, with what the current client has open in it.
    pub(super) fn native(&mut self) -> &mut Side {
        &mut self.sides[self.current].0
    }

    /// The mount of the current client.
    pub(super) fn mounted(&mut self) -> &mut Side {
        &mut self.sides[self.current].1
    }

    /// Chooses who goes on; whether that changed, and what each has cached is that of before.
    pub(super) fn choose(&mut self, chooser: &mut Chooser) -> bool {
        if !self.is_strict && chooser.below(TURN) > 0 {
            return false;
        }
        self.go_on_at_once(chooser);
        self.wait_for_caches();
        true
    }

    /// Has another client go on, also where it has something cached that is not so any more.
    pub(super) fn go_on_at_once(&mut self, chooser: &mut Chooser) {
        let others = self.count() as u64 - 1;
        self.current = (self.current + 1 + chooser.below(others) as usize) % self.count();
    }

    /// Waits until no client has anything cached of before.
    pub(super) fn wait_for_caches(&self) {
        if !self.is_strict && self.count() > 1 {
            self.clock.sleep(CACHED_FOR + SLACK);
        }
    }

    /// What is open, in the directory and on its mount.
    pub(super) fn open_files(&self) -> impl Iterator<Item = (Option<&OwnedFd>, Option<&OwnedFd>)> {
        self.sides
            .iter()
            .flat_map(|(native, mounted)| native.open_files().zip(mounted.open_files()))
    }

    pub(super) fn restart_server(&mut self, happening: Happening) {
        let Place { served, scene, .. } = &mut self.place;
        let served = served.as_mut().expect("there is one");
        match happening {
            Happening::RestartServer => served.restart(scene),
            _ => served.kill_and_restart(scene),
        }
    }

    /// Ends the mount of the current client, and mounts anew.
    pub(super) fn remount(&mut self, happening: Happening) {
        // What was open is closed then.
        let (native, mounted) = &mut self.sides[self.current];
        native.close_all();
        if let Happening::Remount = happening {
            mounted.close_all();
        }
        let Place { mounted: first, scene, .. } = &mut self.place;
        let mount = match self.current {
            0 => first,
            other => &mut self.others[other - 1],
        };
        end(mount, scene, happening);
        mounted.close_all();
    }

    /// Closes all that is open, and unmounts.
    pub(super) fn unmount(mut self) {
        self.sides.iter_mut().for_each(|(_, mounted)| mounted.close_all());
        self.others.iter_mut().for_each(Mounted::unmount);
        self.place.mounted.unmount();
    }
}

fn end(mount: &mut Mounted, scene: &Scene, happening: Happening) {
    match happening {
        Happening::Remount => mount.unmount(),
        _ => mount.kill(),
    }
    mount.mount(scene);
}
