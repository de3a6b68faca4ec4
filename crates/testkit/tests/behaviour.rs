// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulated disk keeps the promises of `Backend` and `Object`, as real ones do.

use terrace_testkit::{SimWorld, behaviour_suite};

behaviour_suite!(simulated, {
    let world = SimWorld::new();
    let tier = world.tier("disk", 64 << 20);
    (tier.open(), (world, tier))
});
