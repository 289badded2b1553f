//! Collects the parts of a support bundle from a cluster. The index of the bundle lists all parts,
//! also those that could not be read.

use super::fields;
use crate::api_client::{ApiClient, ListCompleteness};
use crate::bundle_index::{BundleIndex, BundlePart, INDEX_FILE, OperationsPart, PartResult};
use crate::operation_source::escape;
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

/// The objects of a part.
#[derive(Default)]
struct ListedObjects {
    objects: Vec<Value>,
    /// True if the server has more objects.
    has_more: bool,
    /// What the server states about the newest answer.
    completeness: ListCompleteness,
    result: PartResult,
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
            .objects
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
            pods = self.list(kind, &file, &[path]).await.objects;
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
        let namespace = self.choices.namespace;
        let within = namespace.map_or_else(String::new, |it| format!("/namespaces/{}", escape(it)));
        let root = format!("/apis/{LIVE_GROUP}/{VERSION}{within}");
        let (plural, records) = (live::PLURAL, record::PLURAL);
        let path = format!("{root}/{plural}");
        let file = operations_file(plural, LIVE_GROUP);
        let listed = self.list(live::KIND, &file, &[path]).await;
        let is_served = listed.result != PartResult::NotFound;
        // The total time can end before the other parts are read.
        self.index.operations = self.operations_part(listed);
        let path = format!("{root}/{records}");
        let file = operations_file(records, LIVE_GROUP);
        self.list(record::KIND, &file, &[path]).await;
        let path = format!("/apis/{GROUP}/{VERSION}/{plural}");
        let file = operations_file(plural, GROUP);
        let custom = self.list(live::KIND, &file, &[path]).await;
        // Without the API of `ifo-apiserver`, commands show the custom resources.
        if !is_served {
            self.index.operations = self.operations_part(custom);
        }
    }

    /// Describes these operations in the index.
    fn operations_part(&self, listed: ListedObjects) -> OperationsPart {
        let is_complete = listed.completeness == ListCompleteness::Complete;
        OperationsPart {
            result: listed.result,
            count: listed.objects.len(),
            namespaces: self.choices.namespace.map(|it| vec![it.clone()]),
            is_complete: is_complete && listed.result == PartResult::Read,
            incomplete: listed.completeness.incomplete(),
        }
    }

    /// Reads objects, and adds them as a list of their kind. The paths are those of lists, of which the
    /// first page is read, or of single objects.
    async fn list(&mut self, kind: &str, file: &str, paths: &[String]) -> ListedObjects {
        let limit = if file.starts_with("operations/") {
            OPERATIONS
        } else {
            OBJECTS
        };
        let mut listed = ListedObjects::default();
        let is_missing = |it: &Problem| PartResult::of(it) == PartResult::NotFound;
        let mut failed: Option<Problem> = None;
        for path in paths {
            if let Err(problem) = self.read(path, limit, &mut listed).await
                && failed.as_ref().is_none_or(is_missing)
            {
                failed = Some(problem);
            }
        }
        // For example, the namespace of the server is wrong. Usually, there are no Events.
        if listed.objects.is_empty() && file.starts_with("server/") && kind != "Event" {
            failed.get_or_insert_with(|| Problem::NotFound("the list is empty".to_owned()));
        }
        match failed {
            // One of several objects can be missing.
            Some(problem) if listed.objects.is_empty() || !is_missing(&problem) => {
                listed.result = PartResult::of(&problem);
                self.add(file, Err(problem));
            }
            _ => {
                listed.result =
                    PartResult::of_read(listed.objects.len() > limit || listed.has_more);
                listed.objects.truncate(limit);
                // Custom resources are cluster-scoped, so their list has all namespaces.
                if let Some(namespace) = self.choices.namespace
                    && file == operations_file(live::PLURAL, GROUP)
                {
                    let subject_namespace = "/spec/subject/namespace";
                    let objects = &mut listed.objects;
                    objects.retain(|it| it.pointer(subject_namespace) == Some(&json!(namespace)));
                }
                let api_version = match paths[0].split('/').collect::<Vec<_>>().as_slice() {
                    ["", "apis", group, version, ..] => format!("{group}/{version}"),
                    _ => "v1".to_owned(),
                };
                let bytes = self.encode_list(&api_version, kind, listed.objects.clone());
                self.add(file, Ok((bytes, listed.result == PartResult::Truncated)));
            }
        }
        listed
    }

    /// Reads the first page of a list, or an object.
    async fn read(
        &self,
        path: &str,
        limit: usize,
        listed: &mut ListedObjects,
    ) -> Result<(), Problem> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let uri = format!("{path}{separator}limit={limit}");
        let answer = self.client.answer(&uri).await?;
        let failed = |error| Problem::Other(format!("{uri}: {error}"));
        let mut object: Value = serde_json::from_str(&answer.text).map_err(failed)?;
        listed.completeness = answer.completeness;
        let next = object.pointer("/metadata/continue").and_then(Value::as_str);
        listed.has_more |= next.is_some_and(|token| !token.is_empty());
        match object["items"].take() {
            Value::Array(items) => listed.objects.extend(items),
            _ => listed.objects.push(object),
        }
        Ok(())
    }

    /// Encodes objects as a list of their kind, without what may not leave.
    fn encode_list(&self, api_version: &str, kind: &str, mut items: Vec<Value>) -> Vec<u8> {
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
        encode(&json!({"apiVersion": api_version, "kind": kind, "items": items}))
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

/// Returns the path of the file with the operations or records of this API group.
pub(super) fn operations_file(plural: &str, group: &str) -> String {
    format!("operations/{plural}.{group}.json")
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
        let choices = Choices {
            namespace: None,
            server_namespace: None,
            includes_text: false,
        };
        let bundle = BundleCollection::collect(client, choices, None, Timestamp::UNIX_EPOCH).await;
        let last = bundle.index.parts.last().map(|it| &*it.path);
        assert_eq!(last, Some("further parts"));
        assert_eq!(bundle.index.operations.result, PartResult::Read);
    }
}
