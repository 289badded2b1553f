//! Informers of two libraries that most programs use, and the comparison of their stores with a
//! list.

mod client_go;
mod kube_rs;

pub use client_go::ClientGo;
pub use kube_rs::KubeRs;

use super::{Caller, OPERATION, eventually, so, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Objects by `namespace/name`.
pub type Objects = BTreeMap<String, Value>;

/// The state of an informer.
#[derive(Debug)]
pub struct Belief {
    /// True if the initial state is complete.
    pub synced: bool,
    /// The objects in its store.
    pub store: Objects,
    /// The state that results from its events.
    pub told: Objects,
    /// UIDs of the objects whose deletion was reported by an event.
    pub deleted: BTreeSet<String>,
    /// Violated guarantees, such as a resourceVersion that decreases.
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

/// Lists all operations.
pub async fn truth(admin: &Caller) -> Result<Objects, String> {
    let answer = admin.try_get(&OPERATION.path(None)).await?;
    so(answer.code == 200, &answer)?;
    let items = answer.body["items"].as_array();
    let items = items.ok_or("a list without items")?;
    Ok(items.iter().map(|it| (key(it), it.clone())).collect())
}

/// Describes the differences briefly.
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

/// Waits until the state of an informer is correct, and it has no violations.
pub async fn agrees(admin: &Caller, informer: &mut impl Informer) -> Belief {
    let belief = agrees_at_last(admin, informer).await;
    assert_eq!(belief.broken, [""; 0], "{}", informer.name());
    belief
}

/// Waits until the state of an informer is correct. Earlier violations are ignored.
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
