//! Tests of rules that take much time. The server evaluates the rules of all targets on one thread.
//! So slow rules could hide the operations of other teams.

use crate::harness::{
    ACCOUNT, CRD, Cluster, Kind, alone, condition, crd, eventually, full_size, is, migrating,
    ok_if, rule_set, text,
};
use crate::plugin::run;
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};

const GROUP: &str = "slow.e2e.example.com";

/// Number of objects of each target. In a debug build, one evaluation of a slow rule on each object
/// takes longer than a minute.
const OBJECTS: usize = 300;

/// Number of objects that the test creates at the same time.
const AT_ONCE: usize = 32;

/// Number of elements of the list in each object. An evaluation of [`SLOW`] visits the list this
/// many times, for each pair of elements. It needs most of the steps that are allowed for an object.
const ELEMENTS: u32 = 45;

/// A rule that reads `now`, so that the server evaluates it regularly. It detects no operation.
const SLOW: &str = "now > timestamp('2000-01-01T00:00:00Z') && object.list.exists(a, \
                    object.list.exists(b, object.list.exists(c, a + b + c < 0)))";

fn kinds() -> Vec<Kind> {
    let kind = |number: usize| Kind {
        api_version: "slow.e2e.example.com/v1",
        // A `Kind` needs static strings, so the test leaks these names. They are few and short.
        kind: format!("Slow{number}").leak(),
        plural: format!("slow{number}s").leak(),
    };
    let targets = if full_size() { 3 } else { 1 };
    (0..targets).map(kind).collect()
}

/// Creates the objects of a target.
async fn fill(cluster: &Cluster, kind: &Kind, namespace: &str) {
    let path = kind.path(Some(namespace));
    cluster.admin.until_code(&path, 200).await;
    let list: Vec<u32> = (0..ELEMENTS).collect();
    let create = async |number: usize| {
        let object = kind.object(&format!("o-{number}"), json!({"list": list}));
        cluster.admin.post(&path, &object).await.ok();
    };
    let creations = stream::iter((0..OBJECTS).map(create));
    creations.buffer_unordered(AT_ONCE).collect::<()>().await;
}

/// Changes the objects of a target, one after the other. Never ends.
async fn change_objects(cluster: &Cluster, kind: &Kind, namespace: &str) {
    for turn in 0_usize.. {
        let name = format!("o-{}", turn % OBJECTS);
        cluster
            .merge(kind, namespace, &name, &json!({"turn": turn}))
            .await;
    }
}

/// Checks that the server reports the slow rule sets, and detects the operations of the namespace
/// `good`.
async fn check(cluster: &Cluster, slow: &[String], namespace: &str, good: &str) {
    for name in slow {
        let throttled = cluster.until_rule_set(name, "Ready", "Throttled").await;
        let failure = condition(&throttled, "EvaluationFailed").to_string();
        assert!(
            !failure.contains("cost limit"),
            "the rule must not exhaust its steps: {failure}"
        );
    }
    cluster.set_status(good, "a", "Migrating").await;
    cluster.until_operations(good, &[("a", "Migrating")]).await;
    // While a target is being listed, the warning contains another reason.
    for name in slow {
        let line = format!("{name} (throttled)");
        eventually(&format!("a list contains the warning {line}"), async || {
            let list = run(cluster, &["list", "-n", namespace]).await;
            ok_if(list.err.contains(&line), list.err)
        })
        .await;
    }
    assert_wait(cluster, namespace, "0", 3).await;
    cluster.set_status(good, "a", "Running").await;
    cluster.until_operations(good, &[]).await;
    let has_status = |it: &Value| !condition(it, "Ready").is_null();
    let beside = cluster.rule_set_until(good, "a status", has_status).await;
    assert!(is(&beside, "Ready", "True"), "{beside}");
    let said = run(cluster, &["wait", "-n", good, "--timeout=3m"]).await;
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
}

/// Checks the exit code of `kubectl ifo wait` for the component and namespace of the slow rule sets.
async fn assert_wait(cluster: &Cluster, namespace: &str, timeout: &str, code: i32) {
    let args = [
        "wait",
        "-c",
        namespace,
        "-n",
        namespace,
        "--timeout",
        timeout,
    ];
    let said = run(cluster, &args).await;
    assert_eq!(said.code, code, "{}{}", said.out, said.err);
}

/// The attacker may write rule sets. Their rules use most of the evaluation steps of each object,
/// and read `now` on hundreds of objects of several targets. The objects of one target also change
/// all the time.
#[test]
fn slow_rules_are_throttled_and_hide_no_operations_of_other_rule_sets() {
    alone(async |cluster| {
        let namespace = cluster.new_namespace("slow").await;
        let good = cluster.new_namespace("beside-slow").await;
        cluster.ready_rule_set(&migrating(good)).await;
        cluster.machine(good, "a", "Running").await;
        let read = json!([
            {"apiGroups": [GROUP], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        ]);
        cluster.grant(ACCOUNT, None, &read).await;
        let kinds = kinds();
        let definitions: Vec<_> = kinds.iter().map(|kind| crd(kind, "Namespaced")).collect();
        cluster.apply(&definitions).await;
        for kind in &kinds {
            fill(cluster, kind, namespace).await;
        }
        let rule_sets: Vec<Value> = kinds
            .iter()
            .map(|kind| {
                let name = format!("{namespace}-{}", kind.plural);
                let mut slow = rule_set(&name, kind, &[("Slow", SLOW)]);
                slow["spec"]["component"] = json!(namespace);
                slow["spec"]["namespaces"] = json!([namespace]);
                slow
            })
            .collect();
        cluster.apply(&rule_sets).await;
        let names = rule_sets.iter().map(|it| text(it, "/metadata/name"));
        let names: Vec<String> = names.map(ToOwned::to_owned).collect();
        tokio::select! {
            () = change_objects(cluster, &kinds[0], namespace) => {}
            () = check(cluster, &names, namespace, good) => {}
        }

        // Without objects, the rules take no time, so the rule sets recover by themselves.
        for kind in &kinds {
            cluster.admin.delete(&kind.path(Some(namespace))).await.ok();
        }
        for name in &names {
            cluster.until_rule_set(name, "Ready", "True").await;
        }
        assert_wait(cluster, namespace, "3m", 0).await;
        for kind in &kinds {
            let name = format!("{}.{GROUP}", kind.plural);
            cluster.admin.delete(&CRD.one(None, &name)).await.ok();
        }
    });
}
