//! Answers from an `Activity`, for the goal `idle`: an activity states whether anything is in flight
//! in a namespace, on a node, in a component or in the cluster. So the command need not list
//! operations.

use super::WaitArgs;
use super::wait_loop::{Changes, RETRY_INTERVAL};
use super::wait_state::WaitGoal;
use crate::api_client::ApiClient;
use crate::filter::{FilterValue, Filters};
use futures::StreamExt as _;
use ifo_api::activity::{ActivityStatus, KIND, PLURAL};
use ifo_api::{LIVE_GROUP, VERSION, labels};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams, WatchParams};
use kube::core::GroupVersionKind;

/// Reads and watches the activity that is about exactly the selected operations.
pub(super) struct ActivityReader<'a> {
    server: &'a ApiClient,
    api: Api<DynamicObject>,
    /// The field selector.
    fields: String,
}

impl<'a> ActivityReader<'a> {
    /// Returns None if no activity is about exactly the operations that the flags select.
    pub(super) fn of(server: &'a ApiClient, args: &WaitArgs, filters: &Filters) -> Option<Self> {
        let settings = args.settings;
        let ignores =
            settings.ignore_failing || settings.ignore_blocked || !args.ignored.is_empty();
        if settings.goal != WaitGoal::Idle || ignores || filters.selector.is_some() {
            return None;
        }
        let fields = match filters.values().as_slice() {
            [] => "metadata.name=cluster".to_owned(),
            [FilterValue::Node(node)] => format!("metadata.name=node.{node}"),
            [FilterValue::Component(name)] if labels::is_value(name) => {
                format!("metadata.name=component.{name}")
            }
            // The namespace of the activity `cluster` also has the operations on cluster-scoped
            // objects, which `-n` does not select. Without a selector, [`Self::read`] finds several
            // activities there, and returns None.
            [FilterValue::Namespace(_)] => String::new(),
            _ => return None,
        };
        let kind = GroupVersionKind::gvk(LIVE_GROUP, VERSION, KIND);
        let resource = ApiResource::from_gvk_with_plural(&kind, PLURAL);
        let client = server.client.clone();
        let api = match &filters.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            // The namespace of the other activities is a setting of the server.
            None => Api::all_with(client, &resource),
        };
        Some(Self {
            server,
            api,
            fields,
        })
    }

    /// Reads the activity. Also returns the resourceVersion of the answer. Returns None if there is no
    /// such activity, or if it cannot be read.
    pub(super) async fn read(&self) -> Option<(ActivityStatus, String)> {
        let params = ListParams::default().fields(&self.fields).limit(2);
        let found = self
            .server
            .within(self.api.list(&params))
            .await
            .ok()?
            .ok()?;
        let [activity] = <[DynamicObject; 1]>::try_from(found.items).ok()?;
        let status = serde_json::from_value(activity.data.get("status")?.clone());
        Some((status.ok()?, found.metadata.resource_version?))
    }

    /// Returns a stream with an item for each change after the resourceVersion `version`. If the watch
    /// fails, there is an item after a second, so that the caller reads the activity again.
    pub(super) async fn watch(&self, version: &str) -> Changes {
        let params = WatchParams::default().fields(&self.fields);
        let watch = self.api.watch(&params, version).await;
        let events = futures::stream::iter(watch).flatten();
        let failure = futures::stream::once(tokio::time::sleep(RETRY_INTERVAL));
        events
            .take_while(|event| std::future::ready(event.is_ok()))
            .map(|_| ())
            .chain(failure)
            .map(|()| Ok(None))
            .boxed()
    }
}
