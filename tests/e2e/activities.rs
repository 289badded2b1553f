//! Tests of activities: the objects that tell whether a namespace, a node, a component or the
//! cluster is idle. The gates in `deploy/gates` are admission policies that read them.

use crate::harness::{
    CRD, Kind, RULE_SET, TestCluster, alone, condition, crd, eventually, migrating, ok_if, text,
};
use http::Request;
use kube::client::Body;
use serde_json::{Value, json};

const ACTIVITY: Kind = Kind {
    api_version: "live.ifo.kubevirt.io/v1alpha1",
    kind: "Activity",
    plural: "activities",
};

/// Waits until the condition `Idle` of an activity has this status, and returns the activity.
async fn until_idle(cluster: &TestCluster, namespace: &str, name: &str, status: &str) -> Value {
    let path = format!("{}/{name}", ACTIVITY.path(Some(namespace)));
    eventually(&format!("{namespace}/{name} Idle={status}"), async || {
        let answer = cluster.admin.get(&path).await;
        ok_if(answer.code == 200, &answer)?;
        let activity = answer.ok();
        ok_if(condition(&activity, "Idle")["status"] == status, &activity)?;
        Ok(activity)
    })
    .await
}

/// Runs a test while no other test uses the cluster, and without the rule sets of earlier tests. A
/// broken rule set would make the activities unknown.
fn without_other_rule_sets(test: impl AsyncFnOnce(&'static TestCluster)) {
    alone(async |cluster| {
        cluster.admin.delete(&RULE_SET.path(None)).await.ok();
        test(cluster).await;
        cluster.admin.delete(&RULE_SET.path(None)).await.ok();
    });
}

/// Creates a namespace and a ready rule set that watches only this namespace. The component of the
/// rule set has the name of the namespace.
async fn namespace_with_rule_set(cluster: &TestCluster, prefix: &str) -> &'static str {
    let namespace = cluster.namespace(prefix).await;
    let mut rules = migrating(namespace);
    rules["spec"]["component"] = json!(namespace);
    rules["spec"]["nodes"] = json!("[object.metadata.name]");
    cluster.ready_rule_set(&rules).await;
    namespace
}

#[test]
fn an_activity_is_idle_exactly_while_nothing_is_in_flight() {
    without_other_rule_sets(async |cluster| {
        let namespace = namespace_with_rule_set(cluster, "activity").await;
        until_idle(cluster, namespace, "namespace", "True").await;
        let component = format!("component.{namespace}");
        until_idle(cluster, "ifo-system", &component, "True").await;
        let wait = |condition: &str| {
            let condition = format!("--for=condition={condition}");
            let activity = format!("act/{component}");
            async move {
                let timeout = "--timeout=60s";
                cluster
                    .kubectl(&["wait", &condition, &activity, "-n", "ifo-system", timeout])
                    .await
            }
        };
        wait("Idle").await.expect("the component is idle");

        cluster.machine(namespace, "a", "Migrating").await;
        wait("Idle=false").await.expect("the component is busy");
        let busy = until_idle(cluster, namespace, "namespace", "False").await;
        assert_eq!(condition(&busy, "Idle")["reason"], "OperationsInFlight");
        assert_eq!(busy["status"]["operations"], 1);
        let [operation] = &*cluster.operations(namespace).await else {
            panic!("there is one operation");
        };
        assert_eq!(
            busy["status"]["oldest"]["name"],
            operation["metadata"]["name"]
        );
        let message = text(condition(&busy, "Idle"), "/message");
        assert!(message.contains("VirtualMachine/a Migrating"), "{message}");
        until_idle(cluster, "ifo-system", "cluster", "False").await;
        until_idle(cluster, "ifo-system", "node.a", "False").await;
        let table = cluster.kubectl(&["get", "act", "-n", namespace]).await;
        let table = table.expect("kubectl lists activities");
        assert!(
            table.contains("OPERATIONS") && table.contains("False"),
            "{table}"
        );

        let nodes = [
            "get",
            "act",
            "-A",
            "-l",
            "ifo.kubevirt.io/activity=node",
            "-o",
            "name",
        ];
        let nodes = cluster
            .kubectl(&nodes)
            .await
            .expect("activities have labels");
        assert_eq!(nodes.trim(), "activity.live.ifo.kubevirt.io/node.a");

        cluster.set_status(namespace, "a", "Running").await;
        wait("Idle").await.expect("the component is idle again");
        until_idle(cluster, namespace, "namespace", "True").await;
        // No node has the name `a`, so its activity exists only while it is busy.
        let node = format!("{}/node.a", ACTIVITY.path(Some("ifo-system")));
        assert_eq!(cluster.admin.get(&node).await.code, 404);
    });
}

#[test]
fn an_activity_is_unknown_while_a_rule_fails() {
    without_other_rule_sets(async |cluster| {
        let namespace = cluster.namespace("activity-unknown").await;
        let mut rules = migrating(namespace);
        rules["spec"]["component"] = json!(namespace);
        rules["spec"]["rules"][0]["expression"] = json!("object.status.printableStatus > 5");
        cluster.ready_rule_set(&rules).await;
        until_idle(cluster, namespace, "namespace", "True").await;
        cluster.machine(namespace, "a", "Stopped").await;
        let unknown = until_idle(cluster, namespace, "namespace", "Unknown").await;
        assert_eq!(condition(&unknown, "Idle")["reason"], "RuleSetsNotWorking");
        let component = format!("component.{namespace}");
        until_idle(cluster, "ifo-system", &component, "Unknown").await;
        let path = format!("{}/{namespace}", RULE_SET.path(None));
        let repaired = json!({"spec": {"rules": migrating(namespace)["spec"]["rules"]}});
        cluster.admin.merge(&path, &repaired).await.ok();
        until_idle(cluster, namespace, "namespace", "True").await;
    });
}

/// Applies the files of a gate: the policy, and the binding that refuses requests.
async fn apply_gate(cluster: &TestCluster, gate: &str) -> [String; 2] {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/gates");
    let files = ["", "-deny"].map(|suffix| format!("{folder}/{gate}{suffix}.yaml"));
    for file in &files {
        let applied = cluster.kubectl(&["apply", "-f", file]).await;
        applied.expect("the gate is valid");
    }
    files
}

async fn delete_gate(cluster: &TestCluster, files: &[String]) {
    for file in files {
        let deleted = cluster.kubectl(&["delete", "-f", file]).await;
        deleted.expect("the gate exists");
    }
}

/// A Pod in a namespace with the gate for evictions.
struct GatedPod {
    cluster: &'static TestCluster,
    path: String,
    gate: [String; 2],
}

impl GatedPod {
    async fn create(cluster: &'static TestCluster, namespace: &str) -> Self {
        let gate = apply_gate(cluster, "eviction").await;
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            // A Pod on a node that does not exist would be deleted after a minute.
            "spec": {"containers": [{"name": "c", "image": "none"}]},
        });
        eventually("a Pod is created", async || {
            let answer = cluster.admin.post(&pods, &pod).await;
            ok_if(answer.code == 201, answer)
        })
        .await;
        let path = format!("{pods}/p/eviction?dryRun=All");
        Self {
            cluster,
            path,
            gate,
        }
    }

    /// Tries to evict the Pod. Returns the status code and the answer. The status code is 0 if the
    /// kube-apiserver does not answer.
    async fn evict(&self) -> (u16, String) {
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"},
        });
        let request = Request::post(&self.path).header("content-type", "application/json");
        let request = request.body(Body::from(eviction.to_string().into_bytes()));
        let request = request.expect("the request is valid");
        match self.cluster.admin.try_send(request).await {
            Ok(answer) => (answer.code, format!("{answer:?}")),
            Err(error) => (0, error),
        }
    }

    async fn until_refused(&self, reason: &str) -> String {
        eventually(&format!("an eviction is refused: {reason}"), async || {
            let (_, text) = self.evict().await;
            ok_if(text.contains(reason), &text).map(|()| text)
        })
        .await
    }

    async fn until_admitted(&self) {
        eventually("an eviction is admitted", async || {
            let (code, text) = self.evict().await;
            ok_if(code == 201, &text)
        })
        .await;
    }
}

#[test]
fn the_eviction_gate_refuses_evictions_while_the_namespace_is_busy_or_unknown() {
    without_other_rule_sets(async |cluster| {
        let namespace = namespace_with_rule_set(cluster, "gate-eviction").await;
        let pod = GatedPod::create(cluster, namespace).await;
        cluster.machine(namespace, "a", "Migrating").await;
        let refused = pod.until_refused("OperationsInFlight").await;
        assert!(refused.contains("VirtualMachine/a Migrating"), "{refused}");

        cluster.set_status(namespace, "a", "Running").await;
        pod.until_admitted().await;

        // A rule that fails makes the activity unknown, which is refused as well.
        let path = format!("{}/{namespace}", RULE_SET.path(None));
        let failing = json!({"spec": {"rules": [
            {"operation": "Migrating", "expression": "object.status.printableStatus > 5"},
        ]}});
        cluster.admin.merge(&path, &failing).await.ok();
        pod.until_refused("RuleSetsNotWorking").await;
        delete_gate(cluster, &pod.gate).await;
        pod.until_admitted().await;
    });
}

#[test]
fn a_gate_stays_closed_while_the_server_restarts_and_while_it_is_stopped() {
    without_other_rule_sets(async |cluster| {
        let namespace = namespace_with_rule_set(cluster, "gate-restart").await;
        let pod = GatedPod::create(cluster, namespace).await;
        cluster.machine(namespace, "a", "Migrating").await;
        pod.until_refused("OperationsInFlight").await;

        // After the restart, the activity is unknown until the server has listed the target.
        let restart = async {
            let mut server = cluster.server.lock().await;
            server.kill().await;
            server.start_again(&cluster.kubeconfig).await;
            drop(server);
            cluster.wait_until_served().await;
            until_idle(cluster, namespace, "namespace", "False").await;
        };
        let mut refused = 0;
        let evictions = async {
            loop {
                let (code, text) = pod.evict().await;
                assert_ne!(code, 201, "{refused} evictions were refused before: {text}");
                refused += 1;
            }
        };
        tokio::select! {
            () = restart => {}
            () = evictions => {}
        }
        assert!(
            refused > 0,
            "the test must try evictions during the restart"
        );

        // The kube-apiserver keeps the last state while the server is stopped.
        let mut server = cluster.server.lock().await;
        server.terminate().await;
        cluster.set_status(namespace, "a", "Running").await;
        pod.until_refused("OperationsInFlight").await;
        server.start_again(&cluster.kubeconfig).await;
        drop(server);
        cluster.wait_until_served().await;
        pod.until_admitted().await;
        delete_gate(cluster, &pod.gate).await;
    });
}

#[test]
fn a_gate_stays_closed_while_the_kube_apiserver_restarts() {
    without_other_rule_sets(async |cluster| {
        let namespace = namespace_with_rule_set(cluster, "gate-apiserver").await;
        let pod = GatedPod::create(cluster, namespace).await;
        cluster.machine(namespace, "a", "Migrating").await;
        pod.until_refused("OperationsInFlight").await;

        // A kube-apiserver that starts has not read the activities yet, and at first cannot reach the
        // server of the aggregated API.
        let control_plane = &cluster.control_plane;
        let stopped = control_plane.command("kill kube-apiserver").await;
        stopped.expect("the kube-apiserver runs");
        let start = async {
            let started = control_plane.command("start kube-apiserver").await;
            started.expect("the kube-apiserver starts");
            pod.until_refused("OperationsInFlight").await;
        };
        let evictions = async {
            loop {
                let (code, text) = pod.evict().await;
                assert_ne!(code, 201, "{text}");
            }
        };
        tokio::select! {
            () = start => {}
            () = evictions => {}
        }
        cluster.set_status(namespace, "a", "Running").await;
        pod.until_admitted().await;
        delete_gate(cluster, &pod.gate).await;
    });
}

const VERSION: Kind = Kind {
    api_version: "config.openshift.io/v1",
    kind: "ClusterVersion",
    plural: "clusterversions",
};

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

#[test]
fn the_gates_for_starts_and_upgrades_refuse_and_their_warnings_refuse_nothing() {
    without_other_rule_sets(async |cluster| {
        let kinds = [
            (&VERSION, "Cluster"),
            (&SNAPSHOT, "Namespaced"),
            (&MIGRATION, "Namespaced"),
        ];
        for (kind, scope) in kinds {
            cluster.apply(&[crd(kind, scope)]).await;
            eventually("the kind is served", async || {
                let answer = cluster.admin.get(&kind.path(None)).await;
                ok_if(answer.code == 200, answer)
            })
            .await;
        }
        let version = json!({
            "apiVersion": VERSION.api_version, "kind": VERSION.kind,
            "metadata": {"name": "version"}, "spec": {},
        });
        cluster.create(&VERSION, None, &version).await;
        let mut target = 0;
        let upgrade = async |target: u32| {
            let patch = json!({"spec": {"desiredUpdate": {"version": target.to_string()}}});
            let path = format!("{}/version?dryRun=All", VERSION.path(None));
            let answer = cluster.admin.merge(&path, &patch).await;
            (answer.code, format!("{answer:?}"))
        };
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/gates");
        let apply = async |file: &str| {
            let file = format!("{folder}/{file}.yaml");
            let applied = cluster.kubectl(&["apply", "-f", &file]).await;
            applied.expect("the gate is valid");
            file
        };

        // No rule set has the component `kubevirt`, so there is no activity of this component. The
        // binding that warns must not refuse the request. The binding that denies refuses it.
        let mut files = vec![apply("cluster-upgrade").await];
        for _ in 0..20 {
            target += 1;
            let (code, text) = upgrade(target).await;
            assert_eq!(code, 200, "{text}");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        files.push(apply("cluster-upgrade-deny").await);
        eventually("an upgrade without an activity is refused", async || {
            let (code, text) = upgrade(1).await;
            ok_if(code >= 400 && text.contains("no params found"), &text)
        })
        .await;

        let namespace = cluster.namespace("gate-start").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        let admitted = eventually(
            "an upgrade is admitted while nothing is in flight",
            async || {
                let (code, text) = upgrade(1).await;
                ok_if(code == 200, &text)
            },
        );
        admitted.await;
        files.push(apply("start").await);
        cluster.machine(namespace, "a", "Migrating").await;
        until_idle(cluster, "ifo-system", "component.kubevirt", "False").await;
        eventually("an upgrade is refused", async || {
            let (_, text) = upgrade(1).await;
            let reason = "component kubevirt is not idle (OperationsInFlight)";
            ok_if(text.contains(reason), &text)
        })
        .await;

        let start_as = async |user: &str, kind: &Kind| {
            let object = json!({
                "apiVersion": kind.api_version, "kind": kind.kind,
                "metadata": {"name": "s"}, "spec": {},
            });
            let user = format!("--as={user}");
            let mut args = vec!["create", "--dry-run=server", "-n", namespace, "-f", "-"];
            args.extend([&*user, "--as-group=system:masters"]);
            cluster.kubectl_with(&args, object.to_string()).await
        };
        let start = async || start_as("admin", &SNAPSHOT).await;
        eventually(
            "kubectl prints a warning, and the start is admitted",
            async || {
                let (is_admitted, text) = start().await;
                let warns =
                    text.contains("Warning: Validation failed") && text.contains("is not idle");
                ok_if(is_admitted && warns, &text)
            },
        )
        .await;
        files.push(apply("start-deny").await);
        eventually("the start is refused", async || {
            let (is_admitted, text) = start().await;
            let reason = format!("namespace {namespace} is not idle (OperationsInFlight)");
            ok_if(!is_admitted && text.contains(&reason), &text)
        })
        .await;
        // KubeVirt's controller starts migrations to empty a node that is drained.
        let kubevirt = "system:serviceaccount:kubevirt:kubevirt-controller";
        for (user, is_exempt) in [("admin", false), (kubevirt, true)] {
            let (is_admitted, text) = start_as(user, &MIGRATION).await;
            assert_eq!(is_admitted, is_exempt, "{user}: {text}");
        }
        cluster.set_status(namespace, "a", "Running").await;
        eventually("the start is admitted", async || {
            let (is_admitted, text) = start().await;
            ok_if(is_admitted, &text)
        })
        .await;
        delete_gate(cluster, &files).await;
        for (kind, _) in kinds {
            let (group, _) = kind.group_version();
            let path = format!("{}/{}.{group}", CRD.path(None), kind.plural);
            cluster.admin.delete(&path).await.ok();
        }
    });
}

#[test]
fn the_other_gates_refuse_while_something_is_in_flight() {
    without_other_rule_sets(async |cluster| {
        let namespace = namespace_with_rule_set(cluster, "gates").await;
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gated"}});
        cluster.admin.post("/api/v1/nodes", &node).await.ok();
        until_idle(cluster, "ifo-system", "node.gated", "True").await;
        let mut files = Vec::new();
        for gate in ["cordon", "namespace-deletion"] {
            files.extend(apply_gate(cluster, gate).await);
        }
        let cordon = async |is_cordoned: bool| {
            let patch = json!({"spec": {"unschedulable": is_cordoned}});
            let answer = cluster.admin.merge("/api/v1/nodes/gated", &patch).await;
            (answer.code, format!("{answer:?}"))
        };
        let namespace_path = format!("/api/v1/namespaces/{namespace}?dryRun=All");

        // The rule set takes the name of the VirtualMachine as the name of the node.
        cluster.machine(namespace, "gated", "Migrating").await;
        until_idle(cluster, "ifo-system", "node.gated", "False").await;
        eventually("cordon is refused", async || {
            let (code, text) = cordon(true).await;
            if code == 200 {
                cordon(false).await;
            }
            let is_refused = text.contains("node gated is not idle (OperationsInFlight)");
            ok_if(is_refused, &text)
        })
        .await;
        eventually("the deletion of the namespace is refused", async || {
            let answer = cluster.admin.delete(&namespace_path).await;
            let text = format!("{answer:?}");
            ok_if(text.contains("is not idle (OperationsInFlight)"), &text)
        })
        .await;

        cluster.set_status(namespace, "gated", "Running").await;
        eventually("cordon is admitted", async || {
            let (code, text) = cordon(true).await;
            ok_if(code == 200, &text)
        })
        .await;
        eventually("the deletion of the namespace is admitted", async || {
            let answer = cluster.admin.delete(&namespace_path).await;
            ok_if(answer.code == 200, answer)
        })
        .await;
        delete_gate(cluster, &files).await;
        cluster.admin.delete("/api/v1/nodes/gated").await.ok();
    });
}
