//! Collects the parts of a support bundle from a cluster. A part has one kind of content, such as
//! the rule sets or a log. The index of the bundle lists all parts, also those that could not be
//! read.

use super::fields;
use super::output::BundleFile;
use crate::api_client::ApiClient;
use crate::bundle_index::{BundleIndex, BundlePart, INDEX_FILE, OperationsPart, PartResult};
use crate::problem::Problem;
use crate::version::read_server_version;
use ifo_api::{GROUP, LIVE_GROUP, VERSION, live, ruleset};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Default time limit of one request. `--request-timeout` overrides this limit.
const REQUEST_TIME: Duration = Duration::from_secs(30);

/// Time limit of the whole collection. The index of the bundle records the parts that were not read
/// in this time as missing.
const TOTAL_TIME: Duration = Duration::from_mins(3);

/// Largest number of objects in a list, such as Events. Further objects are left out.
const OBJECTS: usize = 1_000;

/// The namespace in which `deploy/` installs the server (`ifo-apiserver`).
const DEFAULT_NAMESPACE: &str = "ifo-system";

/// The parts that were collected so far.
pub(super) struct BundleCollection {
    pub(super) client: ApiClient,
    pub(super) deadline: Instant,
    pub(super) includes_text: bool,
    pub(super) server_namespace: String,
    pub(super) index: BundleIndex,
    files: Vec<BundleFile>,
}

/// The objects of a list.
pub(super) struct BundleList {
    pub(super) items: Vec<Value>,
    /// True if objects were left out because of a limit.
    pub(super) is_truncated: bool,
}

/// The name, the file and the kind of a part with a list.
#[derive(Clone, Copy)]
pub(super) struct ListPart<'a> {
    pub(super) what: &'a str,
    pub(super) path: &'a str,
    pub(super) api_version: &'a str,
    pub(super) kind: &'a str,
}

pub(super) const CUSTOM_RESOURCES: &str = "custom resources";

impl BundleCollection {
    /// Creates an empty collection. The time limit begins now.
    pub(super) fn new(mut client: ApiClient, includes_text: bool, now: Timestamp) -> Self {
        client.timeout.get_or_insert(REQUEST_TIME);
        Self {
            client,
            deadline: Instant::now() + TOTAL_TIME,
            includes_text,
            server_namespace: DEFAULT_NAMESPACE.to_owned(),
            files: Vec::new(),
            index: BundleIndex {
                created: now,
                redacted: !includes_text,
                plugin_version: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
                server_version: None,
                server_namespace: String::new(),
                operations: OperationsPart {
                    result: PartResult::Skipped,
                    count: 0,
                    namespaces: None,
                    is_complete: false,
                    warning: None,
                },
                parts: Vec::new(),
            },
        }
    }

    /// Returns the index, and all files of the bundle. The first file contains the index.
    pub(super) fn finish(mut self) -> Result<(BundleIndex, Vec<BundleFile>), Problem> {
        self.index.server_namespace = self.server_namespace;
        let bytes = encode(&self.index).map_err(|error| Problem::Other(error.to_string()))?;
        let path = INDEX_FILE.to_owned();
        self.files.insert(0, BundleFile { path, bytes });
        Ok((self.index, self.files))
    }

    /// Waits for an answer until the time limit of the collection is reached.
    pub(super) async fn within<T>(
        &self,
        answer: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        let late = |_| Err(Problem::TimedOut(TOTAL_TIME));
        timeout_at(self.deadline, answer).await.unwrap_or_else(late)
    }

    /// Sends a GET request, and returns the body. `resource` names the resource in error messages.
    pub(super) async fn get(&self, uri: &str, resource: &str) -> Result<String, Problem> {
        let answer = self.client.answer(uri, resource, None);
        self.within(answer).await.map(|it| it.text)
    }

    async fn get_json(&self, uri: &str, resource: &str) -> Result<Value, Problem> {
        self.within(self.client.get(uri, resource, None)).await
    }

    /// Records a part without a file. The bundle keeps the message only with `--include-text`,
    /// because it can contain the name of the user.
    pub(super) fn record(&mut self, what: &str, result: PartResult, message: &str) {
        let message = if self.includes_text { message } else { "" };
        self.index.parts.push(BundlePart {
            what: what.to_owned(),
            path: None,
            result,
            message: message.to_owned(),
        });
    }

    /// Records a part that could not be read.
    pub(super) fn record_problem(&mut self, what: &str, problem: &Problem) {
        self.record(what, PartResult::of(problem), &problem.to_string());
    }

    /// Records a part that was read, and adds its file.
    pub(super) fn add(&mut self, what: &str, path: &str, bytes: Vec<u8>, is_truncated: bool) {
        let path = path.to_owned();
        self.index.parts.push(BundlePart {
            what: what.to_owned(),
            path: Some(path.clone()),
            result: PartResult::of_read(is_truncated),
            message: String::new(),
        });
        self.files.push(BundleFile { path, bytes });
    }

    fn add_json(&mut self, what: &str, path: &str, value: &Value, is_truncated: bool) {
        match encode(value) {
            Ok(bytes) => self.add(what, path, bytes, is_truncated),
            Err(error) => self.record(what, PartResult::Failed, &error.to_string()),
        }
    }

    /// Removes from an object what may not leave. `managedFields` is removed from whole objects too,
    /// because it is not needed and is often larger than the rest of the object.
    fn leave_out(&self, kind: &str, object: &mut Value) {
        if !self.includes_text {
            fields::keep(kind, object);
        } else if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    }

    /// Adds objects as a list of their kind.
    pub(super) fn add_list(&mut self, part: ListPart<'_>, list: BundleList) {
        let mut items = list.items;
        for item in &mut items {
            // Objects in a list can lack `apiVersion` and `kind`, so both fields are set.
            item["apiVersion"] = json!(part.api_version);
            item["kind"] = json!(part.kind);
            self.leave_out(part.kind, item);
        }
        let kind = format!("{}List", part.kind);
        let value = json!({"apiVersion": part.api_version, "kind": kind, "items": items});
        self.add_json(part.what, part.path, &value, list.is_truncated);
    }

    /// Reads the first page of a list, with at most [`OBJECTS`] objects.
    pub(super) async fn list(&self, uri: &str, resource: &str) -> Result<BundleList, Problem> {
        self.list_at_most(uri, resource, OBJECTS).await
    }

    /// Reads the first page of a list, with at most `limit` objects.
    pub(super) async fn list_at_most(
        &self,
        uri: &str,
        resource: &str,
        limit: usize,
    ) -> Result<BundleList, Problem> {
        let separator = if uri.contains('?') { '&' } else { '?' };
        let uri = format!("{uri}{separator}limit={limit}");
        let mut list = self.get_json(&uri, resource).await?;
        let next = list.pointer("/metadata/continue").and_then(Value::as_str);
        let is_truncated = next.is_some_and(|token| !token.is_empty());
        let items = match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        Ok(BundleList {
            items,
            is_truncated,
        })
    }

    pub(super) async fn collect_versions(&mut self) {
        let server = self.within(read_server_version(&self.client)).await;
        if let Err(problem) = &server {
            self.record_problem("version of the server", problem);
        }
        let kubernetes = self.get_json("/version", "/version").await;
        if let Err(problem) = &kubernetes {
            self.record_problem("version of the kube-apiserver", problem);
        }
        let kubernetes = kubernetes.unwrap_or_default();
        let mut versions = json!({
            "plugin": self.index.plugin_version,
            "server": server.ok(),
            "kubernetes": kubernetes["gitVersion"],
            "platform": kubernetes["platform"],
        });
        fields::keep("Versions", &mut versions);
        self.index.server_version = versions["server"].as_str().map(str::to_owned);
        self.add_json("versions", "versions.json", &versions, false);
    }

    /// Reads the APIService, which registers `ifo-apiserver` in the kube-apiserver. Returns the
    /// namespace of `ifo-apiserver`. Returns None if the APIService cannot be read or names no
    /// namespace.
    pub(super) async fn collect_api_service(&mut self) -> Option<String> {
        let name = format!("{VERSION}.{LIVE_GROUP}");
        let uri = format!("/apis/apiregistration.k8s.io/v1/apiservices/{name}");
        let read = self.get_json(&uri, "apiservices.apiregistration.k8s.io");
        match read.await {
            Ok(mut object) => {
                let namespace = object.pointer("/spec/service/namespace");
                let namespace = namespace.and_then(Value::as_str).map(str::to_owned);
                self.leave_out("APIService", &mut object);
                self.add_json("APIService", "cluster/apiservice.json", &object, false);
                namespace
            }
            Err(problem) => {
                self.record_problem("APIService", &problem);
                None
            }
        }
    }

    pub(super) async fn collect_rule_sets(&mut self) {
        let api_version = format!("{GROUP}/{VERSION}");
        let uri = format!("/apis/{api_version}/{}", ruleset::PLURAL);
        let part = ListPart {
            what: "rule sets",
            path: "cluster/operationrulesets.json",
            api_version: &api_version,
            kind: ruleset::KIND,
        };
        match self.list(&uri, ruleset::PLURAL).await {
            Ok(list) => self.add_list(part, list),
            Err(problem) => self.record_problem(part.what, &problem),
        }
    }

    /// Reads the CRDs of this project.
    pub(super) async fn collect_crds(&mut self) {
        let mut found = BundleList {
            items: Vec::new(),
            is_truncated: false,
        };
        let part = ListPart {
            what: "CustomResourceDefinitions",
            path: "cluster/customresourcedefinitions.json",
            api_version: "apiextensions.k8s.io/v1",
            kind: "CustomResourceDefinition",
        };
        for plural in [ruleset::PLURAL, live::PLURAL] {
            let all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            let uri = format!("{all}/{plural}.{GROUP}");
            let resource = "customresourcedefinitions.apiextensions.k8s.io";
            match self.get_json(&uri, resource).await {
                Ok(definition) => found.items.push(definition),
                // In most clusters, the CRD of InFlightOperations exists only if `ifo-apiserver`
                // writes operations as custom resources (persistence mode).
                Err(Problem::NotFound(_)) if plural == live::PLURAL => {}
                Err(problem) => self.record_problem(part.what, &problem),
            }
        }
        if !found.items.is_empty() {
            self.add_list(part, found);
        }
    }
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    Ok(bytes)
}
