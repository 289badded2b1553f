//! Test of the admission webhook of the component `gate-webhook`: it refuses requests while something
//! is in flight, and the kube-apiserver refuses them while the server does not answer.

use crate::deploy_manifests::{GATE_WEBHOOK, Overlay};
use crate::harness::{Caller, Kind, RULE_SET, administrator, apart, eventually, ok_if, rule_set};
use crate::installation::Cluster;
use serde_json::{Value, json};

const POD: Kind = Kind {
    api_version: "v1",
    kind: "Pod",
    plural: "pods",
};

/// Creates a Pod in the namespace `default`. Waits until its ServiceAccount exists.
async fn create_pod(admin: &Caller, name: &str, node: &str) {
    let pod = json!({
        "apiVersion": POD.api_version, "kind": POD.kind, "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "none"}], "nodeName": node},
    });
    eventually(&format!("the Pod {name} is created"), async || {
        let answer = admin.post(&POD.path(Some("default")), &pod).await;
        ok_if(answer.code == 201, answer)
    })
    .await;
}

/// Tries to evict the Pod `p` without an effect. Returns the status code and the message.
async fn evict(caller: &Caller) -> (u16, String) {
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"},
    });
    let path = format!("{}/p/eviction?dryRun=All", POD.path(Some("default")));
    let answer = caller.post(&path, &eviction).await;
    (answer.code, answer.text)
}

async fn until_refused(caller: &Caller, code: u16, reason: &str) {
    eventually(&format!("an eviction is refused: {reason}"), async || {
        let (found, text) = evict(caller).await;
        ok_if(
            found == code && text.contains(reason),
            format!("{found} {text}"),
        )
    })
    .await;
}

#[test]
fn the_webhook_refuses_requests_while_something_is_in_flight_and_while_no_server_answers() {
    apart("gate-webhook", async |control_plane| {
        let cluster = Cluster::of(control_plane).await;
        let admin = &cluster.admin;
        cluster.kubectl_on_folder("apply", "deploy/crd").await;
        let overlay = Overlay::new("deploy", &[GATE_WEBHOOK], None);
        cluster.kubectl_on_folder("apply", overlay.path()).await;
        cluster
            .kubectl_on_folder("apply", "deploy/targets-default")
            .await;
        let mut server = cluster.server().await;
        cluster.register_with("apiservice", &server).await;
        let port = json!([{
            "op": "add", "path": "/webhooks/0/clientConfig/service/port", "value": server.port(),
        }]);
        let webhook = [
            "patch",
            "validatingwebhookconfiguration",
            "ifo-gate",
            "--type=json",
            "-p",
        ];
        let patched = cluster
            .kubectl(&[&webhook[..], &[&port.to_string()]].concat())
            .await;
        patched.expect("an administrator may change the webhook");

        // The operation `Working` is in flight while the Pod `busy` exists.
        let mut rules = rule_set(
            "work",
            &POD,
            &[("Working", "object.metadata.name == 'busy'")],
        );
        rules["spec"]["nodes"] = json!("[object.spec.nodeName]");
        admin.post(&RULE_SET.path(None), &rules).await.ok();
        for node in ["n1", "n2"] {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
            admin.post("/api/v1/nodes", &node).await.ok();
        }
        create_pod(admin, "p", "n1").await;
        eventually("an eviction is admitted", async || {
            let (code, text) = evict(admin).await;
            ok_if(code == 201, text)
        })
        .await;

        create_pod(admin, "busy", "n2").await;
        let reason = "namespace default is not idle (OperationsInFlight)";
        until_refused(admin, 429, reason).await;
        let (mut config, _) = administrator(control_plane).await;
        config.auth_info.impersonate = Some("rescuer".to_owned());
        config.auth_info.impersonate_groups = Some(vec![
            "system:masters".to_owned(),
            "ifo:break-glass".to_owned(),
        ]);
        assert_eq!(evict(&Caller::new(config)).await.0, 201);
        let cordon = async |node: &str| {
            let patch = json!({"spec": {"unschedulable": true}});
            let answer = admin.merge(&format!("/api/v1/nodes/{node}"), &patch).await;
            (answer.code, answer.text)
        };
        let (code, text) = cordon("n2").await;
        assert!(
            code == 403 && text.contains("node n2 is not idle"),
            "{code} {text}"
        );
        let delete = admin.delete("/api/v1/namespaces/default?dryRun=All").await;
        assert_eq!(delete.code, 403, "{delete:?}");

        // `kubectl drain` waits until the operation has ended.
        let drain = ["drain", "n1", "--force", "--grace-period=0", "--timeout=2m"];
        let end = async {
            until_refused(admin, 429, reason).await;
            let path = format!("{}/busy?gracePeriodSeconds=0", POD.path(Some("default")));
            admin.delete(&path).await.ok();
        };
        let (drained, ()) = tokio::join!(cluster.kubectl(&drain), end);
        let drained = drained.unwrap_or_else(|error| panic!("{error}"));
        assert!(drained.contains("n1 drained"), "{drained}");
        let gone: Value = admin
            .get(&format!("{}/p", POD.path(Some("default"))))
            .await
            .body;
        assert_eq!(gone["code"], 404);

        create_pod(admin, "p", "n2").await;
        server.kill().await;
        let (code, text) = evict(admin).await;
        assert!(
            code >= 500 && text.contains("gate.ifo.kubevirt.io"),
            "{code} {text}"
        );
        let (code, text) = cordon("n2").await;
        assert!(
            code >= 500 && text.contains("gate.ifo.kubevirt.io"),
            "{code} {text}"
        );
    });
}
