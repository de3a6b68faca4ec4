// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The behaviour of every backend.

mod behaviour;
mod faulty;
mod file;
mod framed;
mod kv;
mod kv_files;
mod memory;
mod opendal;
mod prefix;
mod real_webdav;
mod registry;
mod s3;
mod throttle;
