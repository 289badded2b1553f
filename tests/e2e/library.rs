//! Tests the example of the library `aggregated-apiserver` behind the kube-apiserver: a server with a
//! resource of its own, which kubectl lists, watches and explains.

use crate::harness::{Cluster, eventually, free_port, shared};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::json;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// Starts the example, and registers it as the README of the library describes.
async fn start(cluster: &Cluster) -> Child {
    let port = free_port();
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
    child
}

#[test]
fn kubectl_reads_the_resource_of_the_example() {
    shared(async |cluster| {
        let _example = start(cluster).await;
        let until =
            async |line: &str| eventually(line, async || cluster.try_kubectl(line).await).await;
        let table = until("get notes").await;
        let words: Vec<&str> = table.split_whitespace().collect();
        assert_eq!(
            (&words[..3], words[4]),
            (&["NAME", "TEXT", "clock"][..], "s"),
            "{table}"
        );

        let path = "/apis/example.com/v1/notes?watch=1&timeoutSeconds=4";
        let events = cluster.kubectl(&format!("get --raw {path}")).await;
        let count = |kind: &str| events.matches(&format!("\"type\":\"{kind}\"")).count();
        assert_eq!(count("ADDED"), 1, "{events}");
        assert!(count("MODIFIED") >= 1, "{events}");

        let none = "get notes --field-selector=spec.text=never -o name";
        assert_eq!(cluster.kubectl(none).await, "");
        let explained = until("explain notes.spec.text").await;
        assert!(explained.contains("What the note says."), "{explained}");
        // The user has no right to read notes.
        let error = cluster
            .try_kubectl("get notes --as jane")
            .await
            .unwrap_err();
        assert!(
            error.contains("User \"jane\" cannot list resource"),
            "{error}"
        );
        cluster.kubectl("delete apiservice v1.example.com").await;
    });
}
