//! Tests of the bundle for the Operator Lifecycle Manager (OLM) in `deploy/olm`. The cluster has
//! the CRDs of OLM, but OLM does not run. The test itself creates the objects that OLM would create
//! from the ClusterServiceVersion.

use super::certificate_renewal::{ca, inject, leaf, mount, new_key};
use super::{only_object, until_nothing_remains, until_rollout_is_listed};
use crate::harness::{API_SERVICE, apart, eventually, mounted_secret};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

const NAMESPACE: &str = "ifo-system";

/// Name of the Service that OLM creates for the Deployment of an aggregated API.
const SERVICE: &str = "ifo-apiserver-service";

/// Returns the folder with the CRDs of OLM. The folder is in a Go module. `go mod download`
/// downloads the version of the module that `tests/olm/go.mod` requires.
fn olm_definitions() -> PathBuf {
    let module = "github.com/operator-framework/api";
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/olm");
    let go = |args: &[&str]| {
        let output = Command::new("go").args(args).current_dir(&folder).output();
        let output = output.expect("Go must be installed");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "go {args:?}: {error}");
        String::from_utf8(output.stdout).expect("go prints UTF-8")
    };
    go(&["mod", "download", module]);
    let module = go(&["list", "-m", "-f", "{{.Dir}}", module]);
    Path::new(module.trim()).join("crds")
}

/// Returns the objects in the bundle.
fn bundle() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/olm/manifests");
    let files = std::fs::read_dir(folder).expect("there is a bundle");
    files
        .map(|file| {
            std::fs::read_to_string(file.unwrap().path())
                .expect("a file of the bundle must be text")
        })
        .map(|yaml| serde_saphyr::from_str(&yaml).expect("the bundle is YAML"))
        .collect()
}

/// Returns the objects that OLM creates from a ClusterServiceVersion, without the Deployment.
fn created_by_olm(version: &Value) -> Vec<Value> {
    let text = include_str!("olm.yaml");
    let mut objects: Vec<Value> = serde_saphyr::from_str(text).expect("the file is a list");
    let install = &version["spec"]["install"]["spec"];
    for object in &mut objects {
        let permissions = match object["kind"].as_str() {
            Some("ClusterRole") => &install["clusterPermissions"][0],
            Some("Role") => &install["permissions"][0],
            _ => continue,
        };
        assert_eq!(permissions["serviceAccountName"], "ifo-apiserver");
        object["rules"] = permissions["rules"].clone();
    }
    objects
}

/// Returns the Deployment that OLM creates from a ClusterServiceVersion, including the volume of
/// the serving certificate.
fn deployment(version: &Value) -> Value {
    let described = &version["spec"]["install"]["spec"]["deployments"][0];
    let mut deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": described["name"], "namespace": NAMESPACE},
        "spec": described["spec"],
    });
    let pod = &mut deployment["spec"]["template"]["spec"];
    let volumes = pod["volumes"].as_array_mut().expect("there are volumes");
    volumes.push(json!({"name": "apiservice-cert", "secret": {
        "secretName": format!("{SERVICE}-cert"),
        "items": [
            {"key": "tls.crt", "path": "apiserver.crt"},
            {"key": "tls.key", "path": "apiserver.key"},
        ],
    }}));
    let mounts = pod["containers"][0]["volumeMounts"].as_array_mut();
    mounts.expect("there are mounts").push(json!({
        "name": "apiservice-cert", "mountPath": "/apiserver.local.config/certificates",
    }));
    deployment
}

#[test]
fn a_server_that_olm_installs_serves_operations_and_is_removed_except_for_the_crd() {
    apart("olm", async |cluster| {
        let definitions = olm_definitions();
        let definitions = definitions.display();
        cluster
            .kubectl(&format!("apply --server-side -f {definitions}"))
            .await;
        cluster
            .kubectl(&format!("create namespace {NAMESPACE}"))
            .await;
        let mut bundle = bundle();
        for object in &mut bundle {
            object["metadata"]["namespace"] = json!(NAMESPACE);
        }
        eventually("the objects of the bundle are accepted", async || {
            cluster.try_apply(&bundle).await
        })
        .await;
        let version = only_object(&bundle, "ClusterServiceVersion", "ifo.v0.2.0-dev");
        let (created, deployment) = (created_by_olm(version), deployment(version));
        cluster.apply(&created).await;
        cluster.apply(std::slice::from_ref(&deployment)).await;

        let key = new_key();
        let authority = ca("olm-selfsigned", &key);
        let dir = cluster.control_plane.addresses.dir.join("server");
        let folder = mounted_secret(&dir, &format!("{SERVICE}-cert"));
        let names = ["svc", ""].map(|end| format!("{SERVICE}.{NAMESPACE}.{end}"));
        let names = names.each_ref().map(|name| name.trim_end_matches('.'));
        mount(&folder, &leaf(&authority, &names));
        for (key, file) in [("tls.crt", "apiserver.crt"), ("tls.key", "apiserver.key")] {
            std::os::unix::fs::symlink(key, folder.join(file)).expect("the folder is ours");
        }
        let mut server = cluster.start_unready("server", &deployment).await;
        inject(cluster, &[&authority]).await;
        server.until_ready().await;
        let port = json!({"spec": {"service": {"port": server.port()}}});
        cluster.admin.merge(API_SERVICE, &port).await.ok();
        let service = format!("/api/v1/namespaces/{NAMESPACE}/services/{SERVICE}");
        let port = json!({"spec": {"ports": [{"port": server.port()}]}});
        cluster.admin.merge(&service, &port).await.ok();
        cluster.until_served().await;

        // The server has only the rights from the bundle. With these rights, it must read rule
        // sets, write their status, and detect operations.
        until_rollout_is_listed(cluster).await;
        cluster
            .until_rule_set("deployment-rules", "Ready", "True")
            .await;

        // When an administrator removes an operator, OLM deletes the objects that OLM has created,
        // and the objects of the bundle except the CRD. The test does the same.
        cluster.delete_all(&created).await;
        cluster.delete_all(&[deployment]).await;
        let keeps = |it: &Value| it["kind"] == "CustomResourceDefinition";
        let removed: Vec<Value> = bundle.into_iter().filter(|it| !keeps(it)).collect();
        cluster.delete_all(&removed).await;
        drop(server);
        cluster
            .kubectl(&format!("delete namespace {NAMESPACE}"))
            .await;
        let rule_sets = cluster.rule_sets().await;
        assert!(!rule_sets.is_empty(), "uninstalling must keep rule sets");
        cluster.kubectl("delete -k rules/generic").await;
        until_nothing_remains(cluster).await;
    });
}
