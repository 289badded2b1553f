//! Decides what users may see, with `SubjectAccessReview` requests to the kube-apiserver.

use super::place::Place;
use crate::index::IndexReader;
use crate::resources::cells::SharedShortNames;
use aggregated_apiserver::auth::{Decisions, Period, ResourceAttributes};
use aggregated_apiserver::serve::ErrorStatus;
use ifo_api::{LIVE_GROUP, Text, VERSION, live};
use ifo_client::offline_kinds::group;
use ifo_client::short_names::ShortNames;

/// The index, and the decisions about all users.
pub(super) struct Reviews {
    pub(super) reader: IndexReader,
    /// The plural names of kinds, from discovery. Reviews need them.
    pub(super) kinds: SharedShortNames,
    pub(super) cluster_namespace: Text,
    pub(super) decisions: Decisions,
}

impl Reviews {
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
    /// `inflightoperations/all`. The empty text stands for all namespaces. The activities in
    /// `cluster_namespace` count operations in all namespaces, so the result for them is also
    /// empty.
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

/// Returns the request to `get` subjects. Returns None if `kinds` do not contain their kind.
pub(super) fn get_request(kinds: &ShortNames, place: &Place<'_>) -> Option<ResourceAttributes> {
    let resource = kinds.plural(&place.api_version, &place.kind)?;
    Some(ResourceAttributes {
        verb: "get",
        group: group(&place.api_version).to_owned(),
        version: "*".to_owned(),
        resource: resource.to_owned(),
        namespace: place.namespace.to_string(),
        name: place.name.as_deref().unwrap_or_default().to_owned(),
        ..ResourceAttributes::default()
    })
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
