//! Informers of two libraries, which most programs see a cluster through, and the comparison
//! of their stores with a list.

mod client_go;
mod kube_rs;

pub use client_go::ClientGo;
pub use kube_rs::KubeRs;

use super::{Caller, OPERATION, eventually, so, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Objects by `namespace/name`.
pub type Objects = BTreeMap<String, Value>;

/// What an informer holds for true.
#[derive(Debug)]
pub struct Belief {
    /// Whether the initial state is there.
    pub synced: bool,
    /// The objects in its store.
    pub store: Objects,
    /// What its events alone amount to.
    pub told: Objects,
    /// Uids of the objects whose end was told by an event.
    pub deleted: BTreeSet<String>,
    /// Promises that were not kept, such as that no resourceVersion falls.
    pub broken: Vec<String>,
}

/// An informer of some library.
pub trait Informer {
    fn name(&self) -> &str;
    async fn belief(&mut self) -> Belief;
}

/// The key of an object in [`Objects`].
pub fn key(object: &Value) -> String {
    let (namespace, name) = ("/metadata/namespace", "/metadata/name");
    format!("{}/{}", text(object, namespace), text(object, name))
}

/// All operations, by a list.
pub async fn truth(admin: &Caller) -> Result<Objects, String> {
    let answer = admin.try_get(&OPERATION.path(None)).await?;
    so(answer.code == 200, &answer)?;
    let items = answer.body["items"].as_array();
    let items = items.ok_or("a list without items")?;
    Ok(items.iter().map(|it| (key(it), it.clone())).collect())
}

/// Where they differ, in short.
pub fn compare(what: &str, held: &Objects, truth: &Objects) -> Result<(), String> {
    let keys: BTreeSet<&String> = held.keys().chain(truth.keys()).collect();
    let differences: Vec<String> = keys
        .into_iter()
        .filter(|key| held.get(*key) != truth.get(*key))
        .map(|key| match (held.get(key), truth.get(key)) {
            (Some(held), Some(there)) => format!("{key}: {held} where {there} is"),
            (Some(_), None) => format!("{key}: is no more"),
            (None, _) => format!("{key}: is missing"),
        })
        .collect();
    so(differences.is_empty(), (what, differences))
}

/// Waits until an informer believes what is true, and has no complaints.
pub async fn agrees(admin: &Caller, informer: &mut impl Informer) -> Belief {
    let belief = agrees_at_last(admin, informer).await;
    assert_eq!(belief.broken, [""; 0], "{}", informer.name());
    belief
}

/// Waits until an informer believes what is true, whatever it was told before.
pub async fn agrees_at_last(admin: &Caller, informer: &mut impl Informer) -> Belief {
    let name = informer.name().to_owned();
    eventually(&format!("{name} holds what is there"), async || {
        let truth = truth(admin).await?;
        let belief = informer.belief().await;
        so(belief.synced, "it is not synced")?;
        compare("its store", &belief.store, &truth)?;
        compare("what it was told", &belief.told, &truth)?;
        Ok(belief)
    })
    .await
}
