//! Tests of incomplete lists of operations. If a rule set (a custom resource with rules that detect
//! operations) does not work, its operations may be missing from a list. In this case, kubectl and
//! the plugin `kubectl ifo` must print a warning, and `kubectl ifo wait` must not report that
//! nothing is in flight.

use crate::harness::{TestCluster, VM, condition, eventually, rule_set, shared, text};
use crate::plugin::run;
use serde_json::json;

/// Lists the operations of a namespace with kubectl. Returns standard error, which contains the
/// warnings.
async fn kubectl_warning(cluster: &TestCluster, namespace: &str, user: Option<&str>) -> String {
    let kubectl = &cluster.control_plane.addresses.kubectl;
    let mut command = tokio::process::Command::new(kubectl);
    command.args(["get", "ifos", "-n", namespace]);
    command.env("KUBECONFIG", &cluster.control_plane.addresses.kubeconfig);
    if let Some(user) = user {
        command.args(["--as", user]);
    }
    let output = command.output().await.expect("kubectl must start");
    let warning = String::from_utf8(output.stderr).expect("kubectl prints UTF-8");
    assert!(output.status.success(), "{warning}");
    warning
}

#[test]
fn while_a_rule_fails_lists_have_a_warning_and_wait_does_not_succeed() {
    shared(async |cluster| {
        let namespace = cluster.namespace("incomplete").await;
        let elsewhere = cluster.namespace("incomplete-beside").await;
        let running = [("Running", "object.status.printableStatus > 5")];
        let mut rules = rule_set(namespace, &VM, &running);
        rules["spec"]["component"] = json!(namespace);
        rules["spec"]["namespaces"] = json!([namespace, elsewhere]);
        cluster.ready_rule_set(&rules).await;
        // The user may read operations, but not rule sets.
        let user = format!("{namespace}-user");
        cluster.grant_view(namespace, &user).await;
        let wait = ["wait", "-c", namespace, "--timeout=0"];
        // Rule sets of other tests can make the server list the target again.
        let until_idle = async || {
            let said = run(cluster, &wait).await;
            (said.code == 0).then_some(()).ok_or(said.err)
        };
        eventually("the rule set works", until_idle).await;

        cluster.machine(namespace, "a", "Stopped").await;
        let failing = cluster
            .rule_set_until(namespace, "a failed evaluation", |it| {
                condition(it, "Ready")["reason"] == "EvaluationFailed"
            })
            .await;
        let message = text(condition(&failing, "Ready"), "/message");
        assert!(
            message.contains("rules[Running].expression") && !message.contains("Stopped"),
            "the message has the place, but no value of the object: {message}"
        );
        let said = run(cluster, &wait).await;
        assert_eq!((said.code, said.out.as_str()), (3, ""), "{}", said.err);
        // In the other namespace, the rule fails on no object, so `wait` succeeds.
        let there = ["wait", "-c", namespace, "-n", elsewhere, "--timeout=3m"];
        let there = run(cluster, &there).await;
        assert_eq!(there.code, 0, "{}", there.err);
        let line = format!("{namespace} (evaluation fails on 1 object)");
        let warning = kubectl_warning(cluster, namespace, None).await;
        assert!(
            warning.contains("Warning: ") && warning.contains(&line),
            "{warning}"
        );
        let warning = kubectl_warning(cluster, elsewhere, None).await;
        assert!(!warning.contains(namespace), "{warning}");
        let warning = kubectl_warning(cluster, namespace, Some(&user)).await;
        assert!(
            warning.contains("not working, operations may be missing") && !warning.contains(" ("),
            "{warning}"
        );

        // A rule that reads a missing field does not fail.
        let patch = json!({"status": {"printableStatus": null}});
        let path = format!("{}/a", VM.path(Some(namespace)));
        cluster.admin.merge(&path, &patch).await.ok();
        eventually("the failure is over", until_idle).await;
    });
}
