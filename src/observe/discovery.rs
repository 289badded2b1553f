//! Looks up resources in the discovery API of a cluster, and reports when an earlier result may
//! have changed.
//!
//! When a resource is no longer served, the operations on its objects end. So a wrong answer "not
//! served" would end operations. A resource counts as not served only if the kube-apiserver gives
//! this answer twice. Between the two answers, this module requests `/readyz`. If the
//! kube-apiserver is not ready, the result is [`Resolution::Unknown`].

use super::{
    Connection, GapReason, Resolve,
    apiserver_requests::{self, ReadError, Refusal},
    connection::WatchClient,
};
use bytes::Bytes;
use futures::{
    FutureExt as _, Stream, StreamExt as _,
    future::{self, BoxFuture},
    stream::{self, BoxStream},
};
use ifo_api::{Gvr, Resolution};
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
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
use serde::{Deserialize, de::DeserializeOwned};
use std::{fmt, time::Duration};
use tokio::time::{Instant, sleep, timeout_at};
use tracing::debug;

/// Maximum size in bytes of the resource list of a group-version. If a list is larger, the result
/// of the lookup is [`Resolution::Unknown`]. The largest lists have about 100 KiB.
const MAX_DISCOVERY: usize = 4 << 20;

/// All changes within this time after the first change are reported together. For example, the
/// installation of an operator creates dozens of CRDs.
const COALESCE_PERIOD: Duration = Duration::from_millis(300);

/// Delay after which a report is repeated, if no further change has arrived. The kube-apiserver
/// updates discovery some time after the change of a CRD, so a lookup at once can be too early.
const SECOND_REPORT_DELAY: Duration = Duration::from_secs(3);

/// Looks up resources in the discovery of a cluster.
pub struct Discovery {
    client: Client,
    watch_client: WatchClient,
    retry_interval: Duration,
}

impl fmt::Debug for Discovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Discovery").finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct ResourceList {
    #[serde(default)]
    resources: Option<Vec<DiscoveredResource>>,
}

#[derive(Deserialize)]
struct DiscoveredResource {
    name: String,
    kind: String,
    #[serde(default, rename = "singularName")]
    singular_name: String,
    #[serde(default)]
    namespaced: bool,
    #[serde(default)]
    verbs: Option<Vec<String>>,
}

/// The list of API groups at `/apis`.
#[derive(Deserialize)]
struct GroupList {
    groups: Vec<DiscoveredGroup>,
}

#[derive(Deserialize)]
struct DiscoveredGroup {
    name: String,
}

/// Returns a hint if `name` is the kind or the singular of one of `resources`, such as
/// ` (hint: write the plural: cows)`. Otherwise returns an empty text.
fn plural_hint(resources: &[DiscoveredResource], name: &str) -> String {
    let is_meant = |it: &&DiscoveredResource| {
        !it.name.contains('/') && (it.singular_name == name || it.kind.eq_ignore_ascii_case(name))
    };
    let meant = resources.iter().find(is_meant);
    meant
        .map(|it| format!(" (hint: write the plural: {})", it.name))
        .unwrap_or_default()
}

impl Discovery {
    /// Creates a `Discovery` that uses `connection`. While CRDs or `APIService`s cannot be watched,
    /// [`Resolve::resolution_changes`] yields a value every `retry_interval`.
    pub fn new(connection: &Connection, retry_interval: Duration) -> Self {
        Self {
            client: connection.client.clone(),
            // The clients for watches do not retry requests. So if the kube-apiserver answers with
            // 429, 503 or 504, the lookup fails at once.
            watch_client: connection.watch_client(),
            retry_interval,
        }
    }

    async fn look_up(&self, gvr: &Gvr) -> Resolution {
        let path = match apiserver_requests::group_version_path(gvr) {
            Ok(path) => path,
            Err(message) => {
                return Resolution::NotServed {
                    message,
                    group_served: true,
                    similar_group: None,
                };
            }
        };
        let first = self.ask(&path, gvr).await;
        if !matches!(first, Resolution::NotServed { .. }) {
            return first;
        }
        // A starting kube-apiserver answers before it has read all CRDs. So the first answer "not
        // served" does not count. If the kube-apiserver is ready, the second answer counts. If
        // `/readyz` is forbidden or missing, the kube-apiserver counts as ready.
        match self.fetch("/readyz").await {
            Err(Refusal::Lost(GapReason::Refused { code, .. }, _)) => Resolution::Unknown {
                message: format!("the API server is not ready (/readyz: {code})"),
            },
            Err(Refusal::Lost(lost @ GapReason::Unreachable(_), _)) => Resolution::Unknown {
                message: lost.to_string(),
            },
            _ => {
                let second = self.ask(&path, gvr).await;
                self.with_similar_group(gvr, second).await
            }
        }
    }

    async fn ask(&self, path: &str, gvr: &Gvr) -> Resolution {
        let body = match self.fetch(path).await {
            Ok(body) => body,
            Err(Refusal::Lost(GapReason::NotFound { .. }, _)) => return self.ask_group(gvr).await,
            Err(refusal) => return unknown(refusal),
        };
        let list: ResourceList = match serde_json::from_slice(&body) {
            Ok(list) => list,
            Err(error) => {
                return Resolution::Unknown {
                    message: format!("discovery of {path}: {error}"),
                };
            }
        };
        let resources = list.resources.unwrap_or_default();
        let hint = plural_hint(&resources, &gvr.resource);
        let found = resources.into_iter().find(|r| r.name == gvr.resource);
        let Some(DiscoveredResource {
            kind,
            namespaced,
            verbs,
            ..
        }) = found
        else {
            return Resolution::NotServed {
                message: format!(
                    "{} has no resource {}{hint}",
                    gvr.api_version(),
                    gvr.resource
                ),
                group_served: true,
                similar_group: None,
            };
        };
        let verbs = verbs.unwrap_or_default();
        if ["list", "watch"]
            .iter()
            .all(|verb| verbs.iter().any(|v| v == verb))
        {
            Resolution::Served { kind, namespaced }
        } else {
            Resolution::NotServed {
                message: format!("{gvr} cannot be listed and watched"),
                group_served: true,
                similar_group: None,
            }
        }
    }

    /// Returns the result after the cluster has answered with 404 to a request for the
    /// group-version of `gvr`. This method asks if the cluster serves the API group in another
    /// version. The message of the result contains the answer.
    async fn ask_group(&self, gvr: &Gvr) -> Resolution {
        // The core group has no discovery document at `/apis/GROUP`, and every cluster serves the
        // core group.
        let group_served = gvr.group.is_empty()
            || match self.fetch(&format!("/apis/{}", gvr.group)).await {
                Ok(_) => true,
                Err(Refusal::Lost(GapReason::NotFound { .. }, _)) => false,
                Err(refusal) => return unknown(refusal),
            };
        let message = if group_served {
            format!("{} is not served", gvr.api_version())
        } else {
            format!("the cluster does not serve the API group {}", gvr.group)
        };
        Resolution::NotServed {
            message,
            group_served,
            similar_group: None,
        }
    }

    /// Adds the served API group whose name is similar to a missing API group. If the served groups
    /// cannot be read, `resolution` does not change, because the hint is not necessary.
    async fn with_similar_group(&self, gvr: &Gvr, mut resolution: Resolution) -> Resolution {
        if let Resolution::NotServed {
            group_served: false,
            similar_group,
            ..
        } = &mut resolution
            && let Ok(body) = self.fetch("/apis").await
            && let Ok(served) = serde_json::from_slice::<GroupList>(&body)
        {
            let served = served.groups.iter().map(|group| group.name.as_str());
            *similar_group = ifo_client::similar_group(&gvr.group, served).map(str::to_owned);
        }
        resolution
    }

    async fn fetch(&self, path: &str) -> Result<Bytes, Refusal> {
        let lost = |why| Refusal::Lost(GapReason::Unreachable(why), None);
        let request = apiserver_requests::get(path).map_err(lost)?;
        let body = apiserver_requests::send(&self.watch_client.client, request)
            .await?
            .into_body();
        apiserver_requests::read(body, MAX_DISCOVERY)
            .await
            .map_err(|error| match error {
                ReadError::Broken(why) => lost(why),
                ReadError::TooLarge => {
                    lost(format!("an answer of more than {MAX_DISCOVERY} bytes"))
                }
            })
    }
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
        let crds = changes_of::<CustomResourceDefinition>(&self.client, self.retry_interval);
        let services = changes_of::<APIService>(&self.client, self.retry_interval);
        coalesce(stream::select(crds, services)).boxed()
    }
}

/// Returns a stream that yields a value when an object of kind `K` changes. While the objects
/// cannot be watched, the stream yields a value every `poll`.
fn changes_of<K>(client: &Client, poll: Duration) -> impl Stream<Item = ()> + Send + use<K>
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
    let events = watcher::watcher(api, watcher::Config::default())
        .default_backoff()
        .boxed();
    stream::unfold(
        (events, None::<Instant>),
        move |(mut events, mut next_poll)| async move {
            loop {
                // While changes cannot be watched, `next_poll` is the time at which the stream
                // yields a value without a change.
                let next = match next_poll {
                    Some(until) => match timeout_at(until, events.next()).await {
                        Ok(next) => next,
                        Err(_) => return Some(((), (events, Some(Instant::now() + poll)))),
                    },
                    None => events.next().await,
                };
                match next {
                    Some(Ok(Event::Init | Event::InitApply(_))) => {}
                    // The end of each list counts as a change. After an interruption of the watch,
                    // the watcher lists all objects again, and objects may have changed during the
                    // interruption.
                    Some(Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_))) => {
                        return Some(((), (events, None)));
                    }
                    Some(Err(error)) => {
                        debug!(kind = %K::kind(&()), %error, "changes cannot be watched; polling");
                        next_poll = next_poll.or_else(|| Some(Instant::now() + poll));
                    }
                    // The stream of watcher() never ends.
                    None => future::pending().await,
                }
            }
        },
    )
}

/// Merges changes that arrive within [`COALESCE_PERIOD`] into one report. Repeats the report after
/// [`SECOND_REPORT_DELAY`], if no further change arrives in this time.
fn coalesce(changes: impl Stream<Item = ()> + Send + 'static) -> impl Stream<Item = ()> + Send {
    stream::unfold(
        (changes.boxed(), None::<Instant>),
        |(mut changes, repeat_at)| async move {
            if let Some(at) = repeat_at {
                if timeout_at(at, changes.next()).await.is_err() {
                    return Some(((), (changes, None)));
                }
            } else {
                changes.next().await?;
            }
            let period_end = sleep(COALESCE_PERIOD);
            tokio::pin!(period_end);
            loop {
                tokio::select! {
                    () = &mut period_end => return Some(((), (changes, Some(Instant::now() + SECOND_REPORT_DELAY)))),
                    Some(()) = changes.next() => {}
                }
            }
        },
    )
}

#[cfg(test)]
#[path = "discovery_tests.rs"]
mod tests;
