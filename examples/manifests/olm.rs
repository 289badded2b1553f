//! Generates the bundle for the Operator Lifecycle Manager (OLM) in `deploy/olm` from the manifests
//! in `deploy`.
//!
//! OLM itself creates some objects from the `ClusterServiceVersion`: the ServiceAccount with its
//! roles, the Deployment, the Service, the APIService, and the serving certificate. The other
//! objects that the server needs are files of the bundle, if OLM can install their kind.

use super::{parse, read, repository};
use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ifo_api::ruleset;
use serde_json::{Value, json};

/// The namespace of the manifests in `deploy`. A `ClusterRoleBinding` in the bundle contains this
/// namespace, and OLM does not replace it. So users must install the bundle in this namespace.
const NAMESPACE: &str = "ifo-system";

/// Folder in which OLM mounts the serving certificate.
const CERTIFICATES: &str = "/apiserver.local.config/certificates";

/// The objects that become files of the bundle. Each entry has the path of the manifest that
/// contains the object, then the kind and the name of the object.
///
/// OLM creates roles under generated names. But the server needs the ClusterRole
/// `ifo-apiserver-registration` under this name, because it sets this ClusterRole as an owner. So
/// this ClusterRole is a file, although OLM also creates a role with its rules.
///
/// The bundle has no files for these objects of `deploy/base` and `deploy/rbac`:
///
/// - the other objects that OLM itself creates
/// - the Namespace, because it must exist before OLM installs the bundle
/// - the admission policies, because OLM cannot install them
/// - the CA Secret, because OLM issues the serving certificate
const FILES: [(&str, &str, &str); 7] = [
    (
        "deploy/rbac/server.yaml",
        "ClusterRole",
        "ifo-apiserver-registration",
    ),
    ("deploy/rbac/targets.yaml", "ClusterRole", "ifo-targets"),
    (
        "deploy/rbac/targets.yaml",
        "ClusterRoleBinding",
        "ifo-targets",
    ),
    ("deploy/rbac/users.yaml", "ClusterRole", "ifo-view"),
    (
        "deploy/base/configmap.yaml",
        "ConfigMap",
        "ifo-apiserver-baselines",
    ),
    (
        "deploy/base/poddisruptionbudget.yaml",
        "PodDisruptionBudget",
        "ifo-apiserver",
    ),
    (
        "deploy/base/priorityclass.yaml",
        "PriorityClass",
        "ifo-apiserver",
    ),
];

/// The comment above each generated file.
const NOTE: &str = "# Generated from the manifests in deploy/ by `make manifests`.\n";

/// Returns the files of the bundle, each with its path in the repository and its content. `crd` is
/// the CRD of rule sets.
pub(super) fn bundle(crd: &str) -> anyhow::Result<Vec<(String, String)>> {
    let mut files = vec![
        file("ifo.clusterserviceversion", &cluster_service_version()?)?,
        (
            "deploy/olm/manifests/operationrulesets.crd.yaml".to_owned(),
            crd.to_owned(),
        ),
    ];
    for (path, kind, name) in FILES {
        let mut object = object(path, kind, name)?;
        if let Some(metadata) = object["metadata"].as_object_mut() {
            // OLM installs namespaced objects into the namespace of the bundle.
            metadata.remove("namespace");
        }
        files.push(file(&format!("{name}.{}", kind.to_lowercase()), &object)?);
    }
    Ok(files)
}

fn file(name: &str, object: &Value) -> anyhow::Result<(String, String)> {
    let yaml = serde_saphyr::to_string(object)?;
    let path = format!("deploy/olm/manifests/{name}.yaml");
    Ok((path, format!("{NOTE}{yaml}")))
}

/// Reads an object from a file of the repository.
fn object(path: &str, kind: &str, name: &str) -> anyhow::Result<Value> {
    let file = repository().join(path);
    let text = read(&file)?;
    let objects: Result<Vec<Value>, _> = text
        .split("\n---\n")
        .map(|document| parse(&file, document))
        .collect();
    let mut objects = objects?.into_iter();
    let found = objects.find(|it| it["kind"] == kind && it["metadata"]["name"] == name);
    found.with_context(|| format!("{path} has no {kind} {name}"))
}

/// Returns the Deployment of `deploy/base`, with arguments for the serving certificate of OLM.
fn deployment() -> anyhow::Result<Value> {
    let mut deployment = object("deploy/base/deployment.yaml", "Deployment", "ifo-apiserver")?;
    let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
    let args = container["args"]
        .as_array_mut()
        .context("the container must have arguments")?;
    args.extend([
        // OLM creates the Service. Its name is the name of the Deployment and the suffix
        // `-service`.
        json!("--service-name=ifo-apiserver-service"),
        json!(format!("--tls-cert-file={CERTIFICATES}/apiserver.crt")),
        json!(format!(
            "--tls-private-key-file={CERTIFICATES}/apiserver.key"
        )),
    ]);
    Ok(deployment)
}

/// Returns the rules of one role in `deploy/rbac/server.yaml`.
fn rules(kind: &str, name: &str) -> anyhow::Result<Vec<Value>> {
    let role = object("deploy/rbac/server.yaml", kind, name)?;
    role["rules"]
        .as_array()
        .cloned()
        .context("a role must have rules")
}

fn cluster_service_version() -> anyhow::Result<Value> {
    let version = env!("CARGO_PKG_VERSION");
    let deployment = deployment()?;
    let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
    let mut cluster_rules = rules("ClusterRole", "ifo-apiserver")?;
    cluster_rules.extend(rules("ClusterRole", "ifo-apiserver-registration")?);
    let example = repository().join("rules/generic/deployments.yaml");
    let example: Value = parse(&example, &read(&example)?)?;
    Ok(json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": format!("ifo.v{version}"),
            "annotations": {
                "alm-examples": serde_json::to_string(&[example])?,
                // The level of an operator that installs its own software and manages no other.
                "capabilities": "Basic Install",
                "categories": "Monitoring",
                "containerImage": image,
                "description": "Shows which operations are in flight in a cluster.",
                "operatorframework.io/suggested-namespace": NAMESPACE,
                "repository": "https://github.com/kubevirt/ifo",
                "support": "https://github.com/kubevirt/ifo/issues",
            },
        },
        "spec": {
            "displayName": "In-Flight Operations",
            "description": DESCRIPTION,
            "version": version,
            "maturity": "alpha",
            "minKubeVersion": "1.30.0",
            "keywords": ["operations", "migration", "upgrade", "drain", "kubevirt"],
            "icon": [{
                "base64data": STANDARD.encode(read(&repository().join("docs/images/icon.svg"))?),
                "mediatype": "image/svg+xml",
            }],
            "links": [{"name": "Documentation", "url": "https://github.com/kubevirt/ifo"}],
            "maintainers": [{"name": "KubeVirt", "email": "kubevirt-dev@googlegroups.com"}],
            "provider": {"name": "KubeVirt"},
            // The server watches the resources of all namespaces.
            "installModes": [
                {"type": "OwnNamespace", "supported": false},
                {"type": "SingleNamespace", "supported": false},
                {"type": "MultiNamespace", "supported": false},
                {"type": "AllNamespaces", "supported": true},
            ],
            "customresourcedefinitions": {"owned": [{
                "name": format!("{}.{}", ruleset::PLURAL, ifo_api::GROUP),
                "version": ifo_api::VERSION,
                "kind": ruleset::KIND,
                "displayName": "Operation rule set",
                "description": "Rules that detect operations on one resource.",
            }]},
            "apiservicedefinitions": {"owned": [{
                "group": ifo_api::LIVE_GROUP,
                "version": ifo_api::VERSION,
                "kind": ifo_api::live::KIND,
                "name": ifo_api::live::PLURAL,
                "displayName": "In-flight operation",
                "description": "An operation that is in flight on an object.",
                "deploymentName": deployment["metadata"]["name"],
                "containerPort": 8443,
            }]},
            "install": {
                "strategy": "deployment",
                "spec": {
                    "clusterPermissions": [
                        {"serviceAccountName": "ifo-apiserver", "rules": cluster_rules},
                    ],
                    "permissions": [{
                        "serviceAccountName": "ifo-apiserver",
                        "rules": rules("Role", "ifo-apiserver")?,
                    }],
                    "deployments": [{
                        "name": deployment["metadata"]["name"],
                        "label": deployment["metadata"]["labels"],
                        "spec": deployment["spec"],
                    }],
                },
            },
        },
    }))
}

/// The description on the page of the operator.
const DESCRIPTION: &str = "\
Shows in one place which operations are in flight in a cluster: migrations, upgrades, imports, snapshots and drains.

- Teams declare in CEL how to recognize an operation on their resources (`OperationRuleSet`).
- A server watches these resources and keeps the operations in memory.
- Clients read them like any other resource: `kubectl get ifos -A --watch`.

Install this bundle in the namespace `ifo-system`. Then do these two steps, which the bundle does not contain:

- Apply the rule sets for your cluster, for example `kubectl apply -k https://github.com/kubevirt/ifo//rules/kubevirt`.
- Apply the admission policies, which check who may write rule sets:
  `kubectl apply -f https://raw.githubusercontent.com/kubevirt/ifo/main/deploy/rbac/admission.yaml`.
";
