// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program as its users run it.

mod data;
mod group;
mod items;
mod program;
