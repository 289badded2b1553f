//! Where operations come from: the live API, or the CRs where that is not served; the
//! whole cluster, or the namespaces that the user may see. Enters: a server and filters.
//! Leaves: the operations that are meant, once or as they change.

mod completeness;
mod follow;

pub(super) use completeness::IncompleteData;
pub(super) use follow::{OperationChange, OperationFollower};
pub(super) use ifo_client::list::query;

use self::completeness::worse;
use super::filter::Filters;
use super::operation::ListedOperation;
use super::output::complain;
use super::plain_text::first_names;
use super::problem::Problem;
use super::server::{ApiServer, ListCompleteness, ListOptions};
use futures::future::BoxFuture;
use futures::{StreamExt as _, TryStreamExt as _};
use ifo_api::completeness::Incomplete;
use ifo_api::{GROUP, LIVE_GROUP, VERSION, live};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::core::PartialObjectMeta;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Objects of one page: kubectl's chunk size. It bounds the text that is held at once.
const PAGE: usize = 500;

/// Namespaces that are asked at the same time.
const AT_ONCE: usize = 16;

/// Namespaces that are named in the note about them.
const NAMED: usize = 5;

/// Which API serves the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// The virtual objects of `live.ifo.kubevirt.io`.
    Live,
    /// CRs of `ifo.kubevirt.io`: of persistence mode, or of the Go operator.
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

    /// `plural.group`, as RBAC errors name it.
    pub(super) fn resource(self) -> &'static str {
        match self {
            Self::Live => "inflightoperations.live.ifo.kubevirt.io",
            Self::Crs => "inflightoperations.ifo.kubevirt.io",
        }
    }

    /// Whether `server` serves them, as far as it says. Discovery is open to all users,
    /// and kube-apiserver refuses a request before it looks whether there is such an API.
    pub(super) async fn is_on(self, server: &ApiServer) -> bool {
        let uri = format!("/apis/{}/{VERSION}", self.group());
        match server.get::<APIResourceList>(&uri, &uri, None).await {
            Ok(list) => list.resources.iter().any(|it| it.name == live::PLURAL),
            Err(problem) => !matches!(problem, Problem::NotFound(_)),
        }
    }
}

/// Operations of a cluster that are meant.
pub(super) struct OperationSource {
    /// Whom to ask.
    pub(super) server: ApiServer,
    /// Which API serves them.
    pub(super) served: Served,
    /// Namespaces that are asked one by one; None for all at once, or the one of `-n`.
    pub(super) namespaces: Option<Vec<String>>,
    filters: Filters,
    keep_raw: bool,
    /// What is not as usual.
    unusual: Option<String>,
    /// Whether operations may be missing, as the newest answer for each namespace says.
    completeness: Mutex<BTreeMap<Option<String>, ListCompleteness>>,
}

impl OperationSource {
    /// Finds out who serves the operations and where the user may see them, and lists
    /// them. One line on standard error tells what is not as usual. `keep_raw` keeps the
    /// objects as they are.
    pub(super) async fn open(
        server: ApiServer,
        filters: Filters,
        keep_raw: bool,
    ) -> Result<(Self, Vec<ListedOperation>), Problem> {
        let (source, listed) = Self::find(server, filters, keep_raw).await?;
        source.note();
        Ok((source, listed))
    }

    /// Says what is not as usual, if something is.
    pub(super) fn note(&self) {
        if let Some(unusual) = &self.unusual {
            complain("note", unusual);
        }
    }

    /// [`OperationSource::open`], which says nothing yet.
    pub(super) async fn find(
        server: ApiServer,
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

    /// The same without filters.
    pub(super) fn unfiltered(&self) -> Self {
        Self {
            keep_raw: false,
            ..self.filtered(Filters::all_in(None))
        }
    }

    /// The same with other filters.
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

    /// Why operations may be missing from the newest list, or from the newest probe.
    pub(super) fn incomplete(&self) -> Option<Incomplete> {
        match self.completeness() {
            ListCompleteness::Incomplete(incomplete) => Some(incomplete),
            ListCompleteness::Complete | ListCompleteness::NotStated => None,
        }
    }

    /// The same, as the server states it.
    fn completeness(&self) -> ListCompleteness {
        let newest = self.completeness.lock();
        let newest = newest.unwrap_or_else(PoisonError::into_inner);
        let all = newest.values().cloned().reduce(worse);
        all.unwrap_or(ListCompleteness::NotStated)
    }

    /// Asks the server why operations may be missing, without listing them. Only rule sets
    /// that may find an operation which the filters select are asked for.
    pub(super) async fn probe(&self) -> Result<ListCompleteness, Problem> {
        let asked = self.places().into_iter().map(|place| self.probe_in(place));
        let asked: Vec<BoxFuture<'_, Result<(), Problem>>> =
            asked.map(futures::FutureExt::boxed).collect();
        futures::stream::iter(asked)
            .buffered(AT_ONCE)
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

    /// Lists the operations that are meant, all phases that are.
    pub(super) async fn list(&self) -> Result<Vec<ListedOperation>, Problem> {
        futures::stream::iter(self.places())
            .map(|place| self.list_in(place))
            .buffered(AT_ONCE)
            .try_concat()
            .await
    }

    /// The namespaces that are requested one by one. None stands for all namespaces, and is
    /// what a CR is requested with: it is cluster-scoped.
    fn places(&self) -> Vec<Option<&str>> {
        let namespace = self.filters.namespace.as_deref();
        match &self.namespaces {
            Some(namespaces) => namespaces.iter().map(|it| Some(it.as_str())).collect(),
            None => vec![namespace.filter(|_| self.served == Served::Live)],
        }
    }

    /// Lists where the user may; `NotFound` if there is nothing to list, whatever the user
    /// may.
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

    /// Lists namespace by namespace, and remembers those where the user may.
    async fn list_where_allowed(&mut self) -> Result<Vec<ListedOperation>, Problem> {
        let all = namespaces(&self.server).await;
        let lists: Vec<(&String, Result<Vec<ListedOperation>, Problem>)> =
            futures::stream::iter(&all)
                .map(async |namespace| (namespace, self.list_in(Some(namespace)).await))
                .buffered(AT_ONCE)
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
        let named = first_names(allowed.iter().map(String::as_str), NAMED);
        self.unusual = Some(format!(
            "you may not list operations in all namespaces; showing those in {named}"
        ));
        self.namespaces = Some(allowed);
        Ok(operations)
    }

    /// Lists one namespace, or all at once.
    async fn list_in(&self, namespace: Option<&str>) -> Result<Vec<ListedOperation>, Problem> {
        match self.pages(namespace, Some(PAGE)).await {
            // Between two pages the server went on farther than it can go back.
            Err(Problem::Expired) => self.pages(namespace, None).await,
            listed => listed,
        }
    }

    /// Lists pages of at most so many objects, or all objects as one page.
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

    /// Field selector that spares the server to send what is over. CRs of the Go operator
    /// have no such field.
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

/// All namespaces that the user can know of: all, or (`OpenShift`) their projects, or the
/// context's.
pub(super) async fn namespaces(server: &ApiServer) -> Vec<String> {
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

async fn names(server: &ApiServer, path: &str, resource: &str) -> Result<Vec<String>, Problem> {
    let options = ListOptions {
        limit: Some(PAGE),
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

/// What RFC 3986 leaves as it is.
const UNRESERVED: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A segment of a path.
pub(super) fn escape(segment: &str) -> String {
    percent_encoding::utf8_percent_encode(segment, UNRESERVED).to_string()
}
