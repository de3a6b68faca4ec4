// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collections and items as applications meet them: over a store of their own, one that is
//! attached, one behind a server and one over two; stopped at every step, and by several at once.

mod crash;
mod durable;
mod leftovers;
mod race;
mod same;
mod scene;
mod stop;
