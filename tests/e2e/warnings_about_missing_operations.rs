//! Tests of incomplete lists of operations. If a rule set (a custom resource with rules that detect
//! operations) does not work, its operations may be missing from a list. In this case, kubectl and
//! the plugin `kubectl ifo` must print a warning, and `kubectl ifo wait` must not report that
//! nothing is in flight.

use crate::harness::{TestCluster, VM, condition, eventually, migrating, rule_set, shared, text};
use crate::plugin::run;
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

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
fn wait_does_not_succeed_while_a_rule_fails() {
    shared(async |cluster| {
        let namespace = cluster.namespace("incomplete").await;
        let elsewhere = cluster.namespace("incomplete-beside").await;
        let mut rules = rule_set(
            namespace,
            &VM,
            &[("Running", "object.status.printableStatus > 5")],
        );
        rules["spec"]["component"] = json!(namespace);
        rules["spec"]["namespaces"] = json!([namespace, elsewhere]);
        cluster.ready_rule_set(&rules).await;
        let wait = ["wait", "-c", namespace, "--timeout=0"];
        // Rule sets of other tests can make the server list the target again.
        eventually("the rule set works", async || {
            let said = run(cluster, &wait).await;
            (said.code == 0).then_some(()).ok_or(said.err)
        })
        .await;

        cluster.machine(namespace, "a", "Stopped").await;
        let failing = cluster
            .rule_set_until(namespace, "a failed evaluation", |it| {
                condition(it, "Ready")["reason"] == "EvaluationFailed"
            })
            .await;
        assert_eq!(condition(&failing, "Ready")["status"], "False");
        let message = text(condition(&failing, "Ready"), "/message");
        assert!(
            message.starts_with("evaluation fails on 1 object: ")
                && message.contains("rules[Running].expression"),
            "{message}"
        );
        assert!(
            !message.contains("Stopped"),
            "the message must not contain a value of the object: {message}"
        );
        let table = cluster.kubectl(&["get", "ors", namespace]).await;
        let table = table.expect("kubectl must list the rule set");
        assert!(
            table.contains("False") && table.contains("EvaluationFailed"),
            "{table}"
        );

        let said = run(cluster, &wait).await;
        assert_eq!((said.code, said.out.as_str()), (3, ""), "{}", said.err);
        assert!(
            said.err.contains(namespace) && said.err.contains("rules[Running].expression"),
            "{}",
            said.err
        );
        let said = run(
            cluster,
            &[&wait[..], &["--ignore-rule-set", "nobody"]].concat(),
        )
        .await;
        assert_eq!(said.code, 2, "{}", said.err);
        let here = run(
            cluster,
            &["wait", "-c", namespace, "-n", namespace, "--timeout=0"],
        )
        .await;
        assert_eq!(here.code, 3, "{}", here.err);
        // In the other namespace, the rule fails on no object, so `wait` succeeds.
        let there = run(
            cluster,
            &["wait", "-c", namespace, "-n", elsewhere, "--timeout=3m"],
        )
        .await;
        assert_eq!(there.code, 0, "{}", there.err);

        let line = format!("{namespace} (evaluation fails on 1 object)");
        let list = run(cluster, &["list", "-n", namespace]).await;
        assert!(list.err.contains(&line), "{}", list.err);
        let summary = run(cluster, &["summary", "-n", namespace, "-O", "json"]).await;
        let incomplete = &summary.json()["incomplete"];
        assert!(incomplete["named"].to_string().contains(namespace));
        let tree = run(cluster, &["tree", "-n", namespace, "-O", "json"]).await;
        assert!(tree.json()["incomplete"]["notWorking"].as_u64() >= Some(1));
        let warning = kubectl_warning(cluster, namespace, None).await;
        assert!(
            warning.contains("Warning: ") && warning.contains(&line),
            "{warning}"
        );
        let warning = kubectl_warning(cluster, elsewhere, None).await;
        assert!(!warning.contains(namespace), "{warning}");

        // The rule fails because it compares a string with a number. The test removes the field
        // that the rule reads. If this field is missing, the expression counts as false, so the
        // rule does not fail.
        cluster.set_status(namespace, "a", "").await;
        let patch = json!({"status": {"printableStatus": null}});
        let path = format!("{}/a", VM.path(Some(namespace)));
        cluster.admin.merge(&path, &patch).await.ok();
        eventually("the failure is over", async || {
            let said = run(cluster, &wait).await;
            (said.code == 0).then_some(()).ok_or(said.err)
        })
        .await;
        cluster
            .rule_set_until(namespace, "Ready again", |it| {
                condition(it, "Ready")["status"] == "True"
            })
            .await;
    });
}

#[test]
fn the_warning_for_a_user_without_rights_on_rule_sets_has_no_names() {
    shared(async |cluster| {
        let namespace = cluster.namespace("incomplete-tenant").await;
        let mut broken = rule_set(namespace, &VM, &[("Migrating", "object.nonsense(")]);
        broken["spec"]["namespaces"] = json!([namespace]);
        let user = format!("{namespace}-user");
        let role = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/rbac/users.yaml");
        let to_user = format!("--user={user}");
        for args in [
            &["apply", "-f", role][..],
            &[
                "create",
                "rolebinding",
                "tenant",
                "--clusterrole=ifo-view",
                &to_user,
                "-n",
                namespace,
            ],
        ] {
            cluster
                .kubectl(args)
                .await
                .expect("an administrator may grant rights");
        }
        let wait = ["wait", "--as", &user, "-n", namespace, "--timeout=0"];
        let mut working = migrating(namespace);
        working["metadata"]["name"] = json!(format!("{namespace}-works"));
        cluster.ready_rule_set(&working).await;
        eventually("wait succeeds for the tenant", async || {
            let said = run(cluster, &wait).await;
            (said.code == 0).then_some(()).ok_or(said.err)
        })
        .await;

        cluster
            .create(&crate::harness::RULE_SET, None, &broken)
            .await;
        let warned = eventually(
            "wait reports an incomplete list to the tenant",
            async || {
                let said = run(cluster, &wait).await;
                if said.code == 3 {
                    Ok(said.err)
                } else {
                    Err(said.out)
                }
            },
        )
        .await;
        assert!(
            warned.contains("not working, operations may be missing") && !warned.contains(" ("),
            "{warned}"
        );
        let warning = kubectl_warning(cluster, namespace, Some(&user)).await;
        assert!(
            warning.contains("not working, operations may be missing") && !warning.contains(" ("),
            "{warning}"
        );
        let named = kubectl_warning(cluster, namespace, None).await;
        assert!(
            named.contains(&format!("{namespace} (does not compile)")),
            "{named}"
        );
    });
}

/// Lists operations. Returns the `Warning` header, or an empty text for a complete list. Also
/// returns the body of the answer.
pub async fn list_with_warning(cluster: &TestCluster, path: &str) -> (String, Value) {
    let request = Request::get(path).body(Body::empty());
    let request = request.expect("the path is valid");
    let answer = cluster.admin.client.send(request).await;
    let answer = answer.expect("the API server must answer");
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
    let header = |name| {
        answer
            .headers()
            .get(name)
            .map(|it| it.to_str().unwrap_or("?"))
    };
    let warning = match (header("warning"), header("ifo-complete")) {
        (Some(warning), None) => warning.to_owned(),
        (None, Some("true")) => String::new(),
        both => panic!("{path}: {both:?}"),
    };
    let body = answer.into_body().collect().await;
    let body = body.expect("the answer must be complete").to_bytes();
    (warning, serde_json::from_slice(&body).expect("JSON"))
}

/// Between the two pages, a rule set begins to work. At the resourceVersion of the pages, its
/// operations were missing.
#[test]
fn the_second_page_of_a_list_has_the_warning_of_the_first_page() {
    shared(async |cluster| {
        let namespace = cluster.namespace("incomplete-page").await;
        let mut rules = migrating(namespace);
        rules["spec"]["component"] = json!(namespace);
        cluster.ready_rule_set(&rules).await;
        for name in ["a", "b"] {
            cluster.machine(namespace, name, "Migrating").await;
        }
        cluster
            .until_operations(namespace, &[("a", "Migrating"), ("b", "Migrating")])
            .await;
        // The selector excludes the rule sets of other tests.
        let list = format!(
            "/apis/live.ifo.kubevirt.io/v1alpha1/namespaces/{namespace}/inflightoperations?limit=1\
             &labelSelector=ifo.kubevirt.io%2Fcomponent%3D{namespace}"
        );
        let first = eventually("a complete first page", async || {
            let (warning, page) = list_with_warning(cluster, &list).await;
            warning.is_empty().then_some(page).ok_or(warning)
        })
        .await;
        let token = text(&first, "/metadata/continue");
        let mut late = rule_set(
            namespace,
            &VM,
            &[("Late", "object.status.printableStatus == 'Migrating'")],
        );
        late["metadata"]["name"] = json!(format!("{namespace}-late"));
        late["spec"]["component"] = json!(namespace);
        late["spec"]["namespaces"] = json!([namespace]);
        cluster.ready_rule_set(&late).await;
        eventually("the operations of the new rule set", async || {
            let count = cluster.operations(namespace).await.len();
            (count == 4).then_some(()).ok_or(count.to_string())
        })
        .await;
        let (warning, page) = list_with_warning(cluster, &format!("{list}&continue={token}")).await;
        assert_eq!(page["items"].as_array().map(Vec::len), Some(1), "{page}");
        // The new rule set did not exist at the version of the list, although its target was being
        // listed later.
        assert_eq!(warning, "");
        eventually("a complete list of the newest version", async || {
            let (warning, page) = list_with_warning(cluster, &list).await;
            warning.is_empty().then_some(page).ok_or(warning)
        })
        .await;
    });
}
