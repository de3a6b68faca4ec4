// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store is a backend, whichever process owns it.

use terrace_testkit::behaviour_suite;

use crate::scene::Scene;

behaviour_suite!(owned, {
    let scene = Scene::new();
    (Box::new(scene.open()), scene)
});

behaviour_suite!(attached, {
    let scene = Scene::new();
    (scene.attached(), scene)
});
