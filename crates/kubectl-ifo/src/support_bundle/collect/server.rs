//! Collects the objects, logs and metrics of the server (`ifo-apiserver`) for a support bundle.

use super::{BundleCollection, PREVIOUS_LOG};
use crate::operation_source::escape;
use crate::support_bundle::SERVER_NAME;
use crate::support_bundle::index::PartResult;
use crate::support_bundle::limits::{
    LOG_ANSWER_BYTES, LOG_BYTES, LOG_LINES, LOG_SECONDS, METRICS_BYTES, PODS,
};
use crate::support_bundle::redact::ObjectPolicy;
use crate::support_bundle::send_requests::FetchFailure;
use serde_json::Value;

/// The label of the server's Pods and other objects, encoded for a URL.
const SERVER_LABEL: &str = "app.kubernetes.io%2Fname%3Difo-apiserver";

/// The port of the server in a Pod that has no port with the name `https`.
const DEFAULT_PORT: u64 = 8443;

impl BundleCollection {
    /// Reads the objects, the logs and the metrics of the server. If the user has supplied
    /// `metrics`, adds these metrics and reads no others. Returns the name of the ServiceAccount in
    /// the server's Deployment. None if the Deployment could not be read, or names no
    /// ServiceAccount.
    pub(super) async fn collect_server_objects(&mut self, metrics: Option<&str>) -> Option<String> {
        let namespace = escape(&self.server_namespace);
        let labelled = |path: &str| format!("{path}?labelSelector={SERVER_LABEL}");
        let deployments = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
        let deployment = self
            .server_list(
                "Deployment",
                ("apps/v1", "Deployment"),
                &labelled(&deployments),
            )
            .await;
        let account = deployment.iter().find_map(|it| {
            it.pointer("/spec/template/spec/serviceAccountName")?
                .as_str()
                .map(str::to_owned)
        });
        let budgets = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets");
        let kind = ("policy/v1", "PodDisruptionBudget");
        self.server_list("PodDisruptionBudget", kind, &labelled(&budgets))
            .await;
        let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        let lease = format!("{leases}?fieldSelector=metadata.name%3D{SERVER_NAME}");
        self.server_list("Lease", ("coordination.k8s.io/v1", "Lease"), &lease)
            .await;
        let events = format!("/api/v1/namespaces/{namespace}/events");
        self.server_list("Events", ("v1", "Event"), &events).await;
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        let pods = self
            .server_list("Pods", ("v1", "Pod"), &labelled(&pods))
            .await;
        self.logs(&pods).await;
        match metrics {
            Some(metrics) => self.add_metrics("metrics", metrics),
            None => self.read_metrics_of_pods(&pods).await,
        }
        account
    }

    async fn server_list(&mut self, what: &str, kind: (&str, &str), uri: &str) -> Vec<Value> {
        match self.list(uri).await {
            Ok(list) if list.items.is_empty() && kind.1 != "Event" => {
                let failure = FetchFailure::new(PartResult::NotFound, &"the list is empty");
                self.record_failure(what, &failure);
                Vec::new()
            }
            Ok(list) => {
                let items = list.items.clone();
                let policy = if kind.1 == "Event" {
                    ObjectPolicy::Event
                } else {
                    ObjectPolicy::Workload
                };
                let file = kind.1.to_lowercase();
                self.add_list(what, &format!("server/{file}s.json"), kind, list, policy);
                items
            }
            Err(failure) => {
                self.record_failure(what, &failure);
                Vec::new()
            }
        }
    }

    async fn logs(&mut self, pods: &[Value]) {
        if pods.is_empty() {
            let failure = FetchFailure::new(PartResult::Skipped, &"");
            self.record_failure("logs", &failure);
        }
        for name in names_of_first_pods(pods) {
            self.log(name, "log", "").await;
            self.log(name, PREVIOUS_LOG, "&previous=true").await;
        }
    }

    /// Reads metrics through the proxy of the kube-apiserver: from each Pod, or from the Service if
    /// no Pod answers. The proxy does not pass on the credentials of the user. So the request
    /// succeeds only if the server allows every client to read metrics.
    async fn read_metrics_of_pods(&mut self, pods: &[Value]) {
        let namespace = format!("/api/v1/namespaces/{}", escape(&self.server_namespace));
        let mut has_metrics = false;
        for (name, pod) in names_of_first_pods(pods).zip(pods) {
            let port = port_of(pod);
            let pod = escape(name);
            let uri = format!("{namespace}/pods/https:{pod}:{port}/proxy/metrics");
            let what = format!("metrics of {}", self.redactor.name(name));
            has_metrics |= self.read_metrics(&what, &uri).await;
        }
        if !has_metrics {
            let uri = format!("{namespace}/services/https:{SERVER_NAME}:443/proxy/metrics");
            self.read_metrics("metrics through the Service", &uri).await;
        }
    }

    /// Reads the newest lines of the log of one container. `tailLines` selects the newest lines.
    /// Without `tailLines`, the kubelet would begin with the oldest lines, and `limitBytes` would
    /// cut off the newest lines.
    async fn log(&mut self, pod: &str, what: &str, more: &str) {
        let namespace = escape(&self.server_namespace);
        let uri = format!(
            "/api/v1/namespaces/{namespace}/pods/{}/log?container={SERVER_NAME}&timestamps=true\
             &sinceSeconds={LOG_SECONDS}&tailLines={LOG_LINES}&limitBytes={LOG_ANSWER_BYTES}{more}",
            escape(pod)
        );
        let pod = self.redactor.name(pod);
        let title = format!("{what} of {pod}");
        // The kubelet limits the answer to `LOG_ANSWER_BYTES`. The larger limit here protects the
        // plugin if the kubelet ignores `limitBytes`.
        match self.client.get(&uri, 2 * LOG_ANSWER_BYTES).await {
            Ok(bytes) => {
                let log = String::from_utf8_lossy(&bytes);
                let newest = newest_lines(&log, LOG_BYTES);
                let is_truncated = newest.len() < log.len()
                    || bytes.len() >= LOG_ANSWER_BYTES
                    || log.lines().count() >= LOG_LINES;
                let text = self.redactor.log(newest);
                let file = format!("logs/{pod}.{}", what.replace(' ', "."));
                self.add(&title, &file, text.into_bytes(), is_truncated);
            }
            Err(failure) => self.record_failure(&title, &failure),
        }
    }

    fn add_metrics(&mut self, what: &str, text: &str) {
        let name = what.rsplit(' ').next().unwrap_or_default();
        let text = self.redactor.metrics(text);
        self.add(
            what,
            &format!("metrics/{name}.txt"),
            text.into_bytes(),
            false,
        );
    }

    /// Reads metrics. Returns true if the metrics were read.
    async fn read_metrics(&mut self, what: &str, uri: &str) -> bool {
        match self.client.get(uri, METRICS_BYTES).await {
            Ok(bytes) => {
                self.add_metrics(what, &String::from_utf8_lossy(&bytes));
                true
            }
            Err(failure) => {
                self.record_failure(what, &failure);
                false
            }
        }
    }
}

/// Returns the names of the first [`PODS`] Pods. The logs and metrics of these Pods are read.
fn names_of_first_pods(pods: &[Value]) -> impl Iterator<Item = &str> {
    let names = pods.iter().map(|it| it["metadata"]["name"].as_str());
    names.map(Option::unwrap_or_default).take(PODS)
}

/// Returns the last lines of a log that together have at most `limit` bytes.
fn newest_lines(log: &str, limit: usize) -> &str {
    let Some(cut) = log.len().checked_sub(limit).filter(|cut| *cut > 0) else {
        return log;
    };
    // If the cut is inside a line, the whole line is left out.
    match log.as_bytes()[cut - 1..].iter().position(|it| *it == b'\n') {
        Some(end) => &log[cut + end..],
        None => "",
    }
}

/// Returns the port at which the server in a Pod answers.
fn port_of(pod: &Value) -> u64 {
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
    let ports = containers
        .into_iter()
        .flatten()
        .filter_map(|it| it["ports"].as_array());
    let port = ports.flatten().find(|it| it["name"] == "https");
    port.and_then(|it| it["containerPort"].as_u64())
        .unwrap_or(DEFAULT_PORT)
}
