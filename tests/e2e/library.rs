//! Tests the example of the library `aggregated-apiserver` behind the kube-apiserver: a server with a
//! resource of its own, which kubectl lists, watches and explains.

use crate::harness::{TestCluster, eventually, free_port, shared};
use serde_json::json;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// Starts the example on the port. Returns it with the certificate of its CA.
async fn start(cluster: &TestCluster, port: u16) -> (Child, String) {
    let example = crate::binaries::example(env!("CARGO_BIN_EXE_ifo-apiserver"), "notes");
    let mut child = Command::new(example)
        .env("KUBECONFIG", &cluster.control_plane.addresses.kubeconfig)
        .env("PORT", port.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the example can be started");
    let stdout = child.stdout.take().expect("the output is piped");
    let mut lines = BufReader::new(stdout).lines();
    let mut bundle = String::new();
    while !bundle.contains("END CERTIFICATE") {
        let line = lines.next_line().await.expect("the output is text");
        bundle += &line.expect("the example prints its CA");
        bundle.push('\n');
    }
    (child, bundle)
}

/// Registers the example as the README of the library describes.
async fn register(cluster: &TestCluster, port: u16, bundle: &str) {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "notes", "namespace": "default"},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
    });
    let api_service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.example.com"},
        "spec": {
            "group": "example.com", "version": "v1",
            "groupPriorityMinimum": 1000, "versionPriority": 15,
            "caBundle": BASE64_STANDARD.encode(bundle),
            "service": {"name": "notes", "namespace": "default", "port": port},
        },
    });
    cluster.apply(&[service, api_service]).await;
}

#[test]
fn kubectl_reads_the_resource_of_the_example() {
    shared(async |cluster| {
        let port = free_port();
        let (_example, bundle) = start(cluster, port).await;
        register(cluster, port, &bundle).await;
        let table = eventually("kubectl lists the note", async || {
            cluster.kubectl(&["get", "notes"]).await
        })
        .await;
        let lines: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[0], ["NAME", "TEXT"], "{table}");
        assert_eq!((lines[1][0], lines[1][2]), ("clock", "s"), "{table}");

        let watch = [
            "get",
            "--raw",
            "/apis/example.com/v1/notes?watch=1&timeoutSeconds=4",
        ];
        let events = cluster.kubectl(&watch).await.expect("a watch succeeds");
        let count = |kind: &str| events.matches(&format!("\"type\":\"{kind}\"")).count();
        assert_eq!(count("ADDED"), 1, "{events}");
        assert!(count("MODIFIED") >= 1, "{events}");

        let none = [
            "get",
            "notes",
            "--field-selector=spec.text=never",
            "-o",
            "name",
        ];
        assert_eq!(cluster.kubectl(&none).await.as_deref(), Ok(""));
        let explained = eventually("kubectl explains the field", async || {
            cluster.kubectl(&["explain", "notes.spec.text"]).await
        })
        .await;
        assert!(explained.contains("What the note says."), "{explained}");

        // The user has no right to read notes.
        let refused = ["get", "notes", "--as", "jane"];
        let error = cluster.kubectl(&refused).await.unwrap_err();
        assert!(
            error.contains("User \"jane\" cannot list resource"),
            "{error}"
        );

        let delete = ["delete", "apiservice", "v1.example.com"];
        cluster.kubectl(&delete).await.expect("it can be deleted");
    });
}
