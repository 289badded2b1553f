//! Tests of the kustomize components in `deploy/components`. One test installs the server with all
//! [`COMPONENTS`] in another namespace, and removes it. `helm` proves that each combination of
//! components renders the objects that the Helm chart renders for the same choices.

pub mod certificate_renewal;
mod olm;

use crate::harness::{
    API_SERVICE, Cluster, Kind, OPERATION, apart, eventually, items, ok_if, text,
};
use serde_json::{Value, json};

pub const COMPONENTS: [&str; 8] = [
    "persistence",
    "network-policy",
    "replicas",
    "monitoring",
    COMPONENT_OWNERS,
    GATE_WEBHOOK,
    SUBJECT_VISIBILITY,
    REGISTER,
];

/// The component with the policy that gives components to groups of users.
pub const COMPONENT_OWNERS: &str = "component-owners";

/// The component with the admission webhook.
pub const GATE_WEBHOOK: &str = "gate-webhook";

/// The component with which each user sees the operations on the objects that the user may get.
pub const SUBJECT_VISIBILITY: &str = "subject-visibility";

/// The component with which the server creates its `APIService`.
pub const REGISTER: &str = "register";

/// The namespace in which the tests install the server if they do not use the default namespace.
pub const NAMESPACE: &str = "operations";

/// A kustomization in a temporary folder, as an administrator would write it.
pub struct Overlay {
    folder: tempfile::TempDir,
}

impl Overlay {
    /// Writes a kustomization that uses `base` (`deploy` or `apiservice`) and these components. If
    /// `namespace` is set, the kustomization also moves the objects to this namespace.
    pub fn new(base: &str, components: &[&str], namespace: Option<&str>) -> Self {
        let folder = tempfile::tempdir().expect("temporary folders can be created");
        let root = folder.path().canonicalize().expect("the folder exists");
        // kustomize accepts only relative paths of folders.
        let up = "../".repeat(root.components().count() - 1);
        let repository = format!("{up}.{}", env!("CARGO_MANIFEST_DIR"));
        let components: Vec<_> = components
            .iter()
            .map(|name| format!("{repository}/{base}/components/{name}"))
            .collect();
        let mut kustomization = json!({
            "resources": [format!("{repository}/{base}")],
            "components": components,
        });
        if let Some(namespace) = namespace {
            kustomization["namespace"] = namespace.into();
            let transformers = format!("{repository}/{base}/transformers/namespace");
            kustomization["transformers"] = json!([transformers]);
        }
        let file = root.join("kustomization.yaml");
        std::fs::write(file, kustomization.to_string()).expect("the folder is writable");
        Self { folder }
    }

    pub fn path(&self) -> &str {
        let path = self.folder.path().to_str();
        path.expect("the path of a temporary folder is UTF-8")
    }
}

/// Returns the object of this kind and name. Fails if there is no such object, or more than one.
pub fn only_object<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let mut found = objects
        .iter()
        .filter(|it| it["kind"] == kind && it["metadata"]["name"] == name);
    let object = found.next();
    let object = object.unwrap_or_else(|| panic!("there is no {kind} {name}"));
    assert!(found.next().is_none(), "there are several {kind} {name}");
    object
}

/// Returns the kinds and names of the objects of an installation that exist. An object of any kind
/// belongs to the installation if its name contains `ifo`, or if it has a label of the installation.
/// Leaves out CRDs, their objects, objects of rule packs (folders with rule sets), and Events.
async fn remaining(cluster: &Cluster) -> Result<Vec<String>, String> {
    let kinds = "api-resources --verbs=list -o name";
    let kinds = cluster.try_kubectl(kinds).await?;
    let is_searched = |it: &&str| !it.starts_with("events") && !it.ends_with("ifo.kubevirt.io");
    let kinds: Vec<&str> = kinds.lines().filter(is_searched).collect();
    assert!(kinds.len() > 40, "{kinds:?}");
    let line = format!("get {} -A -o json", kinds.join(","));
    let all = cluster.try_kubectl(&line).await?;
    let all: Value = serde_json::from_str(&all).expect("kubectl prints JSON");
    let is_ours = |it: &&Value| {
        let name = text(it, "/metadata/name");
        // Kubernetes creates the APIService `v1alpha1.ifo.kubevirt.io` for the API group of the CRDs.
        let of_a_crd = name.ends_with("s.ifo.kubevirt.io") || name == "v1alpha1.ifo.kubevirt.io";
        let of_a_pack = name.starts_with("ifo-rules-") || name.contains(".rules.v");
        let labels = &it["metadata"]["labels"];
        let is_labelled = labels["app.kubernetes.io/part-of"] == "ifo"
            || labels["app.kubernetes.io/name"] == "ifo-apiserver";
        !of_a_crd && !of_a_pack && (is_labelled || name.contains("ifo"))
    };
    let name = |it: &Value| format!("{} {}", text(it, "/kind"), text(it, "/metadata/name"));
    Ok(items(&all).iter().filter(is_ours).map(name).collect())
}

/// Waits until no object of the installation exists. Then asserts that no namespace is blocked.
pub async fn until_nothing_remains(cluster: &Cluster) {
    eventually("no object of the installation remains", async || {
        let remaining = remaining(cluster).await?;
        ok_if(remaining.is_empty(), remaining)
    })
    .await;
    cluster.a_namespace_can_be_deleted().await;
}

/// The kinds of prometheus-operator that the component `monitoring` uses.
const MONITORING_KINDS: [Kind; 2] = [
    Kind::new(
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
        "servicemonitors",
    ),
    Kind::new(
        "monitoring.coreos.com/v1",
        "PrometheusRule",
        "prometheusrules",
    ),
];

/// Asserts that the ServiceMonitor selects the Service and its port.
fn check_service_monitor(objects: &[Value]) {
    let monitor = &only_object(objects, "ServiceMonitor", "ifo-apiserver")["spec"];
    let service = only_object(objects, "Service", "ifo-apiserver");
    let selected = monitor["selector"]["matchLabels"].as_object();
    for (key, value) in selected.expect("the ServiceMonitor must select by labels") {
        assert_eq!(&service["metadata"]["labels"][key], value);
    }
    let port = &monitor["endpoints"][0]["port"];
    assert_eq!(*port, service["spec"]["ports"][0]["name"]);
}

/// Asserts that Prometheus may find the replicas and read their metrics. Checks the rights of two
/// ServiceAccounts: the one of kube-prometheus, and the one of OpenShift's monitoring.
async fn check_rights_of_prometheus(cluster: &Cluster) {
    for installation in ["monitoring", "openshift-monitoring"] {
        let account = format!("system:serviceaccount:{installation}:prometheus-k8s");
        for right in [
            "get /metrics",
            "watch services",
            "watch endpoints",
            "watch endpointslices.discovery.k8s.io",
            "watch pods",
        ] {
            let line = format!("auth can-i {right} -n {NAMESPACE} --as {account}");
            let answer = cluster.kubectl(&line).await;
            assert_eq!(answer.trim(), "yes", "{account}: {right}");
        }
    }
}

/// Waits until the server lists the rollout of its own Deployment, which the rule sets in
/// `rules/generic` detect. The rollout never completes here, because the cluster has no node that runs
/// Pods.
async fn until_rollout_is_listed(cluster: &Cluster) {
    cluster.apply_folders(&["rules/generic"]).await;
    let path = OPERATION.path(Some(cluster.namespace));
    let is_listed = |list: &Value| list.to_string().contains("ifo-apiserver-rollout");
    let what = "the rollout of the Deployment is listed";
    cluster.admin.until_object(what, &path, is_listed).await;
}

/// Damages and deletes the APIService that the server has created. The server must repair it.
async fn check_self_registration(cluster: &Cluster) {
    let created = cluster.registration().await.expect("it exists");
    let owner = text(&created, "/metadata/ownerReferences/0/name");
    assert_eq!(owner, "ifo-apiserver-registration");
    check_rights_to_register(cluster).await;
    let damage = json!({"spec": {"caBundle": null, "service": {"port": 1}, "versionPriority": 7}});
    cluster.admin.merge(API_SERVICE, &damage).await.ok();
    let is_repaired = |it: &Value| it["spec"] == created["spec"];
    let until_repaired = async || {
        let what = "the server repairs its APIService";
        let admin = &cluster.admin;
        admin.until_object(what, API_SERVICE, is_repaired).await;
    };
    until_repaired().await;
    cluster.admin.delete(API_SERVICE).await.ok();
    until_repaired().await;
    cluster.until_served().await;
}

/// Asserts that the server may create its own APIService, and no other one.
async fn check_rights_to_register(cluster: &Cluster) {
    for (group, version, why) in [
        ("other.example.com", "v1", "may only create the APIService"),
        ("live.ifo.kubevirt.io", "v1alpha1", "AlreadyExists"),
    ] {
        let namespace = cluster.namespace;
        let object = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.{group}")},
            "spec": {
                "group": group, "version": version,
                "groupPriorityMinimum": 1, "versionPriority": 1,
                "service": {"name": "ifo-apiserver", "namespace": namespace},
            },
        });
        let line = format!("create -f - --as system:serviceaccount:{namespace}:ifo-apiserver");
        let refused = cluster.kubectl_with(&line, object.to_string()).await;
        let refused = refused.expect_err("it is another APIService, or it exists");
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn a_server_in_another_namespace_runs_with_all_components_and_is_removed_completely() {
    apart("overlay", async |cluster| {
        cluster.namespace = NAMESPACE;
        let crds = ["deploy/crd", "deploy/crd-persistence"];
        cluster.apply_folders(&crds).await;
        cluster.define(&MONITORING_KINDS).await;
        let overlay = Overlay::new("deploy", &COMPONENTS, Some(NAMESPACE));
        check_service_monitor(&cluster.kustomize(overlay.path()).await);
        cluster.apply_folders(&[overlay.path()]).await;
        check_rights_of_prometheus(cluster).await;
        let server = cluster.server().await;
        cluster.until_served().await;
        check_self_registration(cluster).await;
        cluster.until_persisted().await;
        until_rollout_is_listed(cluster).await;

        // Before the removal, `remaining` must find these objects. Otherwise, its empty result
        // after the removal would prove nothing.
        let installed = remaining(cluster).await.expect("kubectl must succeed");
        for object in [
            "ConfigMap ifo-dashboard",
            "PriorityClass ",
            "PrometheusRule ",
            "ServiceMonitor ",
            "ValidatingAdmissionPolicy ",
            "ValidatingAdmissionPolicyBinding ",
        ] {
            let mut found = installed.iter();
            assert!(
                found.any(|it| it.starts_with(object)),
                "{object}: {installed:?}"
            );
        }

        // The server is still running. It must not create its APIService again.
        cluster
            .kubectl(&format!("delete -k {}", overlay.path()))
            .await;
        let gone = cluster
            .try_kubectl(&format!("get namespace {NAMESPACE}"))
            .await;
        assert!(gone.is_err_and(|why| why.contains("NotFound")));
        assert_eq!(cluster.registration().await, None);
        drop(server);
        until_nothing_remains(cluster).await;
        // The removal of the server keeps the rule sets. The administrator can delete these objects
        // without the server.
        cluster.kubectl("delete -k rules/generic").await;
    });
}
