//! Looks up resources in the discovery API of a cluster, and reports when an earlier result may
//! have changed.
//!
//! When a resource is no longer served, the operations on its objects end. So a wrong answer "not
//! served" would end operations. A resource counts as not served only if the kube-apiserver gives
//! this answer twice. Between the two answers, this module requests `/readyz`. If the
//! kube-apiserver is not ready, the result is [`Resolution::Unknown`].

use super::{
    Connection, GapReason, Resolve,
    requests::{self, Refusal},
};
use futures::{
    FutureExt as _, Stream, StreamExt as _,
    future::{BoxFuture, ready},
    stream::{self, BoxStream},
};
use ifo_api::{Gvr, Resolution};
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::{APIGroupList, APIResource, APIResourceList},
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{
    Api, Client,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use std::{fmt, time::Duration};
use tokio::time::{sleep, timeout};
use tracing::debug;

/// All changes within this time after the first change are reported together. For example, the
/// installation of an operator creates dozens of CRDs.
const COALESCE_PERIOD: Duration = Duration::from_millis(300);

/// Delay after which a report is repeated, if no further change has arrived. The kube-apiserver
/// updates discovery some time after the change of a CRD, so a lookup at once can be too early.
const SECOND_REPORT_DELAY: Duration = Duration::from_secs(3);

/// Looks up resources in the discovery of a cluster.
pub struct Discovery {
    client: Client,
    /// A client without retries. So if the kube-apiserver answers with 429, 503 or 504, the lookup
    /// fails at once.
    lookup_client: Client,
}

impl fmt::Debug for Discovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Discovery").finish_non_exhaustive()
    }
}

/// Returns a hint if `name` is the kind or the singular of one of `resources`, such as
/// ` (hint: write the plural: cows)`. Otherwise returns an empty text.
fn plural_hint(resources: &[APIResource], name: &str) -> String {
    let is_meant = |it: &&APIResource| {
        !it.name.contains('/') && (it.singular_name == name || it.kind.eq_ignore_ascii_case(name))
    };
    let meant = resources.iter().find(is_meant);
    meant
        .map(|it| format!(" (hint: write the plural: {})", it.name))
        .unwrap_or_default()
}

fn not_served(message: String, group_served: bool) -> Resolution {
    Resolution::NotServed {
        message,
        group_served,
        similar_group: None,
    }
}

impl Discovery {
    /// Creates a `Discovery` that uses `connection`.
    pub fn new(connection: &Connection) -> Self {
        Self {
            client: connection.client.clone(),
            lookup_client: connection.watch_client(),
        }
    }

    async fn look_up(&self, gvr: &Gvr) -> Resolution {
        let path = match requests::group_version_path(gvr) {
            Ok(path) => path,
            Err(message) => return not_served(message, true),
        };
        let first = self.ask(&path, gvr).await;
        if !matches!(first, Resolution::NotServed { .. }) {
            return first;
        }
        // A starting kube-apiserver answers before it has read all CRDs. So the first answer "not
        // served" does not count. If the kube-apiserver is ready, the second answer counts. If
        // `/readyz` is forbidden or missing, the kube-apiserver counts as ready.
        match requests::read(&self.lookup_client, "/readyz").await {
            Err(Refusal::Lost(lost, _)) if !is_answer(&lost) => Resolution::Unknown {
                message: format!("the API server is not ready (/readyz: {lost})"),
            },
            _ => {
                let second = self.ask(&path, gvr).await;
                self.with_similar_group(gvr, second).await
            }
        }
    }

    async fn ask(&self, path: &str, gvr: &Gvr) -> Resolution {
        let body = match requests::read(&self.lookup_client, path).await {
            Ok(body) => body,
            Err(Refusal::Lost(GapReason::Refused { code: 404, .. }, _)) => {
                return self.ask_group(gvr).await;
            }
            Err(refusal) => return unknown(refusal),
        };
        let resources = match serde_json::from_slice::<APIResourceList>(&body) {
            Ok(list) => list.resources,
            Err(error) => {
                let message = format!("discovery of {path}: {error}");
                return Resolution::Unknown { message };
            }
        };
        let Some(found) = resources.iter().find(|it| it.name == gvr.resource) else {
            let hint = plural_hint(&resources, &gvr.resource);
            let (version, resource) = (gvr.api_version(), &gvr.resource);
            return not_served(format!("{version} has no resource {resource}{hint}"), true);
        };
        if ["list", "watch"]
            .iter()
            .all(|verb| found.verbs.iter().any(|it| it == verb))
        {
            Resolution::Served {
                kind: found.kind.clone(),
                namespaced: found.namespaced,
            }
        } else {
            not_served(format!("{gvr} cannot be listed and watched"), true)
        }
    }

    /// Returns the result after the cluster has answered with 404 to a request for the
    /// group-version of `gvr`. This method asks if the cluster serves the API group in another
    /// version. The message of the result contains the answer.
    async fn ask_group(&self, gvr: &Gvr) -> Resolution {
        // The core group has no discovery document at `/apis/GROUP`, and every cluster serves the
        // core group.
        if !gvr.group.is_empty() {
            match requests::read(&self.lookup_client, &format!("/apis/{}", gvr.group)).await {
                Ok(_) => {}
                Err(Refusal::Lost(GapReason::Refused { code: 404, .. }, _)) => {
                    let message = format!("the cluster does not serve the API group {}", gvr.group);
                    return not_served(message, false);
                }
                Err(refusal) => return unknown(refusal),
            }
        }
        not_served(format!("{} is not served", gvr.api_version()), true)
    }

    /// Adds the served API group whose name is similar to a missing API group. If the served groups
    /// cannot be read, `resolution` does not change, because the hint is not necessary.
    async fn with_similar_group(&self, gvr: &Gvr, mut resolution: Resolution) -> Resolution {
        if let Resolution::NotServed {
            group_served: false,
            similar_group,
            ..
        } = &mut resolution
            && let Ok(body) = requests::read(&self.lookup_client, "/apis").await
            && let Ok(served) = serde_json::from_slice::<APIGroupList>(&body)
        {
            let served = served.groups.iter().map(|group| group.name.as_str());
            *similar_group = ifo_client::similar_group(&gvr.group, served).map(str::to_owned);
        }
        resolution
    }
}

/// Returns true if an API server that is ready can refuse `/readyz` for this reason.
fn is_answer(lost: &GapReason) -> bool {
    matches!(
        lost,
        GapReason::Refused {
            code: 401 | 403 | 404,
            ..
        }
    )
}

/// Returns [`Resolution::Unknown`] with the reason why the request failed.
fn unknown(refusal: Refusal) -> Resolution {
    let message = match refusal {
        Refusal::Lost(lost, _) => lost.to_string(),
        Refusal::Invalid(message) => message,
        Refusal::Expired => "410 Gone".to_owned(),
    };
    Resolution::Unknown { message }
}

impl Resolve for Discovery {
    fn resolve<'a>(&'a self, gvr: &'a Gvr) -> BoxFuture<'a, Resolution> {
        self.look_up(gvr).boxed()
    }

    fn resolution_changes(&self) -> BoxStream<'static, ()> {
        let crds = changes_of::<CustomResourceDefinition>(&self.client);
        let services = changes_of::<APIService>(&self.client);
        coalesce(stream::select(crds, services)).boxed()
    }
}

/// Returns a stream that yields a value when an object of kind `K` changes. After an interruption of
/// the watch, the stream yields a value at the end of the new list, because objects may have changed
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
    let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
    events.filter_map(|event| {
        let is_change = match event {
            Ok(Event::Init | Event::InitApply(_)) => false,
            Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)) => true,
            Err(error) => {
                debug!(kind = %K::kind(&()), %error, "changes cannot be watched");
                false
            }
        };
        ready(is_change.then_some(()))
    })
}

/// Merges changes that arrive within [`COALESCE_PERIOD`] into one report. Repeats the report after
/// [`SECOND_REPORT_DELAY`], if no further change arrives in this time.
fn coalesce(changes: impl Stream<Item = ()> + Send + 'static) -> impl Stream<Item = ()> + Send {
    let state = (changes.boxed(), false);
    stream::unfold(state, |(mut changes, is_repeat_due)| async move {
        let first = changes.next();
        if !is_repeat_due {
            first.await?;
        } else if timeout(SECOND_REPORT_DELAY, first).await.is_err() {
            return Some(((), (changes, false)));
        }
        let more = changes.by_ref().take_until(sleep(COALESCE_PERIOD));
        more.for_each(|()| ready(())).await;
        Some(((), (changes, true)))
    })
}

#[cfg(test)]
#[path = "discovery_tests.rs"]
mod tests;
