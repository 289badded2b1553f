//! Reads operations from a cluster: from the live API, or from custom resources if the live API is
//! not served. It reads the whole cluster, or only the namespaces that the user may read.
//!
//! Input: a server and filters. Output: the matching operations, once or as they change.

mod completeness;
mod follow;

pub(super) use completeness::IncompleteData;
pub(super) use follow::{OperationChange, OperationFollower};
pub(super) use ifo_client::list::query;

use self::completeness::combined;
use super::api_client::{ApiClient, ListCompleteness, ListOptions};
use super::filter::Filters;
use super::operation::ListedOperation;
use super::output::complain;
use super::plain_text::first_names;
use super::problem::Problem;
use futures::future::BoxFuture;
use futures::{StreamExt as _, TryStreamExt as _};
use ifo_api::completeness::Incomplete;
use ifo_api::{GROUP, LIVE_GROUP, VERSION, live};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::core::PartialObjectMeta;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Objects per page: kubectl's chunk size. It limits the memory for a page.
const PAGE_OBJECTS: usize = 500;

/// Number of concurrent requests for namespaces.
const CONCURRENCY: usize = 16;

/// Largest number of namespaces that the note names.
const MAX_NAMED: usize = 5;

/// The API that serves the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// The live objects of `live.ifo.kubevirt.io`.
    Live,
    /// Custom resources of `ifo.kubevirt.io`, from persistence mode or from the Go operator.
    Crs,
}

impl Served {
    /// The API group.
    pub(super) fn group(self) -> &'static str {
        match self {
            Self::Live => LIVE_GROUP,
            Self::Crs => GROUP,
        }
    }

    /// `plural.group`, as RBAC errors name the resource.
    pub(super) fn resource(self) -> &'static str {
        match self {
            Self::Live => "inflightoperations.live.ifo.kubevirt.io",
            Self::Crs => "inflightoperations.ifo.kubevirt.io",
        }
    }

    /// Returns true if discovery of `server` has the API. All users may read discovery. The
    /// kube-apiserver checks the rights for a request before it checks if the API exists.
    pub(super) async fn is_on(self, server: &ApiClient) -> bool {
        let uri = format!("/apis/{}/{VERSION}", self.group());
        match server.get::<APIResourceList>(&uri, &uri, None).await {
            Ok(list) => list.resources.iter().any(|it| it.name == live::PLURAL),
            Err(problem) => !matches!(problem, Problem::NotFound(_)),
        }
    }
}

/// The matching operations of a cluster.
pub(super) struct OperationSource {
    /// The server.
    pub(super) server: ApiClient,
    /// The API that serves them.
    pub(super) served: Served,
    /// The namespaces that are requested one by one. None for all namespaces, or for the one of
    /// `-n`.
    pub(super) namespaces: Option<Vec<String>>,
    filters: Filters,
    keep_raw: bool,
    /// A note about the source for the user.
    unusual: Option<String>,
    /// The completeness of the list, as in the newest answer for each namespace.
    completeness: Mutex<BTreeMap<Option<String>, ListCompleteness>>,
}

impl OperationSource {
    /// Finds the API and the namespaces that the user may read, and lists the operations. A
    /// note about unusual results is printed to standard error. `keep_raw` keeps the objects
    /// as the server sent them.
    pub(super) async fn open(
        server: ApiClient,
        filters: Filters,
        keep_raw: bool,
    ) -> Result<(Self, Vec<ListedOperation>), Problem> {
        let (source, listed) = Self::find(server, filters, keep_raw).await?;
        source.print_note();
        Ok((source, listed))
    }

    /// Prints the note, if there is one.
    pub(super) fn print_note(&self) {
        if let Some(unusual) = &self.unusual {
            complain("note", unusual);
        }
    }

    /// Does the work of [`OperationSource::open`] without printing the note.
    pub(super) async fn find(
        server: ApiClient,
        filters: Filters,
        keep_raw: bool,
    ) -> Result<(Self, Vec<ListedOperation>), Problem> {
        let mut source = Self {
            server,
            served: Served::Live,
            namespaces: None,
            filters,
            keep_raw,
            unusual: None,
            completeness: Mutex::default(),
        };
        let mut listed = source.list_what_is_served().await;
        if let Err(Problem::NotFound(_)) = listed {
            source.served = Served::Crs;
            listed = source.list_what_is_served().await;
            match &listed {
                Err(Problem::NotFound(_)) => return Err(Problem::NotInstalled),
                Err(_) => {}
                Ok(_) => {
                    source.unusual = Some(format!(
                        "{LIVE_GROUP} is not served; showing the objects of {}",
                        Served::Crs.resource()
                    ));
                }
            }
        }
        let listed = listed.map_err(|problem| match problem {
            Problem::Invalid(why) if source.filters.selector.is_some() => {
                Problem::Usage(format!("--selector: {why}"))
            }
            problem => problem,
        })?;
        Ok((source, listed))
    }

    /// Returns the source without filters.
    pub(super) fn unfiltered(&self) -> Self {
        Self {
            keep_raw: false,
            ..self.filtered(Filters::all_in(None))
        }
    }

    /// Returns the source with other filters.
    pub(super) fn filtered(&self, filters: Filters) -> Self {
        Self {
            server: self.server.clone(),
            served: self.served,
            namespaces: self.namespaces.clone(),
            filters,
            keep_raw: self.keep_raw,
            unusual: None,
            completeness: Mutex::default(),
        }
    }

    /// The reason for which operations may be missing from the newest list or probe, as a sentence.
    pub(super) fn incomplete(&self) -> Option<Incomplete> {
        match self.completeness() {
            ListCompleteness::Incomplete(incomplete) => Some(incomplete),
            ListCompleteness::Complete | ListCompleteness::NotStated => None,
        }
    }

    /// The same reason, as the server states it.
    fn completeness(&self) -> ListCompleteness {
        let newest = self.completeness.lock();
        let newest = newest.unwrap_or_else(PoisonError::into_inner);
        let all = newest.values().cloned().reduce(combined);
        all.unwrap_or(ListCompleteness::NotStated)
    }

    /// Asks the server why operations may be missing, without listing them. The answer covers only
    /// rule sets that can detect an operation which the filters select.
    pub(super) async fn probe(&self) -> Result<ListCompleteness, Problem> {
        let asked = self.places().into_iter().map(|place| self.probe_in(place));
        let asked: Vec<BoxFuture<'_, Result<(), Problem>>> =
            asked.map(futures::FutureExt::boxed).collect();
        futures::stream::iter(asked)
            .buffered(CONCURRENCY)
            .try_collect::<()>()
            .await?;
        Ok(self.completeness())
    }

    async fn probe_in(&self, namespace: Option<&str>) -> Result<(), Problem> {
        let selector = self.filters.label_selector();
        let query = query(&[("limit", "1"), ("labelSelector", &selector)]);
        let uri = format!("{}?{query}", self.path(namespace));
        let resource = self.served.resource();
        let answer = self.server.answer(&uri, resource, namespace).await?;
        self.learn(namespace, answer.completeness);
        Ok(())
    }

    fn learn(&self, namespace: Option<&str>, completeness: ListCompleteness) {
        let newest = self.completeness.lock();
        let mut newest = newest.unwrap_or_else(PoisonError::into_inner);
        newest.insert(namespace.map(str::to_owned), completeness);
    }

    /// Lists the matching operations in the selected phases.
    pub(super) async fn list(&self) -> Result<Vec<ListedOperation>, Problem> {
        futures::stream::iter(self.places())
            .map(|place| self.list_in(place))
            .buffered(CONCURRENCY)
            .try_concat()
            .await
    }

    /// Returns the namespaces that are requested one by one. None means all namespaces. Custom
    /// resources are cluster-scoped, so they are always requested with None.
    fn places(&self) -> Vec<Option<&str>> {
        let namespace = self.filters.namespace.as_deref();
        match &self.namespaces {
            Some(namespaces) => namespaces.iter().map(|it| Some(it.as_str())).collect(),
            None => vec![namespace.filter(|_| self.served == Served::Live)],
        }
    }

    /// Lists the namespaces that the user may read. Returns `NotFound` if the API is not served,
    /// also if the user may not read it.
    async fn list_what_is_served(&mut self) -> Result<Vec<ListedOperation>, Problem> {
        let listed = self.list().await;
        let Err(refused @ Problem::Forbidden { .. }) = listed else {
            return listed;
        };
        if !self.served.is_on(&self.server).await {
            return Err(Problem::NotFound(refused.to_string()));
        }
        if self.served == Served::Live && self.filters.namespace.is_none() {
            return self.list_where_allowed().await;
        }
        Err(refused)
    }

    /// Lists namespace by namespace, and keeps those that the user may read.
    async fn list_where_allowed(&mut self) -> Result<Vec<ListedOperation>, Problem> {
        let all = namespaces(&self.server).await;
        let lists: Vec<(&String, Result<Vec<ListedOperation>, Problem>)> =
            futures::stream::iter(&all)
                .map(async |namespace| (namespace, self.list_in(Some(namespace)).await))
                .buffered(CONCURRENCY)
                .collect()
                .await;
        let mut allowed = Vec::new();
        let mut refused = None;
        let mut operations = Vec::new();
        for (namespace, listed) in lists {
            match listed {
                Ok(listed) => {
                    allowed.push(namespace.clone());
                    operations.extend(listed);
                }
                Err(Problem::Forbidden { user, .. }) => refused = user,
                Err(problem) => return Err(problem),
            }
        }
        if allowed.is_empty() {
            return Err(Problem::Forbidden {
                verb: "list",
                resource: self.served.resource().to_owned(),
                namespace: None,
                user: refused,
            });
        }
        let named = first_names(allowed.iter().map(String::as_str), MAX_NAMED);
        self.unusual = Some(format!(
            "you may not list operations in all namespaces; showing those in {named}"
        ));
        self.namespaces = Some(allowed);
        Ok(operations)
    }

    /// Lists one namespace, or all namespaces.
    async fn list_in(&self, namespace: Option<&str>) -> Result<Vec<ListedOperation>, Problem> {
        match self.pages(namespace, Some(PAGE_OBJECTS)).await {
            // The continue token expired, because the server has dropped the old state.
            Err(Problem::Expired) => self.pages(namespace, None).await,
            listed => listed,
        }
    }

    /// Lists with at most this many objects per page. None lists all objects in one page.
    async fn pages(
        &self,
        namespace: Option<&str>,
        limit: Option<usize>,
    ) -> Result<Vec<ListedOperation>, Problem> {
        let options = ListOptions {
            limit,
            label_selector: self.filters.selector.as_deref().unwrap_or_default(),
            field_selector: self.phase(),
        };
        let mut operations = Vec::new();
        let take = |item: &str| {
            let operation = ListedOperation::read(item, self.keep_raw)?;
            operations.extend(Some(operation).filter(|it| self.filters.shows(it)));
            Ok(())
        };
        let (path, resource) = (self.path(namespace), self.served.resource());
        let listed = self.server.list(&path, options, resource, namespace, take);
        let completeness = listed.await?;
        self.learn(namespace, completeness);
        Ok(operations)
    }

    /// The field selector that excludes completed operations at the server. Custom resources of the
    /// Go operator do not have the field.
    fn phase(&self) -> &'static str {
        if self.filters.all_phases || self.served == Served::Crs {
            ""
        } else {
            "status.phase=Active"
        }
    }

    fn path(&self, namespace: Option<&str>) -> String {
        let group = self.served.group();
        let within = namespace.map_or_else(String::new, |it| format!("/namespaces/{}", escape(it)));
        format!("/apis/{group}/{VERSION}{within}/{}", live::PLURAL)
    }
}

/// Returns all namespaces that the user can find: all of the cluster, else the user's projects
/// (`OpenShift`), else the namespace of the context.
pub(super) async fn namespaces(server: &ApiClient) -> Vec<String> {
    for (path, resource) in [
        ("/api/v1/namespaces", "namespaces"),
        (
            "/apis/project.openshift.io/v1/projects",
            "projects.project.openshift.io",
        ),
    ] {
        if let Ok(names) = names(server, path, resource).await {
            return names;
        }
    }
    vec![server.default_namespace.clone()]
}

async fn names(server: &ApiClient, path: &str, resource: &str) -> Result<Vec<String>, Problem> {
    let options = ListOptions {
        limit: Some(PAGE_OBJECTS),
        ..ListOptions::default()
    };
    let mut names = Vec::new();
    let take = |item: &str| {
        let item: PartialObjectMeta = serde_json::from_str(item)?;
        names.extend(item.metadata.name);
        Ok(())
    };
    server.list(path, options, resource, None, take).await?;
    Ok(names)
}

/// The characters that RFC 3986 leaves unescaped.
const UNRESERVED: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Escapes a path segment.
pub(super) fn escape(segment: &str) -> String {
    percent_encoding::utf8_percent_encode(segment, UNRESERVED).to_string()
}
