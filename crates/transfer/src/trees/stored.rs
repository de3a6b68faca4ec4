// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What files of the store have beside their bytes.

use terrace_fs::{Files, Node, Reply, Request, Result};

use super::local::Attributes;

/// The extended attributes of a file; asks nothing where it has none.
pub(super) fn attributes(files: &Files, node: &Node) -> Result<Attributes> {
    let (mut attributes, number) = (Attributes::new(), node.number);
    if !node.has_xattrs {
        return Ok(attributes);
    }
    let metadata = files.metadata();
    let Reply::Bytes(names) = metadata.call(&Request::Xattrs { number })? else {
        return Ok(attributes);
    };
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if let Reply::Bytes(value) = metadata.call(&Request::Xattr { number, name })? {
            attributes.insert(name.to_vec(), value);
        }
    }
    Ok(attributes)
}
