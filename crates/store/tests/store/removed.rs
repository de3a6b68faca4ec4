// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that lose their names before a server that was started again hears that they are open.

use std::sync::Arc;

use terrace_fs::{
    Closed, Kind, Left, Made, Metadata, ROOT, RenameHow, Reply, Request, Result, TreeOptions,
};

use crate::scene::Scene;

const NAME: &str = "files";

type Client = Arc<dyn Metadata>;

fn make(client: &Client, name: &[u8]) -> u64 {
    let made = Made { kind: Kind::File, permissions: 0o644, ..Made::default() };
    match client.call(&Request::Make { directory: ROOT, name, made }) {
        Ok(Reply::Made { node, .. }) => node.number,
        other => panic!("{other:?}"),
    }
}

/// How a file loses its name.
type Way = fn(&Client) -> Result<Reply>;

const WAYS: [Way; 2] = [
    |client| client.call(&Request::Remove { directory: ROOT, name: b"file", is_directory: false }),
    |client| {
        client.call(&Request::Rename {
            from_directory: ROOT,
            from: b"other",
            to_directory: ROOT,
            to: b"file",
            how: RenameHow::default(),
            user: 0,
            group: 0,
        })
    },
];

/// Has a server started again that hears of the removal of an open file first.
fn check(way: Way, removes_itself: bool) {
    let scene = Scene::new();
    let mut attached = scene.attached();
    attached.create_files(NAME, &TreeOptions::default()).expect("there is none");
    let second = scene.open();
    let [holder, other] =
        [&*attached, &second].map(|store| store.files(NAME).expect("it is there"));
    let number = make(&holder, b"file");
    make(&holder, b"other");
    let data = b"bytes";
    let write = Request::Write { number, offset: 0, data, at_end: false, clears_set_id: false };
    holder.call(&write).expect("it is small");
    holder.call(&Request::Open { number, is_for_writing: false }).expect("it is there");

    attached.restart(&scene);
    way(if removes_itself { &holder } else { &other }).expect("the name is there");
    let content = holder.call(&Request::Content { number });
    let Ok(Reply::Opened { node, content }) = content else { panic!("{content:?}") };
    assert_eq!((node.links, &content[..]), (0, &data[..]));
    // It is open there now, and not only kept.
    let closed = vec![Closed { number, is_for_writing: false, left: Left::Unknown }];
    let close = Request::Close { closed, read: Vec::new(), id: 1, acknowledged: 1 };
    holder.call(&close).expect("it is open");
}

#[test]
fn a_file_whose_removal_a_server_hears_of_before_it_hears_that_it_is_open_is_kept() {
    WAYS.iter().for_each(|way| [true, false].iter().for_each(|itself| check(*way, *itself)));
}
