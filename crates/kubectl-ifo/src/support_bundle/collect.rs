//! Collects the parts of a support bundle from a cluster. The index of the bundle lists all parts,
//! also those that could not be read.

use super::fields;
use super::parts::{CUSTOM_RESOURCES, ListPart, OPERATIONS};
use crate::api_client::{ApiClient, ListCompleteness};
use crate::bundle_index::{BundleIndex, BundlePart, INDEX_FILE, OperationsPart, PartResult};
use crate::filter::Filters;
use crate::operation_source::{OperationSource, Served, encode as encode_operation, escape};
use crate::problem::Problem;
use crate::version::read_server_version;
use ifo_api::{GROUP, LIVE_GROUP};
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

/// Largest number of Pods whose logs are read. More than three replicas are unusual, but Pods of
/// earlier revisions can exist, too. For further Pods, the bundle has only the list of Pods.
const PODS: usize = 10;

/// Largest number of lines of the log of one container. The kubelet returns the newest lines.
const LOG_LINES: usize = 10_000;

/// Largest size of the log of one container in bytes. If the [`LOG_LINES`] newest lines are larger,
/// the kubelet leaves out the newest of them.
const LOG_BYTES: usize = 8 * 1024 * 1024;

/// The beginning of the names of the parts with the logs of containers that ran before.
pub(super) const PREVIOUS_LOG: &str = "previous log";

/// A file of the bundle.
#[derive(Debug)]
pub(super) struct BundleFile {
    pub(super) path: String,
    pub(super) bytes: Vec<u8>,
}

/// The parts that were collected so far.
pub(super) struct BundleCollection {
    client: ApiClient,
    deadline: Instant,
    includes_text: bool,
    pub(super) index: BundleIndex,
    pub(super) files: Vec<BundleFile>,
}

impl BundleCollection {
    /// Creates an empty collection. The time limit begins now.
    pub(super) fn new(mut client: ApiClient, includes_text: bool, now: Timestamp) -> Self {
        client.timeout.get_or_insert(REQUEST_TIME);
        Self {
            client,
            deadline: Instant::now() + TOTAL_TIME,
            includes_text,
            files: Vec::new(),
            index: BundleIndex::new(now, includes_text),
        }
    }

    /// Adds the file with the index.
    pub(super) fn add_index(&mut self) {
        let bytes = encode(&self.index);
        let path = INDEX_FILE.to_owned();
        self.files.push(BundleFile { path, bytes });
    }

    /// Waits for an answer until the time limit of the collection is reached.
    async fn within<T>(
        &self,
        answer: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        let late = |_| Err(Problem::TimedOut(TOTAL_TIME));
        timeout_at(self.deadline, answer).await.unwrap_or_else(late)
    }

    /// Records a part. If it was read, adds the file `path` with these bytes. The flag is true if a
    /// limit was reached. The bundle keeps the message of a problem only with `--include-text`,
    /// because it can contain the name of the user.
    fn add(&mut self, what: &str, path: &str, read: Result<(Vec<u8>, bool), Problem>) {
        let mut part = BundlePart {
            what: what.to_owned(),
            ..BundlePart::default()
        };
        match read {
            Ok((bytes, is_truncated)) => {
                part.result = PartResult::of_read(is_truncated);
                part.path = Some(path.to_owned());
                let path = path.to_owned();
                self.files.push(BundleFile { path, bytes });
            }
            Err(problem) => {
                part.result = PartResult::of(&problem);
                let message = self.includes_text.then(|| problem.to_string());
                part.message = message.unwrap_or_default();
            }
        }
        self.index.parts.push(part);
    }

    /// Records a part that was not requested.
    pub(super) fn skip(&mut self, what: &str) {
        self.index.parts.push(BundlePart {
            what: what.to_owned(),
            ..BundlePart::default()
        });
    }

    /// Adds the metrics that the user has read.
    pub(super) fn add_metrics(&mut self, text: &str) {
        let kept = Some(text.to_owned()).filter(|_| self.includes_text);
        let kept = kept.unwrap_or_else(|| fields::kept_metrics(text));
        self.add("metrics", "metrics.txt", Ok((kept.into_bytes(), false)));
    }

    /// Adds objects as a list of their kind, without what may not leave.
    fn add_objects(&mut self, part: &ListPart, mut items: Vec<Value>, is_truncated: bool) {
        for item in &mut items {
            // Objects in a list can lack `apiVersion` and `kind`, so both fields are set.
            item["apiVersion"] = json!(part.api_version);
            item["kind"] = json!(part.kind);
            // This field is not needed, and is often larger than the rest of the object.
            if let Some(metadata) = item.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
        }
        if !self.includes_text {
            fields::keep(part.kind, &mut items);
        }
        let kind = format!("{}List", part.kind);
        let list = json!({"apiVersion": part.api_version, "kind": kind, "items": items});
        self.add(part.what, &part.path, Ok((encode(&list), is_truncated)));
    }

    /// Reads and adds a part. Returns its objects.
    pub(super) async fn collect(&mut self, part: &ListPart) -> Vec<Value> {
        match self.read(part).await {
            Ok((objects, is_truncated)) => {
                self.add_objects(part, objects.clone(), is_truncated);
                objects
            }
            Err(problem) => {
                self.add(part.what, &part.path, Err(problem));
                Vec::new()
            }
        }
    }

    /// Reads the first page of each list, or each object. Also returns true if objects were left
    /// out because of a limit.
    async fn read(&self, part: &ListPart) -> Result<(Vec<Value>, bool), Problem> {
        let (mut objects, mut is_truncated) = (Vec::new(), false);
        let mut missing = None;
        for uri in &part.uris {
            let separator = if uri.contains('?') { '&' } else { '?' };
            let uri = format!("{uri}{separator}limit={}", part.limit);
            let answer = self.client.get::<Value>(&uri);
            match self.within(answer).await {
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
        let is_required = part.path.starts_with("server/") && part.kind != "Event";
        match missing {
            Some(problem) if objects.is_empty() => return Err(problem),
            None if objects.is_empty() && is_required => {
                return Err(Problem::NotFound("the list is empty".to_owned()));
            }
            _ => {}
        }
        is_truncated |= objects.len() > part.limit;
        objects.truncate(part.limit);
        Ok((objects, is_truncated))
    }

    pub(super) async fn collect_versions(&mut self) {
        let server = self.within(read_server_version(&self.client)).await;
        let kubernetes = self.client.get::<Value>("/version");
        let kubernetes = self.within(kubernetes).await;
        let of_kubernetes = |field: &str| kubernetes.as_ref().ok().map(|it| it[field].clone());
        let mut versions = [json!({
            "plugin": self.index.plugin_version,
            "server": server.as_ref().ok(),
            "kubernetes": of_kubernetes("gitVersion"),
            "platform": of_kubernetes("platform"),
        })];
        fields::keep("Versions", &mut versions);
        let [versions] = versions;
        self.index.server_version = versions["server"].as_str().map(str::to_owned);
        for (what, failed) in [
            ("version of the server", server.err()),
            ("version of the kube-apiserver", kubernetes.err()),
        ] {
            if let Some(problem) = failed {
                self.add(what, "", Err(problem));
            }
        }
        self.add("versions", "versions.json", Ok((encode(&versions), false)));
    }

    /// Reads the operations in `namespace`, their records, and the operations that are stored as
    /// custom resources. If `namespace` is None, reads all that the user may read.
    pub(super) async fn collect_operations(&mut self, namespace: Option<&String>) {
        let filters = Filters::all_in(namespace);
        let found = OperationSource::find(self.client.clone(), filters);
        let mut namespaces = namespace.map(|it| vec![it.clone()]);
        let mut served = Served::Live;
        match self.within(found).await {
            Ok((source, listed)) => {
                namespaces = namespaces.or_else(|| source.namespaces.clone());
                served = source.served;
                let objects: Vec<Value> = listed
                    .iter()
                    .take(OPERATIONS)
                    .map(encode_operation)
                    .collect();
                let is_truncated = objects.len() < listed.len();
                let completeness = source.completeness();
                self.index.operations = OperationsPart {
                    result: PartResult::of_read(is_truncated),
                    count: objects.len(),
                    namespaces: namespaces.clone(),
                    is_complete: completeness == ListCompleteness::Complete && !is_truncated,
                    warning: completeness.incomplete().map(|it| it.to_string()),
                };
                let part = match served {
                    Served::Live => ListPart::operations("operations", LIVE_GROUP),
                    Served::Crs => ListPart::operations(CUSTOM_RESOURCES, GROUP),
                };
                self.add_objects(&part, objects, is_truncated);
            }
            Err(problem) => {
                self.index.operations.result = PartResult::of(&problem);
                self.add("operations", "", Err(problem));
            }
        }
        self.collect(&ListPart::records(namespaces.as_deref()))
            .await;
        if served == Served::Live {
            self.collect(&ListPart::operations(CUSTOM_RESOURCES, GROUP))
                .await;
        }
    }

    /// Reads the logs of Pods with `--include-text`. Without this flag, no line may leave, because
    /// every line can contain a name or a message.
    pub(super) async fn collect_logs(&mut self, pods: &[Value]) {
        let names = pods.iter().filter_map(|it| it["metadata"]["name"].as_str());
        if !self.includes_text || pods.is_empty() {
            return self.skip("logs");
        }
        for pod in names.take(PODS) {
            self.collect_log(pod, "log", "").await;
            self.collect_log(pod, PREVIOUS_LOG, "&previous=true").await;
        }
    }

    async fn collect_log(&mut self, pod: &str, what: &str, more: &str) {
        let uri = format!(
            "/api/v1/namespaces/{}/pods/{}/log?container=ifo-apiserver&timestamps=true\
             &tailLines={LOG_LINES}&limitBytes={LOG_BYTES}{more}",
            escape(&self.index.server_namespace),
            escape(pod)
        );
        let title = format!("{what} of {pod}");
        let answer = self.within(self.client.answer(&uri));
        let log = answer.await.map(|answer| {
            let log = answer.text;
            let is_truncated = log.len() >= LOG_BYTES || log.lines().count() >= LOG_LINES;
            (log.into_bytes(), is_truncated)
        });
        let file = format!("logs/{}.{}", escape(pod), what.replace(' ', "."));
        self.add(&title, &file, log);
    }
}

/// Encodes a value whose maps have only strings as keys, so that encoding cannot fail.
fn encode(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}
