// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Puts over one server and over several, whose clients and servers are killed in the middle, or that are
//! full.

use std::process::Command;

use rustix::process::Signal;

use crate::network::Serving;
use crate::scene::{Scene, finish, signal};
use crate::signals::half_of;

static OLD: [u8; 2_000_000] = [9; 2_000_000];

/// Servers with a store each.
struct Cluster {
    scenes: Vec<Scene>,
    servers: Vec<Serving>,
}

impl Cluster {
    /// So many servers, whose stores hold so much.
    fn new(count: usize, capacity: &str) -> Self {
        let scene = |_| {
            let scene = Scene::empty();
            let tier = format!("only=only,capacity={capacity}");
            scene.ok(["init", "store", "--policy", "none", "--tier", &tier]);
            scene
        };
        let scenes: Vec<_> = (0..count).map(scene).collect();
        let servers = scenes.iter().map(|scene| Serving::start(scene, "127.0.0.1:0")).collect();
        Self { scenes, servers }
    }

    /// A command for all of them.
    fn command(&self, arguments: &[&str]) -> Command {
        let addresses: Vec<_> = self.servers.iter().map(|one| one.address.as_str()).collect();
        let mut address = format!("terrace://{}/?secret=none", addresses.join(","));
        if addresses.len() > 1 {
            address.push_str("&stripe=64KiB");
        }
        let mut command = self.scenes[0].command(["--store", &address]);
        command.args(arguments);
        command
    }

    fn put(&self, key: &str, content: &[u8]) -> Option<i32> {
        let file = self.scenes[0].file("content", content);
        let put = self.command(&["put", key, file.to_str().expect("text")]).output();
        put.expect("it runs").status.code()
    }

    #[track_caller]
    fn assert_holds(&self, key: &str, content: &[u8]) {
        let found = self.command(&["get", key]).output().expect("it runs");
        assert!(found.status.success() && found.stdout == content, "{} bytes", found.stdout.len());
    }

    /// What all stores hold, files that wait to be deleted among it, once their servers have stopped.
    fn stop(self) -> u64 {
        self.servers.into_iter().for_each(Serving::stop);
        let used = |scene: &Scene| {
            scene.ok(["fsck", "--verify"]);
            let tier = scene.json(["tiers"])[0]["tiers"][0].clone();
            let bytes = |name: &str| tier[name].as_u64().unwrap_or_else(|| panic!("{tier}"));
            bytes("used_bytes") + bytes("reserved_bytes") + bytes("garbage_bytes")
        };
        self.scenes.iter().map(used).sum()
    }
}

#[test]
fn a_put_whose_client_is_killed_leaves_the_old_content_and_no_garbage() {
    for count in [1, 2] {
        let cluster = Cluster::new(count, "100MB");
        assert_eq!(cluster.put("note", &OLD), Some(0));
        for key in ["note", "new"] {
            let child = half_of(cluster.command(&["put", key]));
            signal(&child, Signal::KILL);
            assert_eq!(finish(child).signal, Some(9));
        }
        cluster.assert_holds("note", &OLD);
        let listed = cluster.command(&["ls"]).output().expect("it runs").stdout;
        assert_eq!(String::from_utf8_lossy(&listed), "default/note\n");
        assert_eq!(cluster.stop(), OLD.len() as u64, "{count} servers");
    }
}

#[test]
fn a_put_whose_server_is_killed_leaves_the_old_content_and_no_garbage() {
    for count in [1, 2] {
        for killed in 0..count {
            let mut cluster = Cluster::new(count, "100MB");
            assert_eq!(cluster.put("note", &OLD), Some(0));
            let children = ["note", "new"].map(|key| half_of(cluster.command(&["put", key])));
            let address = cluster.servers[killed].address.clone();
            // Dropped, it is killed.
            drop(cluster.servers.remove(killed));
            let started = Serving::start(&cluster.scenes[killed], &address);
            cluster.servers.insert(killed, started);
            for mut child in children {
                drop(child.stdin.take());
                let ran = finish(child);
                assert_eq!(ran.status, Some(11), "{ran:?}");
                assert!(ran.stderr.contains("nothing was changed"), "{ran:?}");
            }
            cluster.assert_holds("note", &OLD);
            let listed = cluster.command(&["ls"]).output().expect("it runs").stdout;
            assert_eq!(String::from_utf8_lossy(&listed), "default/note\n");
            assert_eq!(cluster.put("note", &[3; 5]), Some(0), "it goes on");
            cluster.assert_holds("note", &[3; 5]);
            assert_eq!(cluster.stop(), 5, "{count} servers");
        }
    }
}

#[test]
fn a_put_that_fills_the_servers_leaves_the_old_content_and_no_garbage() {
    for count in [1, 2] {
        let cluster = Cluster::new(count, "3MB");
        assert_eq!(cluster.put("note", &OLD), Some(0));
        let large = vec![1; 8_000_000];
        for key in ["note", "new"] {
            assert_eq!(cluster.put(key, &large), Some(4));
        }
        cluster.assert_holds("note", &OLD);
        assert_eq!(cluster.put("note", &[3; 900_000]), Some(0), "there is room again");
        cluster.assert_holds("note", &[3; 900_000]);
        assert_eq!(cluster.stop(), 900_000, "{count} servers");
    }
}
