//! Generates the bundle for the Operator Lifecycle Manager (OLM) in `deploy/olm` from the manifests
//! in `deploy`.
//!
//! OLM itself creates some objects from the `ClusterServiceVersion`: the ServiceAccount with its
//! roles, the Deployment, the Service, the APIService, and the serving certificate. The other
//! objects that the server needs are files of the bundle, if OLM can install their kind. A
//! `ClusterRoleBinding` in the bundle contains the namespace `ifo-system`, and OLM does not replace it.
//! So users must install the bundle in this namespace.

use super::{parse, read, repository};
use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Folder in which OLM mounts the serving certificate.
const CERTIFICATES: &str = "/apiserver.local.config/certificates";

/// The objects that become files of the bundle. Each entry has the path below `deploy` of the manifest
/// that contains the object, then the kind and the name of the object.
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
const FILES: [&str; 7] = [
    "rbac/server.yaml ClusterRole ifo-apiserver-registration",
    "rbac/targets.yaml ClusterRole ifo-targets",
    "rbac/targets.yaml ClusterRoleBinding ifo-targets",
    "rbac/users.yaml ClusterRole ifo-view",
    "base/configmap.yaml ConfigMap ifo-apiserver-baselines",
    "base/poddisruptionbudget.yaml PodDisruptionBudget ifo-apiserver",
    "base/priorityclass.yaml PriorityClass ifo-apiserver",
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
    for entry in FILES {
        let mut object = object(entry)?;
        let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let file_name = format!("{name}.{kind}");
        if let Some(metadata) = object["metadata"].as_object_mut() {
            // OLM installs namespaced objects into the namespace of the bundle.
            metadata.remove("namespace");
        }
        files.push(file(&file_name, &object)?);
    }
    Ok(files)
}

fn file(name: &str, object: &Value) -> anyhow::Result<(String, String)> {
    let yaml = serde_saphyr::to_string(object)?;
    let path = format!("deploy/olm/manifests/{name}.yaml");
    Ok((path, format!("{NOTE}{yaml}")))
}

/// Reads an object from a file in `deploy`. `entry` has the form of the entries of [`FILES`].
fn object(entry: &str) -> anyhow::Result<Value> {
    let [path, kind, name] = entry.split(' ').collect::<Vec<_>>()[..] else {
        bail!("{entry} must have three words");
    };
    let file = repository().join("deploy").join(path);
    let text = read(&file)?;
    let objects: Result<Vec<Value>, _> = text
        .split("\n---\n")
        .map(|document| parse(&file, document))
        .collect();
    let mut objects = objects?.into_iter();
    let found = objects.find(|it| it["kind"] == kind && it["metadata"]["name"] == name);
    found.with_context(|| format!("there is no {entry}"))
}

/// Returns the Deployment of `deploy/base`, with arguments for the serving certificate of OLM.
fn deployment() -> anyhow::Result<Value> {
    let mut deployment = object("base/deployment.yaml Deployment ifo-apiserver")?;
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
    let role = object(&format!("rbac/server.yaml {kind} {name}"))?;
    role["rules"]
        .as_array()
        .cloned()
        .context("a role must have rules")
}

fn cluster_service_version() -> anyhow::Result<Value> {
    let icon = STANDARD.encode(read(&repository().join("docs/images/icon.svg"))?);
    let file = repository().join("examples/manifests/olm.yaml");
    let text = read(&file)?
        .replace("$version", env!("CARGO_PKG_VERSION"))
        .replace("$icon", &icon);
    let mut version: Value = parse(&file, &text)?;
    let deployment = deployment()?;
    let mut cluster_rules = rules("ClusterRole", "ifo-apiserver")?;
    cluster_rules.extend(rules("ClusterRole", "ifo-apiserver-registration")?);
    let example = repository().join("rules/generic/deployments.yaml");
    let example: Value = parse(&example, &read(&example)?)?;
    let annotations = &mut version["metadata"]["annotations"];
    annotations["alm-examples"] = serde_json::to_string(&[example])?.into();
    annotations["containerImage"] =
        deployment["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    let account = "ifo-apiserver";
    version["spec"]["install"] = json!({
        "strategy": "deployment",
        "spec": {
            "clusterPermissions": [{"serviceAccountName": account, "rules": cluster_rules}],
            "permissions": [
                {"serviceAccountName": account, "rules": rules("Role", "ifo-apiserver")?},
            ],
            "deployments": [{
                "name": deployment["metadata"]["name"],
                "label": deployment["metadata"]["labels"],
                "spec": deployment["spec"],
            }],
        },
    });
    Ok(version)
}
