//! Does the work of the kubelet for the Pods in one namespace, because the control plane of the
//! tests has no nodes.

use crate::harness::{Cluster, POD, text};
use serde_json::{Value, json};
use std::time::Duration;

/// The interval at which Pods are listed.
const INTERVAL: Duration = Duration::from_millis(200);

/// Runs `future`. Meanwhile, sets the Pods of the server to ready, and runs the Pods of `helm
/// test`.
pub async fn with_kubelet<T>(cluster: &Cluster, future: impl Future<Output = T>) -> T {
    tokio::select! {
        done = future => done,
        () = run_pods(cluster) => unreachable!("it never ends"),
    }
}

async fn run_pods(cluster: &Cluster) {
    let path = POD.path(Some(cluster.namespace));
    loop {
        let list = cluster.admin.get(&path).await;
        let pods = list.body["items"].as_array().cloned().unwrap_or_default();
        for pod in pods {
            let status = format!("{path}/{}/status", text(&pod, "/metadata/name"));
            if pod["metadata"]["annotations"]["helm.sh/hook"] == "test" {
                if pod["status"]["phase"] == "Pending" {
                    let phase = match run_test(cluster, &pod).await {
                        Ok(()) => "Succeeded",
                        Err(error) => {
                            eprintln!("{error}");
                            "Failed"
                        }
                    };
                    let phase = json!({"status": {"phase": phase}});
                    cluster.admin.merge(&status, &phase).await.ok();
                }
                continue;
            }
            let conditions = pod["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            if conditions.any(|it| it["type"] == "Ready" && it["status"] == "True") {
                continue;
            }
            let ready = json!({"status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
            }});
            // A failure is ignored, because the Pod may have been deleted.
            cluster.admin.merge(&status, &ready).await;
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Runs the Pod of `helm test`: runs the real kubectl with the arguments of the Pod's containers
/// and the rights of its ServiceAccount. Returns an error if kubectl fails.
async fn run_test(cluster: &Cluster, pod: &Value) -> Result<(), String> {
    let addresses = &cluster.control_plane.addresses;
    let folder = addresses.dir.join("helm-test");
    std::fs::create_dir_all(&folder).expect("the folder of the run is ours");
    let kubeconfig = folder.join("kubeconfig");
    let account = (cluster.namespace, text(pod, "/spec/serviceAccountName"));
    cluster
        .credentials(&addresses.apiserver_url, account, &kubeconfig)
        .await;
    let containers = ["initContainers", "containers"].map(|list| pod["spec"][list].as_array());
    for container in containers.into_iter().flatten().flatten() {
        assert!(container["command"].is_null(), "the image starts kubectl");
        let args = container["args"].as_array().into_iter().flatten();
        let args: Vec<&str> = args.filter_map(Value::as_str).collect();
        let line = format!("--kubeconfig={} {}", kubeconfig.display(), args.join(" "));
        let output = cluster.try_kubectl(&line).await?;
        println!("{}: {output}", text(container, "/name"));
    }
    Ok(())
}
