// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where an item's record and its object are on different servers, each survives a loss of power for itself.

use std::sync::{Arc, Mutex};

use terrace_core::{Backend, BackendExt, Kv, Open, Result, Ticket};
use terrace_items::{Contents, NAMESPACE};
use terrace_server::{Call, Called, Caller, Kept, Openings, Service};
use terrace_store::Store;
use terrace_testkit::{KvLayer, Layered};

use crate::scene::Scene;

/// What was made durable of pairs.
#[derive(Default)]
pub(crate) struct Waits {
    /// Whether any item had its object each time.
    had_object: Mutex<Vec<bool>>,
    /// Of the stores with the objects.
    pub(crate) owners: Mutex<Vec<Store>>,
}

impl Waits {
    fn note(&self) {
        let has_object =
            |store: &Store| !store.list_all(NAMESPACE, "item/").expect("lists").is_empty();
        let had = self.owners.lock().expect("nobody panicked").iter().any(has_object);
        self.had_object.lock().expect("nobody panicked").push(had);
    }

    fn take(&self) -> Vec<bool> {
        std::mem::take(&mut *self.had_object.lock().expect("nobody panicked"))
    }
}

/// Serves a store, and notes when its pairs are made durable.
pub(crate) struct Noting {
    pub(crate) inner: Arc<dyn Service>,
    pub(crate) waits: Arc<Waits>,
}

struct Pairs {
    inner: Arc<dyn Kv>,
    waits: Arc<Waits>,
}

impl KvLayer for Pairs {
    fn inner(&self) -> &dyn Kv {
        &*self.inner
    }

    fn wait(&self, ticket: Ticket) -> Result<()> {
        self.inner.wait(ticket)?;
        self.waits.note();
        Ok(())
    }
}

impl Service for Noting {
    fn store_id(&self) -> u128 {
        self.inner.store_id()
    }

    fn openings(&self) -> Openings {
        self.inner.openings()
    }

    fn backend(&self) -> &dyn Backend {
        self.inner.backend()
    }

    fn kv(&self, namespace: &str) -> Result<Arc<dyn Kv>> {
        let (inner, waits) = (self.inner.kv(namespace)?, Arc::clone(&self.waits));
        Ok(Arc::new(Layered(Pairs { inner, waits })))
    }

    fn files(&self, namespace: &str, kept: &Kept, request: &[u8]) -> Result<Vec<u8>> {
        self.inner.files(namespace, kept, request)
    }

    fn ends(&self) {
        self.inner.ends();
    }

    fn call(&self, call: &Call<'_>, caller: &mut dyn Caller) -> Result<Called> {
        self.inner.call(call, caller)
    }
}

#[test]
fn a_record_is_gone_for_good_before_its_object_on_another_server_is() {
    let waits = Arc::new(Waits::default());
    let scene = Scene::noting(&waits);
    let climate = scene.collection("climate");
    for name in ["deleted", "by its object", "with all"] {
        climate.open(name, &Open::create_new()).expect("made");
    }
    waits.take();
    climate.delete("deleted").expect("deletes");
    assert_eq!(waits.take(), [true]);
    let object = climate.status("by its object").expect("there").object;
    climate.delete_object(&object).expect("deletes");
    assert_eq!(waits.take(), [true]);
    scene.items.delete("climate", Contents::Delete).expect("deletes");
    assert!(matches!(waits.take()[..], [true, ..]));
}
