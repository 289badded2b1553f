use super::cluster_objects::{DefaultStrategy, NodeObjects};
use super::drain::{DrainEffect, DrainImpact};
use serde_json::{Value, from_value, json};

const NODE: &str = "worker-3";

fn pod(name: &str, controller: &str) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": name}},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    if let Some((kind, name)) = controller.split_once('/') {
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "x/v1", "kind": kind, "name": name, "uid": "u", "controller": true}]);
    }
    pod
}

fn budget(app: &str, allowed: i64) -> Value {
    json!({
        "metadata": {"name": format!("{app}-budget"), "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 2},
    })
}

fn machine(name: &str, strategy: Option<&str>, migratable: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"evictionStrategy": strategy},
        "status": {"nodeName": NODE, "phase": "Running", "conditions": [
            {"type": "LiveMigratable", "status": migratable, "reason": "DisksNotLiveMigratable"},
        ]},
    })
}

fn impact(pods: Vec<Value>, budgets: Vec<Value>, machines: Vec<Value>) -> DrainImpact {
    DrainImpact::of(NODE, &parts(pods, budgets, machines))
}

fn parts(pods: Vec<Value>, budgets: Vec<Value>, machines: Vec<Value>) -> NodeObjects {
    fn read<T: serde::de::DeserializeOwned>(all: Vec<Value>) -> Vec<T> {
        let all = all
            .into_iter()
            .map(|it| from_value(it).expect("the object is valid"));
        all.collect()
    }
    NodeObjects {
        pods: Some(read(pods)),
        budgets: Some(read(budgets)),
        machines: Some(read(machines)),
        default_strategy: DefaultStrategy::Unknown,
    }
}

fn interrupted(impact: &DrainImpact) -> Vec<(&str, DrainEffect)> {
    let all = impact.interrupted.iter();
    all.map(|it| (it.name.as_str(), it.effect)).collect()
}

fn blockers(impact: &DrainImpact) -> Vec<(&str, &str)> {
    let all = impact.blockers.iter();
    all.map(|it| {
        let what = it.name.as_deref().or(it.flag).unwrap_or_default();
        (it.reason, what)
    })
    .collect()
}

#[test]
fn daemon_set_pods_mirror_pods_and_ended_pods_are_not_interrupted() {
    let mut mirror = pod("static", "Node/worker-3");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    let mut ended = pod("ended", "");
    ended["status"]["phase"] = json!("Succeeded");
    let pods = vec![
        pod("agent", "DaemonSet/agent"),
        mirror,
        ended,
        pod("api", "ReplicaSet/api"),
        pod("lonely", ""),
    ];
    let impact = impact(pods, Vec::new(), Vec::new());
    assert_eq!(
        interrupted(&impact),
        [
            ("api", DrainEffect::Evicted),
            ("lonely", DrainEffect::Deleted)
        ]
    );
    assert_eq!(
        blockers(&impact),
        [
            ("NoController", "--force"),
            ("DaemonSet", "--ignore-daemonsets")
        ]
    );
}

#[test]
fn pods_with_an_empty_dir_need_a_flag() {
    let mut cache = pod("cache", "ReplicaSet/cache");
    cache["spec"]["volumes"] = json!([{"name": "a", "emptyDir": {}}, {"name": "b", "secret": {}}]);
    let impact = impact(vec![cache], Vec::new(), Vec::new());
    assert_eq!(blockers(&impact), [("EmptyDir", "--delete-emptydir-data")]);
    assert_eq!(impact.blockers[0].pods, ["shop/cache"]);
}

#[test]
fn a_budget_without_disruptions_blocks_if_it_selects_a_pod_of_the_node() {
    let pods = vec![pod("a", "ReplicaSet/a"), pod("b", "ReplicaSet/b")];
    let budgets = vec![budget("a", 0), budget("b", 1), budget("c", 0)];
    let found = impact(pods, budgets, Vec::new());
    assert_eq!(blockers(&found), [("NoDisruptionsAllowed", "a-budget")]);
    assert_eq!(found.blockers[0].pods, ["shop/a"]);
    let message = &found.blockers[0].message;
    assert!(
        message.contains("(healthy Pods: 1, required: 2)"),
        "{message}"
    );

    // An empty selector selects all Pods. A budget without a selector selects no Pod.
    let mut all = budget("a", 0);
    all["spec"]["selector"] = json!({});
    let mut none = budget("b", 0);
    none["spec"] = json!({});
    let found = impact(vec![pod("x", "ReplicaSet/x")], vec![all, none], Vec::new());
    assert_eq!(blockers(&found), [("NoDisruptionsAllowed", "a-budget")]);

    let two = vec![budget("a", 1), budget("a", 1)];
    let found = impact(vec![pod("a", "ReplicaSet/a")], two, Vec::new());
    assert_eq!(blockers(&found), [("SeveralBudgets", "a")]);
}

#[test]
fn match_expressions_of_a_budget_are_evaluated() {
    for (expression, is_selected) in [
        (
            json!({"key": "app", "operator": "In", "values": ["a", "b"]}),
            true,
        ),
        (
            json!({"key": "app", "operator": "NotIn", "values": ["a"]}),
            false,
        ),
        (
            json!({"key": "x", "operator": "NotIn", "values": ["a"]}),
            true,
        ),
        (json!({"key": "app", "operator": "Exists"}), true),
        (json!({"key": "app", "operator": "DoesNotExist"}), false),
        (json!({"key": "x", "operator": "DoesNotExist"}), true),
    ] {
        let mut by_expression = budget("a", 0);
        by_expression["spec"]["selector"] = json!({"matchExpressions": [expression.clone()]});
        let found = impact(
            vec![pod("a", "ReplicaSet/a")],
            vec![by_expression],
            Vec::new(),
        );
        assert_eq!(found.blockers.len() == 1, is_selected, "{expression}");
    }
}

#[test]
fn a_pod_that_may_be_evicted_in_any_case_is_not_blocked() {
    let blocks = |change: &dyn Fn(&mut Value, &mut Value)| {
        let (mut pod, mut budget) = (pod("a", "ReplicaSet/a"), budget("a", 0));
        change(&mut pod, &mut budget);
        !impact(vec![pod], vec![budget], Vec::new())
            .blockers
            .is_empty()
    };
    assert!(blocks(&|_, _| {}));
    assert!(!blocks(&|pod, _| pod["status"]["phase"] = json!("Pending")));
    assert!(!blocks(&|pod, _| {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }));
    let unready = |pod: &mut Value| pod["status"]["conditions"] = json!([]);
    assert!(blocks(&|pod, _| unready(pod)));
    assert!(!blocks(&|pod, budget| {
        unready(pod);
        budget["spec"]["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
    }));
    assert!(!blocks(&|pod, budget| {
        unready(pod);
        budget["status"]["currentHealthy"] = json!(2);
    }));
}

#[test]
fn the_eviction_strategy_decides_what_happens_to_a_virtual_machine() {
    use DrainEffect::{Migrated, ShutDown, Stays, Unknown};
    let mut elsewhere = machine("elsewhere", None, "True");
    elsewhere["status"]["nodeName"] = json!("worker-4");
    let machines = vec![
        machine("a", Some("LiveMigrate"), "True"),
        machine("b", Some("LiveMigrate"), "False"),
        machine("c", Some("LiveMigrateIfPossible"), "True"),
        machine("d", Some("LiveMigrateIfPossible"), "False"),
        machine("e", Some("None"), "True"),
        machine("f", Some("External"), "True"),
        machine("g", None, "True"),
        elsewhere,
    ];
    let impact = impact(Vec::new(), Vec::new(), machines);
    assert_eq!(
        interrupted(&impact),
        [
            ("a", Migrated),
            ("b", Stays),
            ("c", Migrated),
            ("d", ShutDown),
            ("e", ShutDown),
            ("f", Stays),
            ("g", Unknown)
        ]
    );
    assert_eq!(
        blockers(&impact),
        [("NotMigratable", "b"), ("ExternalEviction", "f")]
    );
    assert!(
        impact.blockers[0]
            .message
            .contains("DisksNotLiveMigratable")
    );
}

#[test]
fn the_pod_of_a_virtual_machine_is_shown_as_the_virtual_machine() {
    let mut launcher = pod("virt-launcher-a", "VirtualMachineInstance/a");
    launcher["spec"]["volumes"] = json!([{"name": "run", "emptyDir": {}}]);
    let budgets = vec![budget("virt-launcher-a", 0)];
    let migrated = vec![machine("a", Some("LiveMigrate"), "True")];
    let found = impact(vec![launcher.clone()], budgets.clone(), migrated);
    // KubeVirt creates a budget for the Pod of a virtual machine. This budget does not block the
    // migration, so it is no blocker.
    assert_eq!(interrupted(&found), [("a", DrainEffect::Migrated)]);
    assert_eq!(blockers(&found), [("EmptyDir", "--delete-emptydir-data")]);

    let stopped = vec![machine("a", Some("None"), "True")];
    let found = impact(vec![launcher.clone()], budgets.clone(), stopped);
    assert_eq!(
        blockers(&found)[0],
        ("NoDisruptionsAllowed", "virt-launcher-a-budget")
    );

    // If the virtual machines cannot be read, it is unknown whether KubeVirt migrates them. So the
    // effect is unknown, and the budget is no blocker.
    let mut unread = parts(vec![launcher.clone()], budgets.clone(), Vec::new());
    unread.machines = None;
    let found = DrainImpact::of(NODE, &unread);
    assert_eq!(
        interrupted(&found),
        [("virt-launcher-a", DrainEffect::Unknown)]
    );
    assert_eq!(blockers(&found), [("EmptyDir", "--delete-emptydir-data")]);

    // The virtual machine runs on another node, so this Pod is the target of a migration. A drain
    // evicts this Pod like any other Pod.
    let mut source = machine("a", Some("LiveMigrate"), "True");
    source["status"]["nodeName"] = json!("worker-4");
    let found = impact(vec![launcher], budgets, vec![source]);
    assert_eq!(
        interrupted(&found),
        [("virt-launcher-a", DrainEffect::Evicted)]
    );
}
