//! Reads the completed operations for `kubectl ifo history`. The server keeps a record of each
//! completed operation. In persistence mode, there are also custom resources of completed
//! operations.

use crate::api_client::ListOptions;
use crate::listed_operation::ListedOperation;
use crate::operation_source::{OperationSource, PAGE_OBJECTS, Served, escape, namespaces};
use crate::plain_text::one_line;
use crate::problem::Problem;
use ifo_api::{LIVE_GROUP, VERSION, live, record};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use std::collections::HashSet;

use jiff::Timestamp;

/// All completed operations that the user may read.
#[derive(Debug, Default)]
pub(super) struct RecordedHistory {
    pub(super) operations: Vec<ListedOperation>,
    /// The earliest end of an operation. None if there are no operations.
    pub(super) oldest_end: Option<Timestamp>,
    /// Notes for the user about parts that could not be read.
    pub(super) notes: Vec<String>,
}

/// Returns the resource in the form `PLURAL.GROUP`, as in the kube-apiserver's error message
/// `PLURAL.GROUP is forbidden`.
fn resource() -> String {
    format!("{}.{LIVE_GROUP}", record::PLURAL)
}

/// Formats `operationrecord.GROUP/name`, as kubectl does with `-o name`.
pub(crate) fn resource_name(name: &str) -> String {
    let name = one_line(name);
    format!("{}.{LIVE_GROUP}/{name}", record::KIND.to_lowercase())
}

impl RecordedHistory {
    /// Reads the records in the namespaces of `source`, and adds the custom resources of completed
    /// operations. If `keep_raw` is true, each operation keeps the JSON of its object.
    pub(super) async fn read(source: &OperationSource, keep_raw: bool) -> Result<Self, Problem> {
        let mut history = Self::default();
        let reader = RecordReader {
            source,
            keep_raw,
            field_selector: "",
        };
        let mut records = match source.served {
            Served::Live => reader.records(&mut history.notes).await,
            Served::Crs => Ok(Vec::new()),
        };
        let custom = reader.custom_resources().await;
        let custom = match custom {
            Ok(custom) => custom,
            // The cluster does not serve these custom resources, for example because persistence
            // mode is off.
            Err(Problem::NotFound(_)) => Vec::new(),
            Err(problem) if source.served == Served::Crs => return Err(problem),
            Err(Problem::Forbidden { .. }) => {
                history.notes.push(format!(
                    "custom resources may reach further back, but you may not list {}",
                    Served::Crs.resource()
                ));
                Vec::new()
            }
            Err(problem) => {
                history.notes.push(format!(
                    "custom resources may reach further back, but they cannot be read: {problem}"
                ));
                Vec::new()
            }
        };
        if let Err(problem @ Problem::NoRecords { .. }) = &records
            && !custom.is_empty()
        {
            history.notes.push(format!(
                "{problem}; showing the objects of {}",
                Served::Crs.resource()
            ));
            records = Ok(Vec::new());
        }
        history.operations = merged(records?, custom);
        let ends = history.operations.iter().filter_map(|it| it.completed);
        history.oldest_end = ends.min();
        Ok(history)
    }
}

/// Returns all records, and the custom resources of completed operations that have no record. A
/// custom resource and a record are of the same operation in two cases:
///
/// - They have the same UID.
/// - The field `live_name` of the custom resource is `namespace/name` of the record.
fn merged(mut records: Vec<ListedOperation>, custom: Vec<ListedOperation>) -> Vec<ListedOperation> {
    let uids: HashSet<String> = records.iter().map(|it| it.uid.clone()).collect();
    let names: HashSet<String> = records
        .iter()
        .map(|it| {
            format!(
                "{}/{}",
                it.namespace.as_deref().unwrap_or_default(),
                it.name
            )
        })
        .collect();
    records.extend(custom.into_iter().filter(|it| {
        let is_named = it
            .live_name
            .as_ref()
            .is_some_and(|name| names.contains(name));
        let is_known = !it.uid.is_empty() && uids.contains(&it.uid);
        !it.active && it.completed.is_some() && !is_named && !is_known
    }));
    records
}

/// Reads the records that a field selector selects, in the namespaces of `source`, with their JSON.
/// Empty if the operations come from custom resources.
pub(crate) async fn selected_records(
    source: &OperationSource,
    field_selector: &str,
) -> Result<Vec<ListedOperation>, Problem> {
    let reader = RecordReader {
        source,
        keep_raw: true,
        field_selector,
    };
    match source.served {
        Served::Live => reader.records(&mut Vec::new()).await,
        Served::Crs => Ok(Vec::new()),
    }
}

struct RecordReader<'a> {
    source: &'a OperationSource,
    keep_raw: bool,
    field_selector: &'a str,
}

impl RecordReader<'_> {
    /// Reads the records in the requested namespaces. If all namespaces are requested, but the user
    /// may not list them at once, reads the records of the namespaces that the user may read.
    async fn records(&self, notes: &mut Vec<String>) -> Result<Vec<ListedOperation>, Problem> {
        let requested = self.source.requested_namespaces();
        let is_all = requested == [None];
        let mut records = Vec::new();
        for namespace in requested {
            match self.records_in(namespace).await {
                Ok(found) => records.extend(found),
                Err(Problem::NotFound(_)) => return Err(self.no_records()),
                Err(refused @ Problem::Forbidden { .. }) => {
                    if !self.is_served().await {
                        return Err(self.no_records());
                    }
                    if is_all {
                        return self.records_one_by_one(refused, notes).await;
                    }
                    return Err(refused);
                }
                Err(problem) => return Err(problem),
            }
        }
        Ok(records)
    }

    fn no_records(&self) -> Problem {
        let files = &self.source.server.from_files;
        Problem::NoRecords {
            files: files.as_ref().map(|it| it.path.clone()),
        }
    }

    /// Reads the records with one request for each namespace, and skips namespaces whose records
    /// the user may not list. If the user may list records in no namespace, returns the error
    /// `refused`.
    async fn records_one_by_one(
        &self,
        refused: Problem,
        notes: &mut Vec<String>,
    ) -> Result<Vec<ListedOperation>, Problem> {
        let mut records = Vec::new();
        let mut allowed = Vec::new();
        for namespace in namespaces(&self.source.server).await {
            match self.records_in(Some(&namespace)).await {
                Ok(found) => {
                    records.extend(found);
                    allowed.push(namespace);
                }
                Err(Problem::Forbidden { .. }) => {}
                Err(Problem::NotFound(_)) => return Err(self.no_records()),
                Err(problem) => return Err(problem),
            }
        }
        if allowed.is_empty() {
            return Err(refused);
        }
        notes.push(format!(
            "you may not list records in all namespaces; showing those in {}",
            allowed.join(", ")
        ));
        Ok(records)
    }

    async fn records_in(&self, namespace: Option<&str>) -> Result<Vec<ListedOperation>, Problem> {
        let within = namespace.map_or_else(String::new, |it| format!("/namespaces/{}", escape(it)));
        let path = format!("/apis/{LIVE_GROUP}/{VERSION}{within}/{}", record::PLURAL);
        self.list(&path, &resource(), namespace).await
    }

    /// Reads the custom resources. If the cluster does not serve them, returns `NotFound`, although
    /// RBAC can refuse the list request with `Forbidden`.
    async fn custom_resources(&self) -> Result<Vec<ListedOperation>, Problem> {
        let group = Served::Crs.group();
        let path = format!("/apis/{group}/{VERSION}/{}", live::PLURAL);
        let listed = self.list(&path, Served::Crs.resource(), None).await;
        match listed {
            Err(refused @ Problem::Forbidden { .. })
                if !Served::Crs.is_served_by(&self.source.server).await =>
            {
                Err(Problem::NotFound(refused.to_string()))
            }
            listed => listed,
        }
    }

    /// Reads all pages of a list.
    async fn list(
        &self,
        path: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> Result<Vec<ListedOperation>, Problem> {
        // If the continue token has expired, the list is read again in one page.
        let mut limit = Some(PAGE_OBJECTS);
        loop {
            let mut found = Vec::new();
            let take = |item: &str| {
                found.push(ListedOperation::read(item, self.keep_raw)?);
                Ok(())
            };
            let options = ListOptions {
                limit,
                field_selector: self.field_selector,
                ..ListOptions::default()
            };
            let server = &self.source.server;
            match server.list(path, options, resource, namespace, take).await {
                Err(Problem::Expired) if limit.is_some() => limit = None,
                listed => return listed.map(|_| found),
            }
        }
    }

    /// Returns true if discovery contains the resource `operationrecords`, or if discovery cannot
    /// be read. The caller asks discovery after RBAC has refused a list, because RBAC also refuses
    /// to list a resource that does not exist.
    async fn is_served(&self) -> bool {
        let uri = format!("/apis/{LIVE_GROUP}/{VERSION}");
        let server = &self.source.server;
        match server.get::<APIResourceList>(&uri, &uri, None).await {
            Ok(list) => list.resources.iter().any(|it| it.name == record::PLURAL),
            Err(_) => true,
        }
    }
}
