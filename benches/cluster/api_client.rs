//! The API client of the benchmarks, for the kube-apiserver and for the measured server
//! `ifo-apiserver`.

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, stream};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// Path of the subjects (the objects that operations are about). They are `VirtualMachine` objects.
pub const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
/// Path of the API group of operations.
pub const LIVE_API_PATH: &str = "/apis/live.ifo.kubevirt.io/v1alpha1";
/// Path of the rule sets.
pub const RULE_SETS: &str = "/apis/ifo.kubevirt.io/v1alpha1/operationrulesets";

const VIRTUAL_MACHINE: &str = include_str!("../../tests/fixtures/objects/virtualmachine.json");
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
/// Maximum number of actions that [`for_each`] runs at the same time.
const AT_ONCE: usize = 32;

/// A client, and the kubeconfig with which it was created.
#[derive(Clone)]
pub struct Api {
    pub kubeconfig: PathBuf,
    pub client: Client,
}

impl Api {
    pub async fn connect(kubeconfig: PathBuf) -> anyhow::Result<Self> {
        let read = Kubeconfig::read_from(&kubeconfig)?;
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        Ok(Self {
            kubeconfig,
            client: Client::try_from(config)?,
        })
    }

    /// Prepares the cluster for the server. Creates:
    ///
    /// - the CRDs `operationrulesets` and `virtualmachines`
    /// - the namespace `ifo-system` with the Secret for the server's CA
    /// - the shipped rule set for `VirtualMachine` objects
    pub async fn install(&self) -> anyhow::Result<()> {
        self.define(
            "operationrulesets.ifo.kubevirt.io",
            include_str!("../../deploy/crd/operationrulesets.yaml"),
        )
        .await?;
        let machines = definition("kubevirt.io", "v1", "VirtualMachine", "virtualmachines");
        self.define("virtualmachines.kubevirt.io", &machines.to_string())
            .await?;
        self.apply(
            "/api/v1/namespaces/ifo-system",
            "{apiVersion: v1, kind: Namespace, metadata: {name: ifo-system}}",
        )
        .await?;
        self.apply(
            "/api/v1/namespaces/ifo-system/secrets/ifo-apiserver-serving-ca",
            "{apiVersion: v1, kind: Secret, metadata: {name: ifo-apiserver-serving-ca}}",
        )
        .await?;
        self.wait_until_served(&format!("{MACHINES}?limit=1"))
            .await?;
        self.wait_until_served(RULE_SETS).await?;
        self.apply(
            &format!("{RULE_SETS}/vm-lifecycle-rules"),
            include_str!("../../rules/kubevirt/virtualmachines.yaml"),
        )
        .await
    }

    /// Creates or updates a CRD.
    pub async fn define(&self, name: &str, yaml: &str) -> anyhow::Result<()> {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        self.apply(&format!("{path}/{name}"), yaml).await
    }

    /// Creates the missing `VirtualMachine` objects `vm-N`, for all numbers `N` below `count`.
    pub async fn create_machines(&self, count: usize) -> anyhow::Result<()> {
        for_each(count, |n| async move {
            let mut machine: Value = serde_json::from_str(VIRTUAL_MACHINE)?;
            let metadata = &mut machine["metadata"];
            *metadata = json!({"name": format!("vm-{n}"), "labels": metadata["labels"],
                "annotations": metadata["annotations"]});
            // While `snapshotInProgress` exists, even with the value null, a rule detects an
            // operation. So the field is removed.
            if let Some(status) = machine["status"].as_object_mut() {
                status.remove("snapshotInProgress");
            }
            self.create(MACHINES, &machine).await
        })
        .await
    }

    /// Sets `printableStatus` of the first `count` subjects to `status`.
    pub async fn set_all(&self, count: usize, status: &str) -> anyhow::Result<()> {
        for_each(count, |n| self.set(n, status, 0)).await
    }

    /// Sets `printableStatus` of the subject `vm-N` to `status`. `subject` is the number `N`. Also
    /// sets an annotation to `round`, so that the update is a change even if the status stays the
    /// same.
    pub async fn set(&self, subject: usize, status: &str, round: usize) -> anyhow::Result<()> {
        let body = json!({"metadata": {"annotations": {"bench": round.to_string()}},
            "status": {"printableStatus": status}});
        let path = format!("{MACHINES}/vm-{subject}");
        self.send(Method::PATCH, &path, MERGE, body.to_string())
            .await
            .map(drop)
    }

    /// Creates an object if it does not exist.
    pub async fn create(&self, path: &str, object: &Value) -> anyhow::Result<()> {
        let made = self.send(Method::POST, path, "application/json", object.to_string());
        match made.await {
            Err(error) if !error.to_string().contains("AlreadyExists") => Err(error),
            _ => Ok(()),
        }
    }

    pub async fn apply(&self, path: &str, yaml: &str) -> anyhow::Result<()> {
        let path = format!("{path}?fieldManager=bench&force=true");
        self.send(Method::PATCH, &path, APPLY, yaml.to_owned())
            .await
            .map(drop)
    }

    pub async fn get(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        self.send(Method::GET, path, "", String::new()).await
    }

    pub async fn delete(&self, path: &str) -> anyhow::Result<()> {
        self.send(Method::DELETE, path, "", String::new())
            .await
            .map(drop)
    }

    /// Waits until a GET request for `path` succeeds. Returns an error after 600 failed requests,
    /// which take at least a minute.
    pub async fn wait_until_served(&self, path: &str) -> anyhow::Result<()> {
        let mut last = String::new();
        for _ in 0..600 {
            match self.get(path).await {
                Ok(_) => return Ok(()),
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("{path} cannot be read after 600 attempts: {last}")
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: String,
    ) -> anyhow::Result<Vec<u8>> {
        let mut request = Request::builder().method(method).uri(path);
        if !kind.is_empty() {
            request = request.header("content-type", kind);
        }
        let request = request.body(Body::from(body.into_bytes()))?;
        let response = self.client.send(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if !status.is_success() {
            bail!("{path}: {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(body.to_vec())
    }

    /// Starts a watch of the changes from now on. Passes each event, which is one line of JSON, to
    /// `on_line`. Returns the task that reads the watch.
    pub async fn watch(
        &self,
        path: &str,
        mut on_line: impl FnMut(&[u8]) + Send + 'static,
    ) -> anyhow::Result<tokio::task::JoinHandle<()>> {
        let list: Value = serde_json::from_slice(&self.get(&format!("{path}?limit=1")).await?)?;
        let rv = list["metadata"]["resourceVersion"]
            .as_str()
            .context("the list has no resourceVersion")?;
        let path = format!("{path}?watch=1&resourceVersion={rv}");
        let request = Request::get(path).body(Body::empty())?;
        let mut body = self.client.send(request).await?.into_body();
        Ok(tokio::spawn(async move {
            let mut line = Vec::new();
            while let Some(Ok(frame)) = body.frame().await {
                let mut rest: &[u8] = frame.data_ref().map_or(&[], |data| data);
                while let Some(end) = memchr::memchr(b'\n', rest) {
                    line.extend_from_slice(&rest[..end]);
                    on_line(&line);
                    line.clear();
                    rest = &rest[end + 1..];
                }
                line.extend_from_slice(rest);
            }
        }))
    }
}

/// Runs `action` for each number below `count`. Up to [`AT_ONCE`] actions run at the same time.
pub async fn for_each<F>(count: usize, action: impl Fn(usize) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let mut actions = stream::iter((0..count).map(action)).buffer_unordered(AT_ONCE);
    while let Some(outcome) = actions.next().await {
        outcome?;
    }
    Ok(())
}

/// Returns a CRD whose schema accepts any object of the kind.
pub fn definition(group: &str, version: &str, kind: &str, plural: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{"name": version, "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}
