//! Tests of the gates in `deploy/gates`: admission policies that read activities.

use super::{
    assert_closed_during, break_rule_set, evict, gates, namespace_with_rule_set, rescuer,
    until_admitted, until_idle, until_refused, without_other_rule_sets,
};
use crate::harness::{
    CRD, Caller, Cluster, Kind, NODE, POD, apart, crd, eventually, migrating, ok_if,
};
use serde_json::json;

#[test]
fn the_eviction_gate_is_closed_while_the_namespace_is_busy_or_unknown_and_during_restarts() {
    without_other_rule_sets(async |cluster| {
        let namespace = namespace_with_rule_set(cluster, "gate-eviction").await;
        let files = ["eviction", "eviction-deny"];
        gates(cluster, "apply", &files).await;
        // A Pod on a node that does not exist would be deleted after a minute.
        let spec = json!({"containers": [{"name": "c", "image": "none"}]});
        let pod = POD.object("p", json!({"spec": spec}));
        let pods = POD.path(Some(namespace));
        cluster.admin.create_when_served(&pods, &pod).await;
        cluster.machine(namespace, "a", "Migrating").await;
        let evict = async || evict(&cluster.admin, namespace).await;
        let refused = until_refused("OperationsInFlight", evict).await;
        assert!(refused.contains("VirtualMachine/a Migrating"), "{refused}");

        // After a restart of the server, the activity is unknown until the server has listed the target.
        let restart = async {
            let mut server = cluster.server.lock().await;
            server.kill().await;
            server.start_again().await;
            drop(server);
            cluster.until_served().await;
            until_idle(cluster, namespace, "namespace", "False").await;
        };
        assert_closed_during(cluster, namespace, restart).await;

        // A kube-apiserver that starts has not read the activities yet, and at first cannot reach the
        // server of the aggregated API.
        let command = async |command: &str| {
            let done = cluster.control_plane.command(command).await;
            done.unwrap_or_else(|error| panic!("{command}: {error}"));
        };
        command("kill kube-apiserver").await;
        let restart = async {
            command("start kube-apiserver").await;
            until_refused("OperationsInFlight", evict).await;
        };
        assert_closed_during(cluster, namespace, restart).await;

        // The kube-apiserver keeps the last state while the server is stopped.
        let mut server = cluster.server.lock().await;
        server.terminate().await;
        cluster.set_status(namespace, "a", "Running").await;
        until_refused("OperationsInFlight", evict).await;
        server.start_again().await;
        drop(server);
        cluster.until_served().await;
        until_admitted(evict).await;

        // A rule that fails makes the activity unknown, which is refused as well.
        break_rule_set(cluster, namespace).await;
        let refused = until_refused("RuleSetsNotWorking", evict).await;
        let steps = [
            "Run kubectl get ors.",
            "kubectl get ifos -n gate-eviction",
            "ifo:break-glass",
        ];
        assert!(steps.iter().all(|it| refused.contains(it)), "{refused}");
        let (code, text) = self::evict(&rescuer(cluster), namespace).await;
        assert_eq!(code, 201, "{text}");
        gates(cluster, "delete", &files).await;
        until_admitted(evict).await;
    });
}

const VERSION: Kind = Kind::new(
    "config.openshift.io/v1",
    "ClusterVersion",
    "clusterversions",
);

const SNAPSHOT: Kind = Kind {
    api_version: "snapshot.kubevirt.io/v1beta1",
    kind: "VirtualMachineSnapshot",
    plural: "virtualmachinesnapshots",
};

const MIGRATION: Kind = Kind {
    api_version: "kubevirt.io/v1",
    kind: "VirtualMachineInstanceMigration",
    plural: "virtualmachineinstancemigrations",
};

/// Creates the CRDs of the kinds above, and a ClusterVersion.
async fn serve_kinds(cluster: &Cluster) {
    let kinds = [
        (&VERSION, "Cluster"),
        (&SNAPSHOT, "Namespaced"),
        (&MIGRATION, "Namespaced"),
    ];
    for (kind, scope) in kinds {
        cluster.apply(&[crd(kind, scope)]).await;
        cluster.admin.until_code(&kind.path(None), 200).await;
    }
    let version = VERSION.object("version", json!({"spec": {}}));
    cluster.create(&VERSION, None, &version).await;
}

#[test]
fn the_gates_for_starts_and_upgrades_refuse_and_their_warnings_refuse_nothing() {
    without_other_rule_sets(async |cluster| {
        serve_kinds(cluster).await;
        let upgrade_as = async |caller: &Caller| {
            let patch = json!({"spec": {"desiredUpdate": {"version": "1"}}});
            let path = format!("{}?dryRun=All", VERSION.one(None, "version"));
            let answer = caller.merge(&path, &patch).await;
            (answer.code, answer.text)
        };
        let upgrade = async || upgrade_as(&cluster.admin).await;

        // No rule set has the component `kubevirt`, so there is no activity of this component.
        gates(
            cluster,
            "apply",
            &["cluster-upgrade", "cluster-upgrade-deny"],
        )
        .await;
        for _ in 0..20 {
            let (code, text) = upgrade().await;
            assert_eq!(code, 200, "{text}");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }

        let namespace = cluster.new_namespace("gate-start").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        until_admitted(upgrade).await;
        gates(cluster, "apply", &["start"]).await;
        cluster.machine(namespace, "a", "Migrating").await;
        let reason = "component kubevirt is not idle (OperationsInFlight)";
        until_refused(reason, upgrade).await;
        let (code, text) = upgrade_as(&rescuer(cluster)).await;
        assert_eq!(code, 200, "{text}");

        let start_as = async |user: &str, kind: &Kind| {
            let object = kind.object("s", json!({"spec": {}}));
            let line = format!(
                "create --dry-run=server -n {namespace} -f - --as={user} --as-group=system:masters"
            );
            let output = cluster.kubectl_output(&line, object.to_string()).await;
            let printed = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.success(), printed)
        };
        let until_start = async |is_admitted: bool, text: &str| {
            let what = format!("the start is admitted: {is_admitted}, with {text:?}");
            eventually(&what, async || {
                let (admitted, printed) = start_as("admin", &SNAPSHOT).await;
                ok_if(admitted == is_admitted && printed.contains(text), &printed)
            })
            .await;
        };
        until_start(true, "Warning: Validation failed").await;
        gates(cluster, "apply", &["start-deny"]).await;
        let reason = format!("namespace {namespace} is not idle (OperationsInFlight)");
        until_start(false, &reason).await;
        // KubeVirt's controller starts migrations to empty a node that is drained.
        let kubevirt = "system:serviceaccount:kubevirt:kubevirt-controller";
        for (user, is_exempt) in [("admin", false), (kubevirt, true)] {
            let (is_admitted, text) = start_as(user, &MIGRATION).await;
            assert_eq!(is_admitted, is_exempt, "{user}: {text}");
        }
        let (is_admitted, text) = start_as("admin --as-group=ifo:break-glass", &SNAPSHOT).await;
        assert!(is_admitted, "{text}");
        cluster.set_status(namespace, "a", "Running").await;
        until_start(true, "").await;
        let files = [
            "cluster-upgrade",
            "cluster-upgrade-deny",
            "start",
            "start-deny",
        ];
        gates(cluster, "delete", &files).await;
        for kind in [&VERSION, &SNAPSHOT, &MIGRATION] {
            let name = format!("{}.{}", kind.plural, kind.group_version().0);
            cluster.admin.delete(&CRD.one(None, &name)).await.ok();
        }
    });
}

#[test]
fn the_other_gates_refuse_while_something_is_in_flight() {
    without_other_rule_sets(async |cluster| {
        let namespace = namespace_with_rule_set(cluster, "gates").await;
        cluster
            .create(&NODE, None, &NODE.object("gated", json!({})))
            .await;
        until_idle(cluster, "ifo-system", "node.gated", "True").await;
        let files = [
            "cordon",
            "cordon-deny",
            "namespace-deletion",
            "namespace-deletion-deny",
        ];
        gates(cluster, "apply", &files).await;
        let node = NODE.one(None, "gated");
        let cordon_as = async |caller: &Caller| {
            let patch = json!({"spec": {"unschedulable": true}});
            let path = format!("{node}?dryRun=All");
            let answer = caller.merge(&path, &patch).await;
            (answer.code, answer.text)
        };
        let cordon = async || cordon_as(&cluster.admin).await;
        let delete_as = async |caller: &Caller| {
            let path = format!("/api/v1/namespaces/{namespace}?dryRun=All");
            let answer = caller.delete(&path).await;
            (answer.code, answer.text)
        };
        let delete = async || delete_as(&cluster.admin).await;

        // The rule set takes the name of the VirtualMachine as the name of the node.
        cluster.machine(namespace, "gated", "Migrating").await;
        until_idle(cluster, "ifo-system", "node.gated", "False").await;
        until_refused("node gated is not idle (OperationsInFlight)", cordon).await;
        until_refused("is not idle (OperationsInFlight)", delete).await;
        let rescuer = rescuer(cluster);
        for (code, text) in [cordon_as(&rescuer).await, delete_as(&rescuer).await] {
            assert_eq!(code, 200, "{text}");
        }
        let set_ready = async |status: &str| {
            let patch = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
            let answer = cluster.admin.merge(&format!("{node}/status"), &patch).await;
            answer.ok();
        };
        set_ready("True").await;
        let (code, text) = cordon().await;
        assert_eq!(code, 403, "{text}");
        set_ready("False").await;
        let (code, text) = cordon().await;
        assert_eq!(code, 200, "{text}");
        cluster.set_status(namespace, "gated", "Running").await;
        until_admitted(cordon).await;
        until_admitted(delete).await;
        gates(cluster, "delete", &files).await;
        cluster.admin.delete(&node).await.ok();
    });
}

const GATES: [&str; 5] = [
    "cluster-upgrade",
    "cordon",
    "eviction",
    "namespace-deletion",
    "start",
];

/// The requests that the gates check, and a label of a node and of a ClusterVersion. All are dry runs.
async fn requests_of_gates(caller: &Caller, namespace: &str) -> Vec<(u16, String)> {
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let mut answers = Vec::new();
    for (object, start) in [
        (NODE.one(None, "n"), json!({"unschedulable": true})),
        (
            VERSION.one(None, "version"),
            json!({"desiredUpdate": {"version": "1"}}),
        ),
    ] {
        for patch in [&label, &json!({"spec": start})] {
            answers.push(caller.merge(&format!("{object}?dryRun=All"), patch).await);
        }
    }
    for kind in [&SNAPSHOT, &MIGRATION] {
        let path = format!("{}?dryRun=All", kind.path(Some(namespace)));
        let object = kind.object("s", json!({"spec": {}}));
        answers.push(caller.post(&path, &object).await);
    }
    let mut answers: Vec<_> = answers.into_iter().map(|it| (it.code, it.text)).collect();
    answers.push(evict(caller, namespace).await);
    let path = format!("/api/v1/namespaces/{namespace}?dryRun=All");
    let deleted = caller.delete(&path).await;
    answers.push((deleted.code, deleted.text));
    answers
}

fn assert_admitted(answers: &[(u16, String)]) {
    for (code, text) in answers {
        assert!(matches!(code, 200 | 201), "{text}");
    }
}

/// `ifo` may not be installed yet, or may be removed before the gates. The gates then
/// must not refuse changes of nodes, because these changes can be necessary to repair the cluster.
#[test]
fn without_activities_only_the_gates_for_evictions_and_namespaces_refuse_and_only_if_they_deny() {
    apart("gates", async |cluster| {
        serve_kinds(cluster).await;
        cluster
            .create(&NODE, None, &NODE.object("n", json!({})))
            .await;
        let namespace = cluster.new_namespace("without-activities").await;
        let spec = json!({"containers": [{"name": "c", "image": "none"}]});
        let pods = POD.path(Some(namespace));
        let pod = POD.object("p", json!({"spec": spec}));
        cluster.admin.create_when_served(&pods, &pod).await;

        // The kind Activity is not served. The last file shows when the kube-apiserver has read all.
        gates(cluster, "apply", &GATES).await;
        let open = ["cluster-upgrade-deny", "cordon-deny", "start-deny"];
        gates(cluster, "apply", &open).await;
        let closed = ["namespace-deletion-deny", "eviction-deny"];
        gates(cluster, "apply", &closed).await;
        let rescuer = rescuer(cluster);
        for caller in [&cluster.admin, &rescuer] {
            let evict = async || evict(caller, namespace).await;
            until_refused("failed to find resource referenced by paramKind", evict).await;
            let answers = requests_of_gates(caller, namespace).await;
            let (others, refused) = answers.split_at(answers.len() - 2);
            assert_admitted(others);
            for (code, text) in refused {
                assert!(*code >= 400 && text.contains("paramKind"), "{code} {text}");
            }
        }
        gates(cluster, "delete", &closed).await;
        until_admitted(async || evict(&cluster.admin, namespace).await).await;
        assert_admitted(&requests_of_gates(&cluster.admin, namespace).await);

        // The kind is served, and the server stops before it has seen these objects.
        cluster
            .apply_folders(&["deploy/crd", "deploy", "deploy/targets-default"])
            .await;
        let mut server = cluster.server().await;
        cluster.register_server(&server).await;
        cluster.kubectl("delete node n").await;
        let nodes = async || {
            let label = "ifo.kubevirt.io/activity=node";
            let line = format!("get activities -n ifo-system -l {label} -o name");
            let found = cluster.kubectl(&line).await;
            ok_if(found.trim().is_empty(), found)
        };
        eventually("no node has an activity", nodes).await;
        gates(cluster, "apply", &closed).await;
        server.terminate().await;
        cluster
            .create(&NODE, None, &NODE.object("n", json!({})))
            .await;
        let namespace = cluster.new_namespace("without-activities").await;
        cluster
            .admin
            .create_when_served(&POD.path(Some(namespace)), &pod)
            .await;
        until_refused("failed to configure", async || {
            evict(&rescuer, namespace).await
        })
        .await;
        let answers = requests_of_gates(&cluster.admin, namespace).await;
        assert_admitted(&answers[..answers.len() - 2]);
        gates(cluster, "delete", &closed).await;
        until_admitted(async || evict(&cluster.admin, namespace).await).await;
        assert_admitted(&requests_of_gates(&cluster.admin, namespace).await);
    });
}
