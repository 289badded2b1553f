//! Reads operations from a cluster: lists operations, and watches changes of operations.
//!
//! Operations come from the live API: the aggregated API that `ifo-apiserver` serves. If the
//! cluster does not serve the live API, operations come from custom resources ([`Served::Crs`]). If
//! the user may not list the operations of all namespaces, the plugin sends one request for each
//! namespace that the user may see.

mod decode;
mod follow;
mod watch;

pub(crate) use crate::cluster::api_client::namespaces;
pub(crate) use decode::{AnyOperation, encode};
pub(crate) use follow::{OperationChange, OperationFollower};
pub(crate) use ifo_client::list::{escape, list_path, query};
pub(crate) use watch::{ObjectChange, changes, check_namespaces};

use crate::cluster::api_client::{ApiClient, ListCompleteness};
use crate::cluster::problem::Problem;
use crate::filters::filter::Filters;
use crate::operations::bundle_index::BundlePart;
use crate::operations::operation::InFlightOperation;
use crate::output::plain_text::first_names;
use crate::output::print::complain;
use futures::{StreamExt as _, TryStreamExt as _};
use ifo_api::completeness::Incomplete;
use ifo_api::{GROUP, LIVE_GROUP, VERSION, live};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use std::time::Duration;

/// Largest number of concurrent requests, if each request is for one namespace. The plugin sends
/// further requests when earlier requests have been answered.
const CONCURRENCY: usize = 16;

/// Time limit for each answer to [`OperationSource::probe`], without `--request-timeout`.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest number of namespaces that the note about missing rights names. The note only counts
/// further namespaces: `a, b, c, d, e and 3 more`.
const MAX_NAMED: usize = 5;

/// The API that serves the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// The live API `live.ifo.kubevirt.io`, whose objects `ifo-apiserver` serves from memory.
    Live,
    /// Custom resources of `ifo.kubevirt.io`. `ifo-apiserver` in persistence mode and the older Go
    /// operator write these custom resources.
    Crs,
}

impl Served {
    /// Returns the API group.
    pub(crate) fn group(self) -> &'static str {
        match self {
            Self::Live => LIVE_GROUP,
            Self::Crs => GROUP,
        }
    }

    /// Returns true if the discovery of the cluster contains the API, or if discovery cannot be
    /// read.
    ///
    /// The plugin needs discovery if RBAC refuses a list. The refusal does not show whether the API
    /// exists, because the kube-apiserver checks rights first. By default, all authenticated users
    /// may read discovery.
    pub(crate) async fn is_served_by(self, server: &ApiClient) -> bool {
        let uri = format!("/apis/{}/{VERSION}", self.group());
        match server.get::<APIResourceList>(&uri).await {
            Ok(list) => list.resources.iter().any(|it| it.name == live::PLURAL),
            Err(problem) => !matches!(problem, Problem::NotFound(_)),
        }
    }
}

/// Operations, and whether operations may be missing.
type OperationList = (Vec<InFlightOperation>, ListCompleteness);

/// Reads the operations of a cluster that match the filters.
pub(crate) struct OperationSource {
    /// The client for the cluster.
    pub(crate) server: ApiClient,
    /// The API that serves the operations.
    pub(crate) served: Served,
    /// The namespaces for which the plugin sends one request each, if the user may not list the
    /// operations of all namespaces. None if one request is enough: for all namespaces, or for the
    /// namespace of `-n`.
    pub(crate) namespaces: Option<Vec<String>>,
    filters: Filters,
    /// A note for the user. Set if the operations come from custom resources, or if the user may
    /// list operations only in some namespaces. Otherwise None.
    pub(crate) note: Option<String>,
    /// Whether the list is complete. The lists of several namespaces are combined.
    pub(crate) completeness: ListCompleteness,
}

impl OperationSource {
    /// Returns a source that reads the live API, without a request.
    pub(crate) fn new(server: ApiClient, filters: Filters) -> Self {
        Self {
            server,
            served: Served::Live,
            namespaces: None,
            filters,
            note: None,
            completeness: Ok(()),
        }
    }

    /// Finds the API and the namespaces that the user may read, and lists the operations. Returns
    /// the source and the listed operations. If the source has a note, prints the note to standard
    /// error.
    pub(crate) async fn open(
        server: ApiClient,
        filters: Filters,
    ) -> Result<(Self, Vec<InFlightOperation>), Problem> {
        let (source, listed) = Self::find(server, filters).await?;
        source.print_note();
        Ok((source, listed))
    }

    /// Prints the note for the user to standard error, if there is one.
    pub(crate) fn print_note(&self) {
        if let Some(note) = &self.note {
            complain("note", note);
        }
    }

    /// Does the work of [`OperationSource::open`] without printing the note.
    pub(crate) async fn find(
        server: ApiClient,
        filters: Filters,
    ) -> Result<(Self, Vec<InFlightOperation>), Problem> {
        let mut source = Self::new(server, filters);
        let mut listed = source.list_readable().await;
        if let Err(Problem::NotFound(_)) = listed {
            source.served = Served::Crs;
            listed = source.list_readable().await;
            if let Err(Problem::NotFound(_)) = listed {
                return Err(Problem::NotInstalled);
            }
            let files = source.server.from_files.as_ref();
            let part = files.and_then(|it| it.index.as_ref()?.operation_parts().next());
            let why = || format!("{} does not serve {LIVE_GROUP}", source.server.address);
            let why = part.map_or_else(why, BundlePart::problem);
            let shown = format!("showing the objects of {}.{GROUP}", live::PLURAL);
            source.note = Some(format!("{why}; {shown}"));
        }
        Ok((source, listed?))
    }

    /// Returns the reason why operations may be missing from the list. The output shows this
    /// reason. None if no reason is known, or if only operations can be missing that the user may
    /// not see.
    pub(crate) fn incomplete(&self) -> Option<Incomplete> {
        shown_reason(self.completeness.clone())
    }

    /// Asks the server why its lists may be incomplete at this time. [`Self::completeness`] does
    /// not change, because it describes an earlier list. Operations that were missing then are
    /// still missing from that list.
    ///
    /// To get this answer, the plugin lists at most one operation. The request contains the labels,
    /// components and operation names of the filters. The server considers only rule sets that can
    /// detect such operations. Each answer has a time limit, because a server can hang.
    pub(crate) async fn probe(&self) -> Result<Option<Incomplete>, Problem> {
        let selector = self.filters.label_selector();
        let query = query(&[("limit", "1"), ("labelSelector", &selector)]);
        let namespaces = self.requested_namespaces().into_iter();
        let uris = namespaces.map(|it| format!("{}?{query}", self.path(it)));
        let uris = futures::stream::iter(uris.collect::<Vec<_>>());
        let mut server = self.server.clone();
        server.timeout.get_or_insert(PROBE_TIMEOUT);
        let answers = uris.map(async |uri| server.answer(&uri).await);
        let answers: Vec<_> = answers.buffered(CONCURRENCY).try_collect().await?;
        let mut stated = answers.into_iter().map(|it| self.stated(it.completeness));
        Ok(stated.find_map(shown_reason))
    }

    /// Returns the namespace of each request. None is the request for all namespaces. Custom
    /// resources are cluster-scoped. So the request for custom resources does not depend on `-n`,
    /// and the plugin filters the answer itself.
    pub(crate) fn requested_namespaces(&self) -> Vec<Option<&str>> {
        let namespace = self.filters.namespace.as_deref();
        match &self.namespaces {
            Some(namespaces) => namespaces.iter().map(|it| Some(it.as_str())).collect(),
            None => vec![namespace.filter(|_| self.served == Served::Live)],
        }
    }

    /// Lists the operations. If the user may not list the operations of all namespaces, lists them
    /// in the namespaces that the user may read. `namespaces` then has these namespaces. Returns
    /// `NotFound` if the cluster does not serve the API, even if RBAC refuses the request.
    async fn list_readable(&mut self) -> Result<Vec<InFlightOperation>, Problem> {
        let mut listed = self.list_in(self.requested_namespaces()[0]).await;
        if let Err(refused @ Problem::Forbidden { .. }) = &listed {
            if !self.served.is_served_by(&self.server).await {
                return Err(Problem::NotFound(refused.to_string()));
            }
            if self.served == Served::Live && self.filters.namespace.is_none() {
                listed = self.list_one_by_one(refused.clone()).await;
            }
        }
        let (operations, completeness) = listed?;
        self.completeness = completeness;
        Ok(operations)
    }

    /// Lists the operations with one request for each namespace. `refused` is the answer to the
    /// request for all namespaces.
    async fn list_one_by_one(&mut self, refused: Problem) -> Result<OperationList, Problem> {
        let all = namespaces(&self.server).await;
        let lists = futures::stream::iter(&all).map(|namespace| self.list_in(Some(namespace)));
        let lists: Vec<_> = lists.buffered(CONCURRENCY).collect().await;
        let (mut operations, mut completeness) = (Vec::new(), Ok(()));
        let mut allowed = Vec::new();
        for (namespace, listed) in all.into_iter().zip(lists) {
            if !matches!(listed, Err(Problem::Forbidden { .. })) {
                let (more, of_list) = listed?;
                operations.extend(more);
                // The user can act on every reason except `Filtered`, so another reason replaces
                // `Filtered`.
                completeness = match completeness {
                    Err(Incomplete::Filtered) => of_list.and(completeness),
                    _ => completeness.and(of_list),
                };
                allowed.push(namespace);
            }
        }
        if allowed.is_empty() {
            return Err(refused);
        }
        let named = first_names(allowed.iter().map(String::as_str), MAX_NAMED);
        self.note = Some(format!(
            "you may not list operations in all namespaces; showing those in {named}"
        ));
        self.namespaces = Some(allowed);
        Ok((operations, completeness))
    }

    /// Lists the operations in one namespace, or in all namespaces.
    async fn list_in(&self, namespace: Option<&str>) -> Result<OperationList, Problem> {
        let path = self.path(namespace);
        let fields = self.live_selector(self.filters.list_selector());
        let labels = &self.filters.selector.text;
        let (listed, completeness) = self.server.list(&path, labels, &fields).await?;
        let operations = listed.into_iter().map(|AnyOperation(it)| it);
        let shown = operations.filter(|it| self.filters.shows(it)).collect();
        Ok((shown, self.stated(completeness)))
    }

    /// Returns the completeness of an answer. A cluster never states whether a list of custom
    /// resources is complete. So the missing statement counts as `Ok` for such a list.
    fn stated(&self, completeness: ListCompleteness) -> ListCompleteness {
        let is_of_cluster = self.server.from_files.is_none();
        let never_states = self.served == Served::Crs && is_of_cluster;
        match completeness {
            Err(Incomplete::NotKnown) if never_states => Ok(()),
            stated => stated,
        }
    }

    /// Returns the field selector of a request. It is empty for custom resources, because their CRD
    /// does not support these fields. The plugin then selects the operations itself.
    fn live_selector(&self, selector: String) -> String {
        match self.served {
            Served::Live => selector,
            Served::Crs => String::new(),
        }
    }

    fn path(&self, namespace: Option<&str>) -> String {
        list_path(self.served.group(), live::PLURAL, namespace)
    }
}

/// Returns the reason why operations may be missing. None for the reason `Filtered`: operations are
/// hidden from this user.
fn shown_reason(completeness: ListCompleteness) -> Option<Incomplete> {
    let reason = completeness.err();
    reason.filter(|why| *why != Incomplete::Filtered)
}
