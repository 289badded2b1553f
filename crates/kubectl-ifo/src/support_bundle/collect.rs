//! Collects the parts of a support bundle from a cluster. A part has one kind of content, such as
//! the rule sets or a log. The index of the bundle lists all parts, also those that could not be
//! read.

mod operations;
mod server;

use super::DEFAULT_NAMESPACE;
use super::access;
use super::index::{BundleIndex, BundlePart, INDEX_FILE, OperationsPart, PartResult};
use super::limits::{LIST_BYTES, OBJECTS};
use super::output::BundleFile;
use super::redact::{ObjectPolicy, Redactor};
use super::send_requests::{BundleClient, FetchFailure, parse};
use crate::api_client::ApiClient;
use crate::problem::Problem;
use crate::version::read_server_version;
use ifo_api::{GROUP, LIVE_GROUP, VERSION, live, ruleset};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

/// The values of the flags that determine the content of the bundle.
#[derive(Debug)]
pub(super) struct BundleScope {
    /// The namespace of `-n`. None for all namespaces.
    pub(super) namespace: Option<String>,
    /// The namespace of `ifo-apiserver`. None if the flag `--server-namespace` was not given.
    pub(super) server_namespace: Option<String>,
    /// True if the bundle keeps names and messages. False if it hides them.
    pub(super) includes_text: bool,
    /// The text of the file of `--metrics`. None if the flag was not given.
    pub(super) metrics: Option<String>,
}

/// The parts that were collected so far.
pub(super) struct BundleCollection {
    client: BundleClient,
    redactor: Redactor,
    server_namespace: String,
    parts: Vec<BundlePart>,
    files: Vec<BundleFile>,
    created: Timestamp,
    server_version: Option<String>,
    operations: OperationsPart,
    /// The namespaces whose operations were listed, with their real names (not pseudonyms). None
    /// for all namespaces, or if the operations could not be read.
    listed_namespaces: Option<Vec<String>>,
}

/// The objects of a list.
struct BundleList {
    items: Vec<Value>,
    /// True if objects were left out because of a limit.
    is_truncated: bool,
}

impl BundlePart {
    /// Returns true if the summary must name the part as missing or incomplete.
    ///
    /// The summary does not report missing custom resources and missing logs of previous
    /// containers, because they usually do not exist. If a log does not exist, the kube-apiserver
    /// answers 400, so the result of the part is `Failed`.
    pub(super) fn is_named_in_summary(&self) -> bool {
        let is_optional = self.what == CUSTOM_RESOURCES || self.what.starts_with(PREVIOUS_LOG);
        match self.result {
            PartResult::Read => false,
            PartResult::NotFound | PartResult::Failed => !is_optional,
            _ => true,
        }
    }
}

const CUSTOM_RESOURCES: &str = "custom resources";
const PREVIOUS_LOG: &str = "previous log";
const RECORDS_PART: &str = "records of completed operations";

impl BundleCollection {
    /// Collects all parts. If a part cannot be read, records the reason and continues.
    pub(super) async fn collect(client: ApiClient, scope: BundleScope, now: Timestamp) -> Self {
        let mut bundle = Self {
            client: BundleClient::new(client),
            redactor: Redactor::new(scope.includes_text),
            server_namespace: DEFAULT_NAMESPACE.to_owned(),
            parts: Vec::new(),
            files: Vec::new(),
            created: now,
            server_version: None,
            operations: OperationsPart {
                result: PartResult::Skipped,
                count: 0,
                namespaces: None,
                is_complete: false,
                warning: None,
            },
            listed_namespaces: None,
        };
        bundle.collect_versions().await;
        let service = bundle.read_api_service().await;
        if let Some(namespace) = scope.server_namespace.or(service) {
            bundle.server_namespace = namespace;
        }
        let rule_sets = bundle.collect_rule_sets().await;
        bundle.collect_operations(scope.namespace.as_ref()).await;
        bundle.collect_records(scope.namespace.as_ref()).await;
        bundle.collect_custom_resources().await;
        let account = bundle
            .collect_server_objects(scope.metrics.as_deref())
            .await;
        bundle.collect_crds().await;
        bundle.collect_access(account.as_deref(), &rule_sets).await;
        bundle
    }

    /// Returns the index, and all files of the bundle. The first file contains the index.
    pub(super) fn finish(self) -> Result<(BundleIndex, Vec<BundleFile>), Problem> {
        let index = BundleIndex {
            created: self.created,
            redacted: self.redactor.is_active(),
            plugin_version: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
            server_version: self.server_version,
            server_namespace: self.redactor.name(&self.server_namespace),
            operations: self.operations,
            parts: self.parts,
        };
        let mut files = self.files;
        let bytes = encode(&index).map_err(|error| Problem::Other(error.to_string()))?;
        files.insert(
            0,
            BundleFile {
                path: INDEX_FILE.to_owned(),
                bytes,
            },
        );
        Ok((index, files))
    }

    /// Records a part that was read, and adds its file.
    fn add(&mut self, what: &str, path: &str, bytes: Vec<u8>, is_truncated: bool) {
        self.parts.push(BundlePart {
            what: what.to_owned(),
            path: Some(path.to_owned()),
            result: if is_truncated {
                PartResult::Truncated
            } else {
                PartResult::Read
            },
            code: None,
            message: String::new(),
        });
        self.files.push(BundleFile {
            path: path.to_owned(),
            bytes,
        });
    }

    /// Records a part that could not be read.
    fn record_failure(&mut self, what: &str, failure: &FetchFailure) {
        self.parts.push(BundlePart {
            what: what.to_owned(),
            path: None,
            result: failure.result,
            code: failure.code,
            message: self.redactor.text(&failure.message),
        });
    }

    fn add_json(&mut self, what: &str, path: &str, value: &impl Serialize, is_truncated: bool) {
        match encode(value) {
            Ok(bytes) => self.add(what, path, bytes, is_truncated),
            Err(error) => {
                let failure = FetchFailure::new(PartResult::Failed, &error);
                self.record_failure(what, &failure);
            }
        }
    }

    /// Redacts the objects, and adds them as a list of the given kind.
    fn add_list(
        &mut self,
        what: &str,
        path: &str,
        (api_version, kind): (&str, &str),
        list: BundleList,
        policy: ObjectPolicy,
    ) {
        let BundleList {
            mut items,
            is_truncated,
        } = list;
        for item in &mut items {
            // Objects in a list can lack `apiVersion` and `kind`, so both fields are set.
            item["apiVersion"] = json!(api_version);
            item["kind"] = json!(kind);
            self.redactor.object(item, policy);
        }
        let list =
            json!({"apiVersion": api_version, "kind": format!("{kind}List"), "items": items});
        self.add_json(what, path, &list, is_truncated);
    }

    /// Reads the first page of a list, with at most [`OBJECTS`] objects.
    async fn list(&self, uri: &str) -> Result<BundleList, FetchFailure> {
        self.list_at_most(uri, OBJECTS).await
    }

    /// Reads the first page of a list, with at most `limit` objects.
    async fn list_at_most(&self, uri: &str, limit: usize) -> Result<BundleList, FetchFailure> {
        let separator = if uri.contains('?') { '&' } else { '?' };
        let uri = format!("{uri}{separator}limit={limit}");
        let mut list = parse(&self.client.get(&uri, LIST_BYTES).await?)?;
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

    async fn collect_versions(&mut self) {
        let kubernetes = self
            .client
            .get("/version", LIST_BYTES)
            .await
            .and_then(|it| parse(&it));
        let server = self
            .client
            .within(read_server_version(&self.client.client))
            .await;
        let server = match server {
            Ok(Ok(version)) => Some(version),
            Ok(Err(problem)) => {
                self.record_failure("version of the server", &failure_of(&problem));
                None
            }
            Err(failure) => {
                self.record_failure("version of the server", &failure);
                None
            }
        };
        let kubernetes = match kubernetes {
            Ok(version) => version,
            Err(failure) => {
                self.record_failure("version of the kube-apiserver", &failure);
                Value::Null
            }
        };
        // The other fields of `/version` are left out. They can name the machine on which the
        // kube-apiserver was built.
        let versions = json!({
            "plugin": concat!("v", env!("CARGO_PKG_VERSION")),
            "server": server.as_deref().map(|it| self.version_text(it)),
            "kubernetes": kubernetes["gitVersion"].as_str().map(|it| self.version_text(it)),
            "platform": kubernetes["platform"].as_str().map(|it| self.version_text(it)),
        });
        self.server_version = server.map(|it| self.version_text(&it));
        self.add_json("versions", "versions.json", &versions, false);
    }

    /// Returns `version` if it has the form of a version. Otherwise returns the redacted text.
    fn version_text(&self, version: &str) -> String {
        let is_version = |c: char| c.is_ascii_alphanumeric() || "+-._/".contains(c);
        if version.len() < 64 && version.chars().all(is_version) {
            version.to_owned()
        } else {
            self.redactor.text(version)
        }
    }

    /// Reads the APIService, which registers `ifo-apiserver` in the kube-apiserver. Returns the
    /// namespace of `ifo-apiserver`. Returns None if the APIService cannot be read or names no
    /// namespace.
    async fn read_api_service(&mut self) -> Option<String> {
        let what = "APIService";
        let name = format!("{VERSION}.{LIVE_GROUP}");
        let uri = format!("/apis/apiregistration.k8s.io/v1/apiservices/{name}");
        match self
            .client
            .get(&uri, LIST_BYTES)
            .await
            .and_then(|it| parse(&it))
        {
            Ok(mut object) => {
                let namespace = object.pointer("/spec/service/namespace");
                let namespace = namespace.and_then(Value::as_str).map(str::to_owned);
                self.redactor.object(&mut object, ObjectPolicy::Api);
                self.add_json(what, "cluster/apiservice.json", &object, false);
                namespace
            }
            Err(failure) => {
                self.record_failure(what, &failure);
                None
            }
        }
    }

    async fn collect_rule_sets(&mut self) -> Vec<Value> {
        let uri = format!("/apis/{GROUP}/{VERSION}/{}", ruleset::PLURAL);
        match self.list(&uri).await {
            Ok(list) => {
                let rule_sets = list.items.clone();
                let kind = (&*format!("{GROUP}/{VERSION}"), ruleset::KIND);
                let path = "cluster/operationrulesets.json";
                self.add_list("rule sets", path, kind, list, ObjectPolicy::RuleSet);
                rule_sets
            }
            Err(failure) => {
                self.record_failure("rule sets", &failure);
                Vec::new()
            }
        }
    }

    /// Reads the CRDs of this project, without their schemas.
    async fn collect_crds(&mut self) {
        let mut found = Vec::new();
        for plural in [ruleset::PLURAL, live::PLURAL] {
            let name = format!("{plural}.{GROUP}");
            let uri = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
            match self
                .client
                .get(&uri, LIST_BYTES)
                .await
                .and_then(|it| parse(&it))
            {
                Ok(definition) => {
                    let mut definition = summary_of(&definition);
                    self.redactor.object(&mut definition, ObjectPolicy::Api);
                    found.push(definition);
                }
                // The CRD of InFlightOperations is usually missing, so its absence is no failure.
                // In most clusters, it exists only if `ifo-apiserver` writes operations as custom
                // resources (persistence mode).
                Err(failure)
                    if failure.result == PartResult::NotFound && plural == live::PLURAL => {}
                Err(failure) => self.record_failure("CustomResourceDefinitions", &failure),
            }
        }
        if !found.is_empty() {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": found});
            let path = "cluster/customresourcedefinitions.json";
            self.add_json("CustomResourceDefinitions", path, &list, false);
        }
    }

    async fn collect_access(&mut self, account: Option<&str>, rule_sets: &[Value]) {
        let namespace = self.server_namespace.clone();
        let outcome =
            access::review(&self.client, &self.redactor, &namespace, account, rule_sets).await;
        if let Some(failure) = &outcome.server_failure {
            self.record_failure("rights of the server", failure);
        }
        if let Some(failure) = &outcome.user_failure {
            self.record_failure("rights of the user", failure);
        }
        let what = "results of access reviews";
        self.add_json(what, "access.json", &outcome.report, outcome.is_truncated);
    }
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn failure_of(problem: &Problem) -> FetchFailure {
    FetchFailure::new(PartResult::of(problem), &problem)
}

/// Returns the names, versions and conditions of a CRD.
fn summary_of(definition: &Value) -> Value {
    let versions = definition
        .pointer("/spec/versions")
        .and_then(Value::as_array);
    let versions = versions
        .into_iter()
        .flatten()
        .map(|it| json!({"name": it["name"], "served": it["served"], "storage": it["storage"]}));
    let conditions = definition
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let conditions = conditions
        .into_iter()
        .flatten()
        .map(|it| json!({"type": it["type"], "status": it["status"], "reason": it["reason"]}));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": definition["metadata"]["name"]},
        "spec": {
            "group": definition["spec"]["group"],
            "scope": definition["spec"]["scope"],
            "names": {"plural": definition["spec"]["names"]["plural"],
                      "kind": definition["spec"]["names"]["kind"]},
            "versions": versions.collect::<Vec<_>>(),
        },
        "status": {
            "storedVersions": definition["status"]["storedVersions"],
            "conditions": conditions.collect::<Vec<_>>(),
        },
    })
}
