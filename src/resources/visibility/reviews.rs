//! Decides what users may see, with `SubjectAccessReview` requests to the kube-apiserver.

use super::places::DecidedPlaces;
use crate::index::{IndexReader, Place};
use crate::resources::cells::SharedShortNames;
use aggregated_apiserver::auth::{Decisions, Period, ResourceAttributes};
use aggregated_apiserver::serve::ErrorStatus;
use ifo_api::{LIVE_GROUP, Text, VERSION, live};
use ifo_client::short_names::group_of;
use moka::policy::EvictionPolicy;
use std::sync::Arc;
use std::time::Duration;

/// The index, and the decisions about all users.
pub(super) struct Reviews {
    pub(super) reader: IndexReader,
    /// The plural names of kinds, from discovery. Reviews need them.
    pub(super) kinds: SharedShortNames,
    pub(super) cluster_namespace: Text,
    pub(super) decisions: Decisions,
    /// What was decided about places, by the number of the period. So another list of the same user
    /// needs no look-up in `decisions` for each place.
    pub(super) places: moka::sync::Cache<u64, Arc<DecidedPlaces>>,
}

/// Maximum number of places about which decisions are in memory, for all users together. A place
/// takes about 100 bytes. If it is reached, the least recently used entries are dropped. Later
/// requests of these users look up each place in `decisions`.
const MAX_PLACES: u64 = 50_000;

impl Reviews {
    pub(super) fn new(
        reader: IndexReader,
        kinds: SharedShortNames,
        cluster_namespace: Text,
        decisions: Decisions,
    ) -> Self {
        let places = moka::sync::Cache::builder()
            .max_capacity(MAX_PLACES)
            .weigher(|_, places: &Arc<DecidedPlaces>| places.len().try_into().unwrap_or(u32::MAX))
            .time_to_idle(Duration::from_secs(30))
            .eviction_policy(EvictionPolicy::lru())
            .build();
        Self {
            reader,
            kinds,
            cluster_namespace,
            decisions,
            places,
        }
    }

    /// Returns true if discovery serves the kind of a place.
    pub(super) fn serves(&self, place: &Place) -> bool {
        let kinds = self.kinds.load();
        kinds.plural(&place.api_version, &place.kind).is_some()
    }

    /// Returns the request to `get` objects of a place. Returns None if discovery does not serve their
    /// kind.
    pub(super) fn get(&self, place: &Place, name: &str) -> Option<ResourceAttributes> {
        let kinds = self.kinds.load();
        let resource = kinds.plural(&place.api_version, &place.kind)?;
        Some(ResourceAttributes {
            verb: "get",
            group: group_of(&place.api_version).to_owned(),
            version: "*".to_owned(),
            resource: resource.to_owned(),
            namespace: place.namespace.to_string(),
            name: name.to_owned(),
            ..ResourceAttributes::default()
        })
    }

    pub(super) async fn decide(
        &self,
        period: &Period,
        requests: Vec<ResourceAttributes>,
    ) -> Result<Vec<bool>, ErrorStatus> {
        // Without the kinds, all operations would be hidden.
        if self.kinds.load().is_empty() {
            return Err(ErrorStatus::initializing());
        }
        let decided = self.decisions.decide(period, requests).await;
        decided.map_err(ErrorStatus::internal)
    }

    /// Returns the namespace for which the server reviews the right to list
    /// `inflightoperations/all`. It is empty for all namespaces. It is also empty for the
    /// activities in the namespace of the cluster, because they are about all namespaces.
    pub(super) fn namespace_of_all<'a>(&self, namespace: &'a str, is_activities: bool) -> &'a str {
        if is_activities && *namespace == *self.cluster_namespace {
            ""
        } else {
            namespace
        }
    }

    /// Returns true if the user sees everything in the namespace of [`Self::namespace_of_all`].
    pub(super) async fn sees_all(
        &self,
        period: &Period,
        namespace: &str,
    ) -> Result<bool, ErrorStatus> {
        let all = live_request("list", "all", namespace);
        Ok(self.decide(period, vec![all]).await? == [true])
    }
}

/// Returns a request for operations.
pub(super) fn live_request(
    verb: &'static str,
    subresource: &str,
    namespace: &str,
) -> ResourceAttributes {
    ResourceAttributes {
        verb,
        group: LIVE_GROUP.to_owned(),
        version: VERSION.to_owned(),
        resource: live::PLURAL.to_owned(),
        subresource: subresource.to_owned(),
        namespace: namespace.to_owned(),
        ..ResourceAttributes::default()
    }
}
