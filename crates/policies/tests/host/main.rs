// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Policies from outside, in shared libraries and in Python: the examples, libraries that misbehave, and the layout of structs.

mod binding;
mod build;
mod layout;
mod loading;
mod lru;
mod misbehaviour;
mod program;
mod tutorial;
mod world;
mod write_buffer;
