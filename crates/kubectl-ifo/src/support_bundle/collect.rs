//! Collects the parts of a support bundle from a cluster. The index of the bundle lists all parts,
//! also those that could not be read.

use super::fields;
use crate::api_client::{ApiClient, ListCompleteness};
use crate::bundle_index::{BundleIndex, BundlePart, INDEX_FILE, OperationsPart, PartResult};
use crate::filter::Filters;
use crate::operation_source::{OperationSource, Served, encode as encode_operation, escape};
use crate::problem::Problem;
use crate::version::read_server_version;
use ifo_api::{GROUP, LIVE_GROUP, VERSION, live, record, ruleset};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

/// Default time limit of one request. `--request-timeout` overrides this limit.
const REQUEST_TIME: Duration = Duration::from_secs(30);

/// Time limit of the whole collection. Parts that were not read in this time are missing.
const TOTAL_TIME: Duration = Duration::from_mins(3);

/// Largest number of operations, and of records of completed operations. Further ones are left out.
const OPERATIONS: usize = 20_000;

/// Largest number of objects in another list, such as Events. Further objects are left out.
const OBJECTS: usize = 1_000;

/// Largest number of Pods whose logs are read. More than three replicas are unusual, but Pods of
/// earlier revisions can exist, too. For further Pods, the bundle has only the list of Pods.
const PODS: usize = 10;

/// Largest number of lines of the log of one container. The kubelet returns the newest lines.
const LOG_LINES: usize = 10_000;

/// Largest size of the log of one container in bytes. If the [`LOG_LINES`] newest lines are larger,
/// the kubelet leaves out the newest of them.
const LOG_BYTES: usize = 8 * 1024 * 1024;

/// The namespace of `ifo-apiserver`, if neither the user nor the APIService names it.
const DEFAULT_NAMESPACE: &str = "ifo-system";

/// A file of the bundle.
#[derive(Debug)]
pub(super) struct BundleFile {
    pub(super) path: String,
    pub(super) bytes: Vec<u8>,
}

/// What the user has chosen.
pub(super) struct Choices<'a> {
    /// The namespace of operations and records. None for all that the user may read.
    pub(super) namespace: Option<&'a String>,
    /// The namespace of `ifo-apiserver`.
    pub(super) server_namespace: Option<&'a String>,
    /// True if all fields and the logs are collected.
    pub(super) includes_text: bool,
}

/// The parts that were collected so far.
pub(super) struct BundleCollection<'a> {
    client: ApiClient,
    choices: Choices<'a>,
    pub(super) index: BundleIndex,
    pub(super) files: Vec<BundleFile>,
}

impl<'a> BundleCollection<'a> {
    /// Collects all parts. If a part cannot be read, the index has the reason. `metrics` is the file
    /// of the user.
    pub(super) async fn collect(
        mut client: ApiClient,
        choices: Choices<'a>,
        metrics: Option<Vec<u8>>,
        now: Timestamp,
    ) -> Self {
        client.timeout.get_or_insert(REQUEST_TIME);
        let mut bundle = Self {
            client,
            index: BundleIndex {
                created: now,
                redacted: !choices.includes_text,
                plugin_version: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
                server_version: None,
                server_namespace: DEFAULT_NAMESPACE.to_owned(),
                operations: OperationsPart::default(),
                parts: Vec::new(),
            },
            choices,
            files: Vec::new(),
        };
        if timeout(TOTAL_TIME, bundle.collect_all()).await.is_err() {
            bundle.add("further parts", Err(Problem::TimedOut(TOTAL_TIME)));
        }
        if let Some(metrics) = metrics {
            bundle.add("metrics.txt", Ok((metrics, false)));
        }
        let bytes = encode(&bundle.index);
        let path = INDEX_FILE.to_owned();
        bundle.files.push(BundleFile { path, bytes });
        bundle
    }

    async fn collect_all(&mut self) {
        match read_server_version(&self.client).await {
            Ok(version) => self.index.server_version = Some(version),
            Err(problem) => self.add("version of the server", Err(problem)),
        }
        self.list("Version", "versions.json", &["/version".to_owned()])
            .await;
        let service = format!("/apis/apiregistration.k8s.io/v1/apiservices/{VERSION}.{LIVE_GROUP}");
        let service = self
            .list("APIService", "cluster/apiservice.json", &[service])
            .await;
        let service = service
            .first()
            .map(|it| &it["spec"]["service"]["namespace"]);
        let service = service.and_then(Value::as_str).map(str::to_owned);
        if let Some(namespace) = self.choices.server_namespace.cloned().or(service) {
            self.index.server_namespace = namespace;
        }
        self.collect_operations().await;
        let plural = ruleset::PLURAL;
        let rule_sets = format!("/apis/{GROUP}/{VERSION}/{plural}");
        let file = format!("cluster/{plural}.json");
        self.list(ruleset::KIND, &file, &[rule_sets]).await;
        let crds = "customresourcedefinitions";
        let paths = [plural, live::PLURAL]
            .map(|it| format!("/apis/apiextensions.k8s.io/v1/{crds}/{it}.{GROUP}"));
        let file = format!("cluster/{crds}.json");
        self.list("CustomResourceDefinition", &file, &paths).await;
        self.collect_server().await;
    }

    /// Reads the objects of `ifo-apiserver`, and with `--include-text` its logs. Without this flag, no
    /// line of a log may leave, because every line can contain a name or a message.
    async fn collect_server(&mut self) {
        let namespace = escape(&self.index.server_namespace);
        let labelled = "labelSelector=app.kubernetes.io%2Fname%3Difo-apiserver";
        let named = "fieldSelector=metadata.name%3Difo-apiserver";
        let mut pods = Vec::new();
        for (kind, root, plural, selector) in [
            ("Deployment", "apis/apps/v1", "deployments", labelled),
            (
                "PodDisruptionBudget",
                "apis/policy/v1",
                "poddisruptionbudgets",
                labelled,
            ),
            ("Lease", "apis/coordination.k8s.io/v1", "leases", named),
            ("Event", "api/v1", "events", ""),
            ("Pod", "api/v1", "pods", labelled),
        ] {
            let path = format!("/{root}/namespaces/{namespace}/{plural}?{selector}");
            let file = format!("server/{plural}.json");
            pods = self.list(kind, &file, &[path]).await;
        }
        let pods = pods.iter().filter(|_| self.choices.includes_text);
        let names = pods.filter_map(|it| it["metadata"]["name"].as_str());
        for pod in names.take(PODS).map(escape).collect::<Vec<_>>() {
            for (name, more) in [("log", ""), ("previous.log", "&previous=true")] {
                let uri = format!(
                    "/api/v1/namespaces/{namespace}/pods/{pod}/log?container=ifo-apiserver\
                     &timestamps=true&tailLines={LOG_LINES}&limitBytes={LOG_BYTES}{more}"
                );
                let log = self.client.answer(&uri).await.map(|answer| answer.text);
                // Usually, there is no log of a previous container.
                if log.is_ok() || more.is_empty() {
                    let log = log.map(|it| {
                        let is_long = it.len() >= LOG_BYTES || it.lines().count() >= LOG_LINES;
                        (it.into_bytes(), is_long)
                    });
                    self.add(&format!("logs/{pod}.{name}"), log);
                }
            }
        }
    }

    /// Reads the operations, their records, and the operations that are stored as custom resources.
    async fn collect_operations(&mut self) {
        let filters = Filters::all_in(self.choices.namespace);
        let found = OperationSource::find(self.client.clone(), filters).await;
        let mut namespaces = self.choices.namespace.map(|it| vec![it.clone()]);
        let mut served = Served::Live;
        let file = |group: &str| format!("operations/{}.{group}.json", live::PLURAL);
        match found {
            Ok((source, listed)) => {
                namespaces = namespaces.or_else(|| source.namespaces.clone());
                served = source.served;
                let objects = listed.iter().take(OPERATIONS).map(encode_operation);
                let objects: Vec<Value> = objects.collect();
                let is_truncated = objects.len() < listed.len();
                let completeness = source.completeness();
                self.index.operations = OperationsPart {
                    result: PartResult::of_read(is_truncated),
                    count: objects.len(),
                    namespaces: namespaces.clone(),
                    is_complete: completeness == ListCompleteness::Complete && !is_truncated,
                    warning: completeness.incomplete().map(|it| it.to_string()),
                };
                let version = format!("{}/{VERSION}", served.group());
                let file = file(served.group());
                self.add_objects(&version, live::KIND, &file, objects, is_truncated);
            }
            Err(problem) => {
                self.index.operations.result = PartResult::of(&problem);
                self.add(&file(LIVE_GROUP), Err(problem));
            }
        }
        let plural = record::PLURAL;
        let records = match &namespaces {
            None => vec![format!("/apis/{LIVE_GROUP}/{VERSION}/{plural}")],
            Some(all) => all
                .iter()
                .map(|it| {
                    format!(
                        "/apis/{LIVE_GROUP}/{VERSION}/namespaces/{}/{plural}",
                        escape(it)
                    )
                })
                .collect(),
        };
        let records_file = format!("operations/{plural}.{LIVE_GROUP}.json");
        self.list(record::KIND, &records_file, &records).await;
        if served == Served::Live {
            let path = format!("/apis/{GROUP}/{VERSION}/{}", live::PLURAL);
            self.list(live::KIND, &file(GROUP), &[path]).await;
        }
    }

    /// Reads objects, and adds them as a list of their kind. The paths are those of lists, of which the
    /// first page is read, or of single objects. Returns the objects as they were read.
    async fn list(&mut self, kind: &str, file: &str, paths: &[String]) -> Vec<Value> {
        let limit = if file.starts_with("operations/") {
            OPERATIONS
        } else {
            OBJECTS
        };
        match self.read(paths, limit).await {
            // For example, the namespace of the server is wrong.
            Ok((objects, _)) if objects.is_empty() && file.starts_with("server/") => {
                let problem = Problem::NotFound("the list is empty".to_owned());
                self.add(file, Err(problem));
                objects
            }
            Ok((objects, is_truncated)) => {
                let api_version = match paths[0].split('/').collect::<Vec<_>>().as_slice() {
                    ["", "apis", group, version, ..] => format!("{group}/{version}"),
                    _ => "v1".to_owned(),
                };
                self.add_objects(&api_version, kind, file, objects.clone(), is_truncated);
                objects
            }
            Err(problem) => {
                self.add(file, Err(problem));
                Vec::new()
            }
        }
    }

    /// Reads at most `limit` objects. Also returns true if objects were left out. An object that does
    /// not exist is an error only if no other object exists.
    async fn read(&self, paths: &[String], limit: usize) -> Result<(Vec<Value>, bool), Problem> {
        let (mut objects, mut is_truncated) = (Vec::new(), false);
        let mut missing = None;
        for path in paths {
            let separator = if path.contains('?') { '&' } else { '?' };
            let uri = format!("{path}{separator}limit={limit}");
            match self.client.get::<Value>(&uri).await {
                Ok(mut answer) => {
                    let next = answer.pointer("/metadata/continue").and_then(Value::as_str);
                    is_truncated |= next.is_some_and(|token| !token.is_empty());
                    match answer["items"].take() {
                        Value::Array(items) => objects.extend(items),
                        _ => objects.push(answer),
                    }
                }
                Err(problem @ Problem::NotFound(_)) => missing = Some(problem),
                Err(problem) => return Err(problem),
            }
        }
        is_truncated |= objects.len() > limit;
        objects.truncate(limit);
        match missing {
            Some(problem) if objects.is_empty() => Err(problem),
            _ => Ok((objects, is_truncated)),
        }
    }

    /// Adds objects as a list of their kind, without what may not leave.
    fn add_objects(
        &mut self,
        api_version: &str,
        kind: &str,
        file: &str,
        mut items: Vec<Value>,
        is_truncated: bool,
    ) {
        for item in &mut items {
            // Objects in a list can lack `apiVersion` and `kind`, so both fields are set.
            item["apiVersion"] = json!(api_version);
            item["kind"] = json!(kind);
            // This field is not needed, and is often larger than the rest of the object.
            if let Some(metadata) = item.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
        }
        if !self.choices.includes_text {
            fields::keep(kind, &mut items);
        }
        let kind = format!("{kind}List");
        let list = json!({"apiVersion": api_version, "kind": kind, "items": items});
        self.add(file, Ok((encode(&list), is_truncated)));
    }

    /// Adds a file to the bundle, and its result to the index. The flag is true if a limit was reached.
    /// The index has the message of a problem only with `--include-text`, because it can contain the
    /// name of the user.
    fn add(&mut self, path: &str, read: Result<(Vec<u8>, bool), Problem>) {
        let path = path.to_owned();
        let (result, message) = match &read {
            Ok((_, is_truncated)) => (PartResult::of_read(*is_truncated), String::new()),
            Err(problem) => {
                let message = self.choices.includes_text.then(|| problem.to_string());
                (PartResult::of(problem), message.unwrap_or_default())
            }
        };
        self.index.parts.push(BundlePart {
            path: path.clone(),
            result,
            message,
        });
        let file = read.ok().map(|(bytes, _)| BundleFile { path, bytes });
        self.files.extend(file);
    }
}

/// Encodes a value whose maps have only strings as keys, so that encoding cannot fail.
fn encode(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}
