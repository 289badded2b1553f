//! Looks up resources in the discovery API of a cluster, and reports when an earlier result may
//! have changed.
//!
//! Aggregated discovery contains all resources of the cluster, so one look-up of any number of
//! resources needs three requests, or four if the user may not read `/readyz`.
//!
//! When a resource is no longer served, the operations on its objects end. So a wrong answer "not
//! served" would end operations. A starting kube-apiserver answers before it has read all CRDs. So
//! this module first requests `/readyz`. If the kube-apiserver is not ready, the results are
//! [`Resolution::Unknown`].

use super::{Connection, GapReason, Resolve, ResolvedTarget, requests::Failure};
use futures::{
    FutureExt as _, Stream, StreamExt as _,
    future::{BoxFuture, ready},
    stream::{self, BoxStream},
};
use ifo_api::{Gvr, Resolution};
use ifo_client::{backoff::WatchBackoff, error_text::chain};
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{
    Api, Client,
    core::{
        PartialObjectMeta,
        discovery::v2::{APIGroupDiscovery, APIResourceDiscovery},
    },
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use std::{fmt, sync::Arc, time::Duration};
use tokio::time::sleep;
use tracing::warn;

/// Delay after which the report of a change is repeated. The kube-apiserver updates discovery some time
/// after the change of a CRD, so a lookup at once can be too early.
const SECOND_REPORT_DELAY: Duration = Duration::from_secs(3);

/// The verbs that a watched resource must have.
const WATCHED: [&str; 2] = ["list", "watch"];

/// Looks up resources in the discovery of a cluster.
pub struct Discovery {
    /// A client without retries. So if the kube-apiserver answers with 429, 503 or 504, the lookup
    /// fails at once.
    client: Client,
}

impl Discovery {
    /// Creates a `Discovery` that uses `connection`.
    pub fn new(connection: &Connection) -> Self {
        Self {
            client: connection.without_retries(),
        }
    }
}

/// Checks whether the kube-apiserver is ready. Returns false if the user may not read `/readyz`, or
/// if the kube-apiserver does not serve it. Returns a message if the kube-apiserver is not ready.
async fn reads_readiness(client: &Client) -> Result<bool, String> {
    let readyz = http::Request::get("/readyz").body(Vec::new());
    let readyz = readyz.expect("the path is valid");
    match client.request_text(readyz).await.map_err(Failure::from) {
        Ok(_) => Ok(true),
        Err(Failure::Lost(GapReason::Refused {
            code: 401 | 403 | 404,
            ..
        })) => Ok(false),
        Err(failure) => {
            let why = text_of(failure);
            Err(format!("the API server is not ready (/readyz: {why})"))
        }
    }
}

/// Reads all API groups with their resources. Returns a message if this fails.
async fn read_groups(client: &Client) -> Result<Vec<APIGroupDiscovery>, String> {
    let reads_readiness_before = reads_readiness(client).await?;
    let mut groups = Vec::new();
    for (path, read) in [
        ("/api", client.list_core_api_versions_aggregated().await),
        ("/apis", client.list_api_groups_aggregated().await),
    ] {
        let list = read.map_err(|error| match error {
            kube::Error::SerdeError(error) => format!("discovery of {path}: {error}"),
            error => text_of(error.into()),
        })?;
        // Discovery that is not aggregated has no field `items`.
        if list.items.is_empty() {
            return Err(format!("discovery of {path}: no API groups"));
        }
        groups.extend(list.items);
    }
    // A kube-apiserver that starts refuses all requests until it has read RBAC. At this time,
    // discovery can lack CRDs. If `/readyz` is still refused now, the user never has the right to
    // read it, and the kube-apiserver counts as ready.
    if !reads_readiness_before && reads_readiness(client).await? {
        return Err("the API server has just started".to_owned());
    }
    Ok(groups)
}

fn text_of(failure: Failure) -> String {
    match failure {
        Failure::Lost(why) => why.to_string(),
        Failure::Expired => "410 Gone".to_owned(),
    }
}

/// Looks up a resource among the API groups of the cluster.
fn resolution(groups: &[APIGroupDiscovery], gvr: &Gvr) -> Resolution {
    fn name(group: &APIGroupDiscovery) -> &str {
        // The core group has no name.
        group
            .metadata
            .as_ref()
            .map_or("", |it| text(it.name.as_ref()))
    }
    let Some(group) = groups.iter().find(|group| name(group) == gvr.group) else {
        let similar = ifo_client::similar_group(&gvr.group, groups.iter().map(name));
        return Resolution::NotServed {
            message: format!("the cluster does not serve the API group {}", gvr.group),
            group_served: false,
            similar_group: similar.map(str::to_owned),
        };
    };
    let not_served = |message| Resolution::NotServed {
        message,
        group_served: true,
        similar_group: None,
    };
    let (api_version, resource) = (gvr.api_version(), &gvr.resource);
    let mut versions = group.versions.iter();
    let Some(version) = versions.find(|it| text(it.version.as_ref()) == gvr.version) else {
        let served = group.versions.iter().map(|it| text(it.version.as_ref()));
        let served = served.collect::<Vec<_>>().join(", ");
        let message = format!("{api_version} is not served (served versions: {served})");
        return not_served(message);
    };
    let find = |is_it: &dyn Fn(&APIResourceDiscovery) -> bool| {
        version.resources.iter().find(|it| is_it(it))
    };
    match find(&|it| text(it.resource.as_ref()) == resource) {
        Some(found)
            if WATCHED
                .iter()
                .all(|verb| found.verbs.iter().any(|it| it == verb)) =>
        {
            Resolution::Served {
                kind: kind(found).to_owned(),
                namespaced: text(found.scope.as_ref()) == "Namespaced",
            }
        }
        Some(_) => not_served(format!("{gvr} cannot be listed and watched")),
        // The API server of this group-version does not answer, so the list may be incomplete.
        None if text(version.freshness.as_ref()) == "Stale" => Resolution::Unknown {
            message: format!("the API server of {api_version} does not answer"),
        },
        None => {
            let is_meant = |it: &APIResourceDiscovery| {
                text(it.singular_resource.as_ref()) == resource
                    || kind(it).eq_ignore_ascii_case(resource)
            };
            let hint = find(&is_meant).map_or_else(String::new, |meant| {
                format!(
                    " (hint: write the plural: {})",
                    text(meant.resource.as_ref())
                )
            });
            not_served(format!("{api_version} has no resource {resource}{hint}"))
        }
    }
}

fn text(text: Option<&String>) -> &str {
    text.map_or("", String::as_str)
}

fn kind(resource: &APIResourceDiscovery) -> &str {
    let kind = resource.response_kind.as_ref();
    kind.map_or("", |it| text(it.kind.as_ref()))
}

impl Resolve for Discovery {
    fn resolve(&self, targets: Vec<Arc<Gvr>>) -> BoxFuture<'static, Vec<ResolvedTarget>> {
        let client = self.client.clone();
        async move {
            let groups = read_groups(&client).await;
            let resolve = |target: Arc<Gvr>| match &groups {
                Ok(groups) => (target.clone(), resolution(groups, &target)),
                Err(message) => {
                    let message = message.clone();
                    (target, Resolution::Unknown { message })
                }
            };
            targets.into_iter().map(resolve).collect()
        }
        .boxed()
    }

    fn resolution_changes(&self) -> BoxStream<'static, ()> {
        let crds = changes_of::<CustomResourceDefinition>(&self.client);
        let services = changes_of::<APIService>(&self.client);
        repeated(stream::select(crds, services)).boxed()
    }
}

/// Returns a stream that yields a value when an object of kind `K` changes. Also yields a value
/// when the watch lists all objects again after an interruption, because objects may have changed
/// during the interruption.
fn changes_of<K>(client: &Client) -> impl Stream<Item = ()> + Send + use<K>
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + DeserializeOwned
        + fmt::Debug
        + Send
        + Sync
        + 'static,
{
    // Only metadata is read, because the schemas in CRDs are large and not needed.
    let api: Api<PartialObjectMeta<K>> = Api::all(client.clone());
    let events = watcher::watcher(api, watcher::Config::default());
    let events = events.backoff(WatchBackoff::default());
    let mut is_failing = false;
    events.filter_map(move |event| {
        match &event {
            Err(error) if !is_failing => {
                is_failing = true;
                warn!(kind = %K::kind(&()), error = chain(error), "changes cannot be watched");
            }
            Ok(Event::InitDone) => is_failing = false,
            _ => {}
        }
        let is_change = matches!(
            event,
            Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_))
        );
        ready(is_change.then_some(()))
    })
}

/// Reports each change at once, and again after [`SECOND_REPORT_DELAY`].
fn repeated(changes: impl Stream<Item = ()> + Send + 'static) -> impl Stream<Item = ()> + Send {
    let twice = |()| {
        stream::iter([Duration::ZERO, SECOND_REPORT_DELAY])
            .then(sleep)
            .boxed()
    };
    changes.flat_map_unordered(None, twice)
}

#[cfg(test)]
#[path = "discovery_tests.rs"]
mod tests;
