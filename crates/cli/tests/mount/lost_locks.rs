// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client that is away while its server forgets it, and another client gets its lock: nothing that it
//! writes under that lock comes to the file any more.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use serde_json::json;

use crate::holder::Holder;
use crate::scene::{Scene, Served};

/// Kept with the metadata, and kept as an object.
const SIZES: [usize; 2] = [1000, 300_000];

/// How a whole file is locked: as the holder of files calls it, and as it is done here.
type Lock = (&'static str, fn(&File, FlockOperation) -> rustix::io::Result<()>);

const LOCKS: [Lock; 2] =
    [("flock", |file, how| flock(file, how)), ("fcntl", |file, how| fcntl_lock(file, how))];

#[test]
fn nothing_is_done_under_a_lock_that_another_client_has_got() {
    let Some(scene) = Scene::new() else { return };
    let mut served = Served::start(&scene);
    let mut one = scene.mount_all_patient(&[&served], "one", &[]);
    let mut other = scene.mount_all_patient(&[&served], "other", &[]);
    let mut holder = Holder::start();
    let cases = SIZES.iter().flat_map(|size| LOCKS.map(|lock| (*size, lock)));
    for (round, (size, (how, lock))) in cases.enumerate() {
        let name = format!("file{round}");
        let path = one.path().join(&name);
        holder.ok(json!(["open", "loser", path]));
        holder.ok(json!(["open", "reader", path]));
        holder.ok(json!(["write", "loser", b'0', size, 0]));
        holder.ok(json!(["sync", "loser"]));
        holder.ok(json!(["lock", "loser", how]));

        one.set_silent(true);
        served.kill_and_restart(&scene);
        let winner = File::options().write(true).open(other.path().join(&name)).expect("opens");
        lock(&winner, FlockOperation::LockExclusive).expect("nobody else is there");
        winner.write_all_at(&vec![b'B'; size], 0).expect("written");
        winner.sync_all().expect("synced");
        one.set_silent(false);

        for _ in 0..2 {
            holder.refused(json!(["write", "loser", b'C', size / 2, 100]));
        }
        holder.refused(json!(["sync", "loser"]));
        holder.refused(json!(["truncate", "loser", 10]));
        for file in ["loser", "reader"] {
            holder.refused(json!(["read", file]));
        }
        let found = fs::read(other.path().join(&name)).expect("read");
        assert!(found == vec![b'B'; size], "{size}: what the holder of the lock wrote");

        drop(winner);
        if round % 2 == 0 {
            // It asks for the lock anew, and goes on.
            holder.ok(json!(["lock", "loser", how]));
            holder.ok(json!(["write", "loser", b'C', 1, 0]));
            holder.ok(json!(["close", "loser"]));
            holder.ok(json!(["close", "reader"]));
        } else {
            // With that it gives the lock back.
            holder.refused(json!(["close", "loser"]));
            holder.ok(json!(["close", "reader"]));
        }
        // All who had the file open have closed it.
        let again = File::options().write(true).open(&path).expect("opens");
        again.write_all_at(b"D", 0).expect("written");
        again.sync_all().expect("synced");
    }
    drop(holder);
    one.unmount();
    other.unmount();
}
