// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that are closed while the server does not answer.

use terrace_fs::{Closed, Kind, Left, Made, Metadata, ROOT, Reply, Request, TreeOptions};

use crate::scene::Scene;

const NAME: &str = "files";

fn close(metadata: &dyn Metadata, id: u64, number: u64) -> terrace_fs::Result<Reply> {
    let closed = vec![Closed { number, is_for_writing: false, left: Left::Unknown }];
    metadata.call(&Request::Close { closed, read: Vec::new(), id, acknowledged: id })
}

#[test]
fn what_was_opened_with_a_server_that_ended_is_not_closed_with_the_next() {
    let scene = Scene::new();
    let mut attached = scene.attached();
    attached.create_files(NAME, &TreeOptions::default()).expect("there is none");
    let metadata = attached.files(NAME).expect("it is there");
    let made = Made { kind: Kind::File, permissions: 0o644, ..Made::default() };
    let made = metadata.call(&Request::Make { directory: ROOT, name: b"file", made });
    let Ok(Reply::Made { node, .. }) = made else { panic!("{made:?}") };
    let open = Request::Open { number: node.number, is_for_writing: false };
    metadata.call(&open).expect("it is there");

    attached.stop();
    let failure = close(&*metadata, 1, node.number).expect_err("nobody answers");
    assert!(failure.may_pass(), "{failure}");
    attached.start(&scene);
    // Only this is open with the next server.
    metadata.call(&open).expect("it is there");
    assert_eq!(close(&*metadata, 1, node.number), Ok(Reply::Numbers(Vec::new())), "told again");
    assert_eq!(close(&*metadata, 2, node.number), Ok(Reply::Numbers(Vec::new())), "still open");
    close(&*metadata, 3, node.number).expect_err("it was open once");
}
