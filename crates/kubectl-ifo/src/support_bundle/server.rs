//! Collects the objects and the logs of the server (`ifo-apiserver`), and the metrics of a file.

use super::collect::{BundleCollection, ListPart};
use super::fields;
use crate::bundle_index::PartResult;
use crate::operation_source::escape;
use serde_json::Value;

/// The name of the server's Lease and of its container.
const SERVER_NAME: &str = "ifo-apiserver";

/// Selects the objects of the server by their label.
const BY_LABEL: &str = "labelSelector=app.kubernetes.io%2Fname%3Difo-apiserver";

/// Selects the Lease of the server.
const BY_NAME: &str = "fieldSelector=metadata.name%3Difo-apiserver";

/// Largest number of Pods whose logs are read. More than three replicas are unusual, but Pods of
/// earlier revisions can exist, too. For further Pods, the bundle has only the list of Pods.
const PODS: usize = 10;

/// Largest number of lines of the log of one container. The kubelet returns the newest lines.
const LOG_LINES: usize = 10_000;

/// Largest size of the log of one container in bytes. If the [`LOG_LINES`] newest lines are larger,
/// the kubelet leaves out the newest of them.
const LOG_BYTES: usize = 8 * 1024 * 1024;

pub(super) const PREVIOUS_LOG: &str = "previous log";

/// A list of objects in the namespace of the server.
pub(super) struct ServerPart {
    what: &'static str,
    api_version: &'static str,
    pub(super) kind: &'static str,
    plural: &'static str,
    selector: &'static str,
}

impl ServerPart {
    /// Returns the lists that a bundle contains.
    pub(super) fn all() -> [Self; 5] {
        let part = |what, api_version, kind, plural, selector| Self {
            what,
            api_version,
            kind,
            plural,
            selector,
        };
        let budget = "PodDisruptionBudget";
        [
            part(
                "Deployment",
                "apps/v1",
                "Deployment",
                "deployments",
                BY_LABEL,
            ),
            part(
                budget,
                "policy/v1",
                budget,
                "poddisruptionbudgets",
                BY_LABEL,
            ),
            part(
                "Lease",
                "coordination.k8s.io/v1",
                "Lease",
                "leases",
                BY_NAME,
            ),
            part("Events", "v1", "Event", "events", ""),
            part("Pods", "v1", "Pod", "pods", BY_LABEL),
        ]
    }
}

impl BundleCollection {
    /// Reads and adds a list of the server. Returns the names of its objects.
    pub(super) async fn collect_server_part(&mut self, part: &ServerPart) -> Vec<String> {
        let root = match part.api_version {
            "v1" => "/api/v1".to_owned(),
            version => format!("/apis/{version}"),
        };
        let namespace = escape(&self.server_namespace);
        let uri = format!(
            "{root}/namespaces/{namespace}/{}?{}",
            part.plural, part.selector
        );
        let list = match self.list(&uri, part.plural).await {
            Ok(list) => list,
            Err(problem) => {
                self.record_problem(part.what, &problem);
                return Vec::new();
            }
        };
        if list.items.is_empty() && part.kind != "Event" {
            self.record(part.what, PartResult::NotFound, "the list is empty");
            return Vec::new();
        }
        let names = list.items.iter().map(|it| &it["metadata"]["name"]);
        let names = names.filter_map(Value::as_str).map(str::to_owned).collect();
        let described = ListPart {
            what: part.what,
            path: &format!("server/{}.json", part.plural),
            api_version: part.api_version,
            kind: part.kind,
        };
        self.add_list(described, list);
        names
    }

    /// Reads the logs of Pods with `--include-text`. Without this flag, no line may leave, because
    /// every line can contain a name or a message.
    pub(super) async fn collect_logs(&mut self, pods: &[String]) {
        if !self.includes_text || pods.is_empty() {
            return self.record("logs", PartResult::Skipped, "");
        }
        for pod in pods.iter().take(PODS) {
            self.collect_log(pod, "log", "").await;
            self.collect_log(pod, PREVIOUS_LOG, "&previous=true").await;
        }
    }

    async fn collect_log(&mut self, pod: &str, what: &str, more: &str) {
        let uri = format!(
            "/api/v1/namespaces/{}/pods/{}/log?container={SERVER_NAME}&timestamps=true\
             &tailLines={LOG_LINES}&limitBytes={LOG_BYTES}{more}",
            escape(&self.server_namespace),
            escape(pod)
        );
        let title = format!("{what} of {pod}");
        match self.get(&uri, "pods/log").await {
            Ok(log) => {
                let is_truncated = log.len() >= LOG_BYTES || log.lines().count() >= LOG_LINES;
                let file = format!("logs/{}.{}", escape(pod), what.replace(' ', "."));
                self.add(&title, &file, log.into_bytes(), is_truncated);
            }
            Err(problem) => self.record_problem(&title, &problem),
        }
    }

    /// Adds the metrics that the user has read.
    pub(super) fn add_metrics(&mut self, text: &str) {
        let text = if self.includes_text {
            text.to_owned()
        } else {
            fields::kept_metrics(text)
        };
        self.add("metrics", "metrics.txt", text.into_bytes(), false);
    }
}
