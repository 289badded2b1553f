//! Test of the admission webhook of the component `gate-webhook`: it refuses requests while something
//! is in flight, and the kube-apiserver refuses them while the server does not answer.

use crate::activities::evict;
use crate::deploy_manifests::{GATE_WEBHOOK, Overlay};
use crate::harness::{Caller, Cluster, NODE, POD, RULE_SET, apart, eventually, ok_if, rule_set};
use serde_json::json;

async fn create_pod(cluster: &Cluster, name: &str, node: &str) {
    let spec = json!({"containers": [{"name": "c", "image": "none"}], "nodeName": node});
    let pod = POD.object(name, json!({"spec": spec}));
    let pods = POD.path(Some("default"));
    cluster.admin.create_when_served(&pods, &pod).await;
}

async fn until_evicted(caller: &Caller, code: u16, reason: &str) {
    eventually(
        &format!("the answer to an eviction: {reason}"),
        async || {
            let (found, text) = evict(caller, "default").await;
            ok_if(
                found == code && text.contains(reason),
                format!("{found} {text}"),
            )
        },
    )
    .await;
}

#[test]
fn the_webhook_refuses_requests_while_something_is_in_flight_and_while_no_server_answers() {
    apart("gate-webhook", async |cluster| {
        let admin = &cluster.admin;
        let overlay = Overlay::new("deploy", &[GATE_WEBHOOK], None);
        let folders = ["deploy/crd", overlay.path(), "deploy/targets-default"];
        cluster.apply_folders(&folders).await;
        let mut server = cluster.server().await;
        cluster.register_server(&server).await;
        let port = json!([{
            "op": "add", "path": "/webhooks/0/clientConfig/service/port", "value": server.port(),
        }]);
        let webhook = "validatingwebhookconfiguration ifo-gate";
        cluster
            .kubectl(&format!("patch {webhook} --type=json -p {port}"))
            .await;

        // The operation `Working` is in flight while the Pod `busy` exists.
        let working = [("Working", "object.metadata.name == 'busy'")];
        let mut rules = rule_set("work", &POD, &working);
        rules["spec"]["nodes"] = json!("[object.spec.nodeName]");
        cluster.create(&RULE_SET, None, &rules).await;
        for node in ["n1", "n2"] {
            cluster
                .create(&NODE, None, &NODE.object(node, json!({})))
                .await;
        }
        create_pod(cluster, "p", "n1").await;
        until_evicted(admin, 201, "").await;

        create_pod(cluster, "busy", "n2").await;
        let reason = "namespace default is not idle (OperationsInFlight)";
        until_evicted(admin, 429, reason).await;
        let rescuer = cluster.user("rescuer", &["system:masters", "ifo:break-glass"]);
        assert_eq!(evict(&rescuer, "default").await.0, 201);
        let cordon = async || {
            let patch = json!({"spec": {"unschedulable": true}});
            admin.merge(&NODE.one(None, "n2"), &patch).await
        };
        let message = cordon().await.refused(403);
        assert!(message.contains("node n2 is not idle"), "{message}");
        // The webhook configuration sends only the updates that start a cordon.
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        admin.merge(&NODE.one(None, "n2"), &label).await.ok();
        let delete = "/api/v1/namespaces/default?dryRun=All";
        admin.delete(delete).await.refused(403);

        // `kubectl drain` waits until the operation has ended.
        let end = async {
            until_evicted(admin, 429, reason).await;
            let busy = POD.one(Some("default"), "busy");
            admin
                .delete(&format!("{busy}?gracePeriodSeconds=0"))
                .await
                .ok();
        };
        let drain = "drain n1 --force --grace-period=0 --timeout=2m";
        let (drained, ()) = tokio::join!(cluster.kubectl(drain), end);
        assert!(drained.contains("n1 drained"), "{drained}");
        admin.get(&POD.one(Some("default"), "p")).await.refused(404);

        create_pod(cluster, "p", "n2").await;
        server.kill().await;
        let (code, text) = evict(admin, "default").await;
        let answer = cordon().await;
        for (code, text) in [(code, text), (answer.code, answer.text)] {
            let is_unavailable = code >= 500 && text.contains("gate.ifo.kubevirt.io");
            assert!(is_unavailable, "{code} {text}");
        }
        // The kube-apiserver does not need the webhook for other changes of a node, or for the cordon of
        // a node that is not ready.
        let label = json!({"metadata": {"labels": {"a": "c"}}});
        admin.merge(&NODE.one(None, "n2"), &label).await.ok();
        let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        let status = format!("{}/status", NODE.one(None, "n2"));
        admin.merge(&status, &not_ready).await.ok();
        cordon().await.ok();
    });
}
