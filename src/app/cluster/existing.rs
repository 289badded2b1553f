//! Reports to the leader which namespaces and nodes exist, so that each of them has an activity. (An
//! activity tells whether a part of the cluster is idle.)

use futures::StreamExt as _;
use ifo_api::Text;
use ifo_engine::track::{Existing, Message};
use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

/// Watches the objects of the kind `K`, which are namespaces or nodes, and reports them to the
/// tracker. `all` creates the report of all names, and `one` the report of a name that begins or
/// ceases to exist. Runs until the leadership term ends.
///
/// If the server may not list the objects, this function reports nothing. Then a namespace or a node
/// has an activity only while operations are in flight there.
pub(super) async fn report_existing<K>(
    client: Client,
    tracker: mpsc::Sender<Message>,
    all: fn(Vec<Text>) -> Existing,
    one: fn(Text, bool) -> Existing,
) where
    K: Resource<DynamicType = ()>
        + Metadata<Ty = ObjectMeta>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let api: Api<PartialObjectMeta<K>> = Api::all(client);
    let mut listed = Vec::new();
    let mut events = watcher(api, watcher::Config::default())
        .default_backoff()
        .boxed();
    while let Some(event) = events.next().await {
        let name = |object: &PartialObjectMeta<K>| Text::from(object.name_any());
        let existing = match event {
            Ok(Event::Init) => {
                listed.clear();
                continue;
            }
            Ok(Event::InitApply(object)) => {
                listed.push(name(&object));
                continue;
            }
            Ok(Event::InitDone) => all(std::mem::take(&mut listed)),
            Ok(Event::Apply(object)) => one(name(&object), true),
            Ok(Event::Delete(object)) => one(name(&object), false),
            Err(error) => {
                let kind = K::kind(&());
                tracing::debug!(%kind, %error, "objects cannot be watched for their activities");
                continue;
            }
        };
        if tracker.send(Message::Existing(existing)).await.is_err() {
            return;
        }
    }
}
