//! Collects the parts of a support bundle from a cluster. The index of the bundle lists all parts,
//! also those that could not be read.

use super::{SupportBundleArgs, fields};
use crate::cluster::api_client::ApiClient;
use crate::cluster::problem::Problem;
use crate::operations::bundle_index::{BundleIndex, BundlePart, INDEX_FILE, PartResult};
use crate::operations::operation_source::{escape, list_path};
use crate::version::read_server_version;
use ifo_api::completeness::Incomplete;
use ifo_api::{GROUP, LIVE_GROUP, VERSION, live, record, ruleset};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;
use tokio::time::timeout;

/// Default time limit of one request. `--request-timeout` overrides this limit.
pub(super) const REQUEST_TIME: Duration = Duration::from_secs(30);

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

/// The parts that were collected so far.
pub(super) struct BundleCollection<'a> {
    client: ApiClient,
    args: &'a SupportBundleArgs,
    pub(super) index: BundleIndex,
    /// The paths of the files in the bundle, and their bytes.
    pub(super) files: Vec<(String, Vec<u8>)>,
}

impl<'a> BundleCollection<'a> {
    /// Collects all parts. If a part cannot be read, the index has the reason. `metrics` is the
    /// content of the file of `--metrics`.
    pub(super) async fn collect(
        client: ApiClient,
        args: &'a SupportBundleArgs,
        metrics: Option<Vec<u8>>,
        now: Timestamp,
    ) -> Self {
        let mut bundle = Self {
            client,
            args,
            index: BundleIndex {
                created: now,
                redacted: !args.include_text,
                plugin_version: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
                server_namespace: DEFAULT_NAMESPACE.to_owned(),
                namespace: args.connect.namespace().cloned(),
                ..BundleIndex::default()
            },
            files: Vec::new(),
        };
        if timeout(TOTAL_TIME, bundle.collect_all()).await.is_err() {
            bundle.add_problem("further parts", &Problem::TimedOut(TOTAL_TIME));
        }
        if let Some(metrics) = metrics {
            bundle.add(BundlePart::read("metrics.txt", false), metrics);
        }
        let index = encode(&bundle.index);
        bundle.files.push((INDEX_FILE.to_owned(), index));
        bundle
    }

    async fn collect_all(&mut self) {
        match read_server_version(&self.client).await {
            Ok(version) => self.index.server_version = Some(version),
            Err(problem) => self.add_problem("version of the server", &problem),
        }
        self.read("/version").await;
        let service = format!("/apis/apiregistration.k8s.io/v1/apiservices/{VERSION}.{LIVE_GROUP}");
        let service = self.read(&service).await.unwrap_or_default();
        let stated = service["spec"]["service"]["namespace"].as_str();
        let given = self.args.server_namespace.as_deref();
        if let Some(namespace) = given.or(stated) {
            namespace.clone_into(&mut self.index.server_namespace);
        }
        let mut pods = None;
        for uri in self.requests() {
            pods = self.read(&uri).await;
        }
        // Without this flag, no log is added, because each line can contain any text.
        if self.args.include_text {
            let pods = pods.as_ref().and_then(|it| it["items"].as_array());
            let names = pods.into_iter().flatten();
            let names = names.filter_map(|it| it["metadata"]["name"].as_str());
            for pod in names.take(PODS) {
                self.collect_logs(&escape(pod)).await;
            }
        }
    }

    /// Returns the URIs of the lists and objects. The operations come first, because [`TOTAL_TIME`]
    /// can pass before all requests are sent. The Pods of `ifo-apiserver` must come last, because
    /// `collect_all` uses the last answer.
    fn requests(&self) -> [String; 11] {
        let (operations, rule_sets) = (live::PLURAL, ruleset::PLURAL);
        let namespace = self.index.namespace.as_deref();
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let server = format!("namespaces/{}", escape(&self.index.server_namespace));
        let labelled = "labelSelector=app.kubernetes.io%2Fname%3Difo-apiserver";
        let named = "fieldSelector=metadata.name%3Difo-apiserver";
        [
            list_path(LIVE_GROUP, operations, namespace),
            list_path(LIVE_GROUP, record::PLURAL, namespace),
            list_path(GROUP, operations, None),
            list_path(GROUP, rule_sets, None),
            format!("{crds}/{rule_sets}.{GROUP}"),
            format!("{crds}/{operations}.{GROUP}"),
            format!("/apis/apps/v1/{server}/deployments?{labelled}"),
            format!("/apis/policy/v1/{server}/poddisruptionbudgets?{labelled}"),
            format!("/apis/coordination.k8s.io/v1/{server}/leases?{named}"),
            format!("/api/v1/{server}/events"),
            format!("/api/v1/{server}/pods?{labelled}"),
        ]
    }

    /// Reads the logs of a Pod of `ifo-apiserver`.
    async fn collect_logs(&mut self, pod: &str) {
        let namespace = escape(&self.index.server_namespace);
        for (name, more) in [("log", ""), ("previous.log", "&previous=true")] {
            let uri = format!(
                "/api/v1/namespaces/{namespace}/pods/{pod}/log?container=ifo-apiserver\
                 &timestamps=true&tailLines={LOG_LINES}&limitBytes={LOG_BYTES}{more}"
            );
            let file = format!("logs/{pod}.{name}");
            match self.client.answer(&uri).await {
                Ok(log) => {
                    let lines = log.text.lines().count();
                    let is_long = log.text.len() >= LOG_BYTES || lines >= LOG_LINES;
                    self.add(BundlePart::read(&file, is_long), log.text.into());
                }
                // Usually, there is no log of a previous container, so this error is ignored.
                Err(problem) if more.is_empty() => self.add_problem(&file, &problem),
                Err(_) => {}
            }
        }
    }

    /// Reads an object, or the first page of a list, and adds it to the bundle. Returns the added
    /// JSON. None if the object or list cannot be read.
    async fn read(&mut self, uri: &str) -> Option<Value> {
        let path = uri.split('?').next().unwrap_or_default();
        let file = format!("{}.json", path.trim_start_matches('/'));
        match self.read_part(uri, path, &file).await {
            Ok((part, content)) => {
                self.add(part, encode(&content));
                Some(content)
            }
            Err(problem) => {
                self.add_problem(&file, &problem);
                None
            }
        }
    }

    /// Reads an object, or the first page of a list. Without `--include-text`, drops the fields
    /// that must not leave the cluster.
    async fn read_part(
        &self,
        uri: &str,
        path: &str,
        file: &str,
    ) -> Result<(BundlePart, Value), Problem> {
        let is_operations = path.ends_with(live::PLURAL) || path.ends_with(record::PLURAL);
        let limit = if is_operations { OPERATIONS } else { OBJECTS };
        let separator = if uri.contains('?') { '&' } else { '?' };
        let limited = format!("{uri}{separator}limit={limit}");
        let answer = self.client.answer(&limited).await?;
        let mut content: Value = serde_json::from_str(&answer.text)
            .map_err(|error| Problem::Other(format!("{uri}: {error}")))?;
        let next = content["metadata"]["continue"].as_str();
        let has_more = next.is_some_and(|token| !token.is_empty());
        // The metadata of a list is removed, because the continue token can contain the name of an
        // object.
        if content["items"].is_array()
            && let Some(list) = content.as_object_mut()
        {
            list.remove("metadata");
        }
        let mut part = BundlePart::read(file, has_more);
        let objects = match content.get_mut("items").and_then(Value::as_array_mut) {
            Some(items) => {
                // Custom resources are cluster-scoped, so their list contains operations on
                // subjects in all namespaces.
                if let Some(namespace) = &self.index.namespace
                    && is_operations
                    && !path.contains("/namespaces/")
                {
                    items.retain(|it| it["spec"]["subject"]["namespace"] == **namespace);
                }
                // An empty list of objects of the server is an error: for example, the namespace of
                // the server is wrong. An empty list of Events is no error, because the server
                // usually has none.
                let is_of_server = path.contains("/namespaces/") && !is_operations;
                if items.is_empty() && is_of_server && !path.ends_with("/events") {
                    return Err(Problem::NotFound("the list is empty".to_owned()));
                }
                items.as_mut_slice()
            }
            None => std::slice::from_mut(&mut content),
        };
        part.count = objects.len();
        if !self.args.include_text {
            fields::keep(path, objects);
        }
        if is_operations {
            let truncated = has_more.then_some(Incomplete::NotRecorded);
            // Lists of records and of custom resources never state whether they are complete.
            let is_live = path.contains(LIVE_GROUP) && path.ends_with(live::PLURAL);
            let stated = answer.completeness.err().filter(|_| is_live);
            part.incomplete = stated.or(truncated);
        }
        Ok((part, content))
    }

    /// Adds a file to the bundle, and its part to the index.
    fn add(&mut self, part: BundlePart, bytes: Vec<u8>) {
        self.files.push((part.path.clone(), bytes));
        self.index.parts.push(part);
    }

    /// Adds a part that could not be read. The index contains the error message only with
    /// `--include-text`, because the message can contain the name of the user.
    fn add_problem(&mut self, path: &str, problem: &Problem) {
        self.index.parts.push(BundlePart {
            path: path.to_owned(),
            result: problem.into(),
            message: self.args.include_text.then(|| problem.to_string()),
            ..BundlePart::default()
        });
    }
}

impl BundlePart {
    /// Returns a part that was read. `is_truncated` is true if a limit was reached.
    fn read(path: &str, is_truncated: bool) -> Self {
        Self {
            path: path.to_owned(),
            result: if is_truncated {
                PartResult::Truncated
            } else {
                PartResult::Read
            },
            ..Self::default()
        }
    }
}

/// Encodes a value whose maps have only strings as keys, so that encoding cannot fail.
fn encode(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::client::Body;
    use serde_json::json;
    use std::convert::Infallible;

    #[tokio::test(start_paused = true)]
    async fn the_index_has_the_operations_if_the_time_ends_at_the_next_part() {
        let service = tower::service_fn(|request: http::Request<Body>| async move {
            if request.uri().path().ends_with(record::PLURAL) {
                std::future::pending::<()>().await;
            }
            let list = json!({"items": []}).to_string();
            Ok::<_, Infallible>(http::Response::new(Body::from(list.into_bytes())))
        });
        let client = kube::Client::new(service, "default");
        let mut client = ApiClient::new(client, "https://192.0.2.1");
        client.timeout = Some(TOTAL_TIME * 2);
        let args = SupportBundleArgs::default();
        let bundle = BundleCollection::collect(client, &args, None, Timestamp::UNIX_EPOCH).await;
        let last = bundle.index.parts.last().map(|it| &*it.path);
        assert_eq!(last, Some("further parts"));
        assert!(bundle.index.operations().is_ok());
    }
}
