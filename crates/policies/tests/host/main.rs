// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Policies in shared libraries: the examples, libraries that misbehave, and the layout of structs.

mod binding;
mod build;
mod layout;
mod loading;
mod lru;
mod misbehaviour;
mod tutorial;
mod world;
mod write_buffer;
