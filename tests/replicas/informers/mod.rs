//! Informers of client-go and kube-rs, the libraries with which most Go and Rust programs watch
//! objects. The tests compare the store of each informer with a list of the operations, which are
//! the objects that the server under test serves.

mod client_go;
mod kube_rs;

pub use client_go::ClientGo;
pub use kube_rs::KubeRs;

use crate::harness::{Caller, OPERATION, eventually, ok_if, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Objects by `namespace/name`.
pub type Objects = BTreeMap<String, Value>;

/// The state of an informer, and facts from the events that the informer has delivered.
#[derive(Debug)]
pub struct InformerState {
    /// True if the informer has received the complete initial state.
    pub synced: bool,
    /// The objects in the store of the informer.
    pub store: Objects,
    /// The objects that result from the events that the informer has delivered.
    pub from_events: Objects,
    /// The UIDs of the objects whose deletion an event has reported.
    pub deleted_uids: BTreeSet<String>,
    /// Descriptions of violated guarantees, such as a resourceVersion that decreases.
    pub violations: Vec<String>,
}

/// An informer of one of the two libraries.
pub trait Informer {
    fn name(&self) -> &str;
    async fn state(&mut self) -> InformerState;
}

/// Returns the key of an object in [`Objects`].
pub fn key(object: &Value) -> String {
    let (namespace, name) = ("/metadata/namespace", "/metadata/name");
    format!("{}/{}", text(object, namespace), text(object, name))
}

/// Lists all operations.
pub async fn list_operations(admin: &Caller) -> Result<Objects, String> {
    let answer = admin.try_get(&OPERATION.path(None)).await?;
    ok_if(answer.code == 200, &answer)?;
    let items = answer.body["items"].as_array();
    let items = items.ok_or("the list has no items")?;
    Ok(items.iter().map(|it| (key(it), it.clone())).collect())
}

/// Compares the objects of a client, `held`, with the objects of a list, `listed`. If they differ,
/// returns an error that describes the differences. The error contains `what`, a name for the
/// client's objects.
pub fn compare(what: &str, held: &Objects, listed: &Objects) -> Result<(), String> {
    let keys: BTreeSet<&String> = held.keys().chain(listed.keys()).collect();
    let differences: Vec<String> = keys
        .into_iter()
        .filter(|key| held.get(*key) != listed.get(*key))
        .map(|key| match (held.get(key), listed.get(key)) {
            (Some(held), Some(listed)) => format!("{key}: {held}, but the list has {listed}"),
            (Some(_), None) => format!("{key}: no longer exists"),
            (None, _) => format!("{key}: is missing"),
        })
        .collect();
    ok_if(differences.is_empty(), (what, differences))
}

/// Waits until the store of an informer equals a list of the operations, and the objects from its
/// events equal this list, too.
pub async fn wait_until_state_correct(
    admin: &Caller,
    informer: &mut impl Informer,
) -> InformerState {
    let name = informer.name().to_owned();
    eventually(&format!("{name} has the listed operations"), async || {
        let listed = list_operations(admin).await?;
        let state = informer.state().await;
        ok_if(state.synced, "the informer is not synced")?;
        compare("the store", &state.store, &listed)?;
        compare("the state from the events", &state.from_events, &listed)?;
        Ok(state)
    })
    .await
}
