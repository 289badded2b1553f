//! Attacks on a server with `--visibility=subject`, whose users may list operations in all namespaces:
//! each user must see the operations on the objects that the user may get, and learn nothing about
//! others.

use crate::harness::{
    Caller, Events, Kind, OPERATION, TestCluster, VM, condition, eventually, filtered, migrating,
    ok_if, text,
};
use serde_json::{Value, json};
use std::path::Path;

const ACTIVITY: Kind = Kind {
    api_version: "live.ifo.kubevirt.io/v1alpha1",
    kind: "Activity",
    plural: "activities",
};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces";

/// Two namespaces, each with operations on the VirtualMachines `a` and `b`.
struct Tenants {
    cluster: &'static TestCluster,
    mine: &'static str,
    other: &'static str,
    /// A user who may get the VirtualMachines in `mine`.
    name: String,
    user: Caller,
}

impl Tenants {
    async fn create(cluster: &'static TestCluster, prefix: &str) -> Self {
        let manifests = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/components");
        let roles = Path::new(manifests).join("subject-visibility/rbac.yaml");
        let roles = roles.to_str().expect("the path is UTF-8");
        let applied = cluster.kubectl(&["apply", "-f", roles]).await;
        applied.expect("the roles are valid");
        let (mine, other) = (
            cluster.namespace(prefix).await,
            cluster.namespace(prefix).await,
        );
        for namespace in [mine, other] {
            cluster.ready_rule_set(&migrating(namespace)).await;
            for name in ["a", "b"] {
                cluster.machine(namespace, name, "Migrating").await;
            }
            let want = [("a", "Migrating"), ("b", "Migrating")];
            cluster.until_operations(namespace, &want).await;
        }
        let name = format!("{mine}-user");
        let user = cluster.user(&name);
        let tenants = Self {
            cluster,
            mine,
            other,
            name,
            user,
        };
        tenants.grant(mine, &[]).await;
        tenants
            .until_seen(&OPERATION.path(Some(mine)), &[mine, mine])
            .await;
        tenants
    }

    /// Lets the user get the VirtualMachines in a namespace, or only those with these names.
    async fn grant(&self, namespace: &str, names: &[&str]) {
        let group = VM.group_version().0;
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "vms"},
            "rules": [{
                "apiGroups": [group], "resources": [VM.plural], "verbs": ["get"],
                "resourceNames": names,
            }],
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "vms"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "vms"},
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": self.name},
            ],
        });
        let path = |plural: &str| format!("{RBAC}/{namespace}/{plural}");
        let admin = &self.cluster.admin;
        admin.post(&path("roles"), &role).await.ok();
        admin.post(&path("rolebindings"), &binding).await.ok();
    }

    async fn revoke(&self, namespace: &str) {
        let path = format!("{RBAC}/{namespace}/rolebindings/vms");
        self.cluster.admin.delete(&path).await.ok();
    }

    /// Waits until the list of the user has items in exactly these namespaces.
    async fn until_seen(&self, path: &str, namespaces: &[&str]) -> Value {
        eventually(&format!("{path} has items in {namespaces:?}"), async || {
            let answer = self.user.get(path).await;
            ok_if(answer.code == 200, &answer)?;
            let list = answer.ok();
            let items = list["items"].as_array().cloned().unwrap_or_default();
            let found: Vec<_> = items
                .iter()
                .map(|it| text(it, "/metadata/namespace"))
                .collect();
            ok_if(found == namespaces, &found)?;
            Ok(list)
        })
        .await
    }

    /// Returns the name of the operation on a VirtualMachine.
    async fn operation(&self, namespace: &str, machine: &str) -> String {
        let operations = self.cluster.operations(namespace).await;
        let mut operations = operations.iter();
        let found = operations.find(|it| text(it, "/spec/subject/name") == machine);
        let found = found.expect("the machine has an operation");
        text(found, "/metadata/name").to_owned()
    }
}

#[test]
fn kubectl_shows_each_user_exactly_their_own_in_all_namespaces() {
    filtered(async |cluster| {
        let tenants = Tenants::create(cluster, "own").await;
        let (mine, other) = (tenants.mine, tenants.other);
        let all = OPERATION.path(None);
        tenants.until_seen(&all, &[mine, mine]).await;
        tenants.grant(other, &["b"]).await;
        let list = tenants.until_seen(&all, &[mine, mine, other]).await;
        assert_eq!(list["items"][2]["spec"]["subject"]["name"], "b");
        let kubectl = async |kind: &str, user: &str| {
            let columns = "custom-columns=N:.metadata.namespace,S:.spec.subject.name";
            let args = [
                "get",
                kind,
                "-A",
                "--no-headers",
                "-o",
                columns,
                "--as",
                user,
            ];
            let table = cluster.kubectl_with(&args, String::new()).await;
            let lines = table
                .1
                .lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join("/"));
            (table.0, lines.collect::<Vec<String>>())
        };
        let own = [
            format!("{mine}/a"),
            format!("{mine}/b"),
            format!("{other}/b"),
        ];
        assert_eq!(kubectl("ifos", &tenants.name).await, (true, own.to_vec()));
        let stranger = kubectl("ifos", "stranger").await;
        assert_eq!(stranger, (true, Vec::new()));

        // The records of completed operations have the same visibility.
        for name in ["a", "b"] {
            cluster.set_status(other, name, "Running").await;
        }
        eventually("the user sees one record", async || {
            let (_, records) = kubectl("opr", &tenants.name).await;
            ok_if(records == [format!("{other}/b")], &records)
        })
        .await;
    });
}

#[test]
fn a_hidden_operation_a_token_and_a_selector_reveal_nothing() {
    filtered(async |cluster| {
        let tenants = Tenants::create(cluster, "reveal").await;
        let (mine, other) = (tenants.mine, tenants.other);
        let hidden = tenants.operation(other, "a").await;
        let one = |name: &str| format!("{}/{name}", OPERATION.path(Some(other)));
        let message = tenants.user.get(&one(&hidden)).await.refused(404);
        let missing = tenants.user.get(&one("absent")).await.refused(404);
        assert_eq!(message.replace(&hidden, "absent"), missing);

        // The continue token of an administrator, and pages of the user.
        let all = OPERATION.path(None);
        let page = cluster
            .admin
            .get(&format!("{}?limit=1", OPERATION.path(Some(other))))
            .await
            .ok();
        let token = text(&page, "/metadata/continue");
        let rest = format!("{}?limit=1&continue={token}", OPERATION.path(Some(other)));
        assert_eq!(tenants.user.get(&rest).await.ok()["items"], json!([]));
        let page = tenants.user.get(&format!("{all}?limit=1")).await.ok();
        assert_eq!(page["metadata"]["remainingItemCount"], 1);
        for (selector, value) in [("metadata.namespace", other), ("metadata.name", &*hidden)] {
            let list = tenants
                .user
                .get(&format!("{all}?fieldSelector={selector}={value}"))
                .await
                .ok();
            assert_eq!(list["items"], json!([]), "{selector}");
            assert_eq!(list["metadata"]["continue"], "", "{selector}");
        }

        // Watches of the administrator and of the user share the changes, but not the events.
        let watch = format!("{all}?watch=1");
        let mut admins = Events::of(&cluster.admin, &watch)
            .await
            .expect("administrators watch");
        let mut users = Events::of(&tenants.user, &watch)
            .await
            .expect("the user may watch");
        cluster.machine(other, "c", "Migrating").await;
        let is_in =
            |event: &Value, namespace: &str| text(event, "/object/metadata/namespace") == namespace;
        let is_third = |all: &[Value]| {
            let found = all.iter().filter(|it| is_in(it, other)).count();
            (found > 2).then_some(())
        };
        admins.until("the hidden operation", is_third).await;
        cluster.machine(mine, "c", "Migrating").await;
        let is_own = |all: &[Value]| (all.len() > 2).then(|| all.to_vec());
        let seen = users.until("the own operation", is_own).await;
        assert!(seen.iter().all(|event| is_in(event, mine)), "{seen:?}");
    });
}

#[test]
fn an_open_watch_follows_the_rights_of_its_user() {
    filtered(async |cluster| {
        let tenants = Tenants::create(cluster, "rights").await;
        let (mine, other) = (tenants.mine, tenants.other);
        let watch = format!("{}?watch=1", OPERATION.path(None));
        let mut events = Events::of(&tenants.user, &watch)
            .await
            .expect("the user may watch");
        let count = |all: &[Value], kind: &str, namespace: &str| {
            let is = |event: &&Value| {
                event["type"] == kind && text(event, "/object/metadata/namespace") == namespace
            };
            all.iter().filter(is).count()
        };
        let seen = |kind: &'static str, namespace: &'static str| {
            move |all: &[Value]| (count(all, kind, namespace) == 2).then_some(())
        };
        events
            .until("the own operations", seen("ADDED", mine))
            .await;
        tenants.grant(other, &[]).await;
        events
            .until("the granted operations", seen("ADDED", other))
            .await;
        tenants.revoke(mine).await;
        events
            .until("the revoked operations leave", seen("DELETED", mine))
            .await;
        let operation = tenants.operation(mine, "a").await;
        let one = format!("{}/{operation}", OPERATION.path(Some(mine)));
        tenants.user.get(&one).await.refused(404);
    });
}

#[test]
fn an_activity_is_no_oracle() {
    filtered(async |cluster| {
        let tenants = Tenants::create(cluster, "oracle").await;
        let (mine, other) = (tenants.mine, tenants.other);
        let all = ACTIVITY.path(None);
        let seen = tenants
            .until_seen(&all, &["ifo-system", "ifo-system", mine])
            .await;
        for activity in seen["items"].as_array().expect("a list has items") {
            let idle = condition(activity, "Idle");
            assert_eq!(
                (&idle["status"], &idle["reason"]),
                (&json!("Unknown"), &json!("Filtered"))
            );
            assert_eq!(activity["status"]["operations"], 2, "{activity}");
        }
        let one = format!("{}/namespace", ACTIVITY.path(Some(other)));
        let message = tenants.user.get(&one).await.refused(404);
        let missing = format!("{}/absent", ACTIVITY.path(Some(other)));
        let missing = tenants.user.get(&missing).await.refused(404);
        assert_eq!(message.replace("namespace", "absent"), missing);

        // For the plugin, a namespace whose operations are hidden is not idle.
        let wait = [
            "wait",
            "-n",
            other,
            "--timeout",
            "5s",
            "--as",
            &tenants.name,
        ];
        let said = crate::plugin::run(cluster, &wait).await;
        assert_eq!(said.code, 3, "{}", said.err);

        // Hidden operations begin and end, and the user's watch shows only the own operation.
        let version = text(&seen, "/metadata/resourceVersion");
        let watch = format!("{all}?watch=1&resourceVersion={version}");
        let mut events = Events::of(&tenants.user, &watch)
            .await
            .expect("the user may watch");
        cluster.set_status(other, "a", "Running").await;
        cluster.until_operations(other, &[("b", "Migrating")]).await;
        cluster.machine(mine, "c", "Migrating").await;
        let busier = events
            .until("three activities with three operations", |all| {
                (all.len() >= 3).then(|| all.to_vec())
            })
            .await;
        for event in &busier {
            assert_eq!(event["object"]["status"]["operations"], 3, "{event}");
        }

        // The right to list all operations gives the activities as they are.
        let path = format!("{}/cluster", ACTIVITY.path(Some("ifo-system")));
        let args = [
            "create",
            "clusterrolebinding",
            &tenants.name,
            "--clusterrole=ifo-view-all",
        ];
        let bound = [&args[..], &["--user", &tenants.name]].concat();
        cluster.kubectl(&bound).await.expect("the role exists");
        eventually("the activity of the cluster is not filtered", async || {
            let activity = tenants.user.get(&path).await.ok();
            ok_if(condition(&activity, "Idle")["status"] == "False", &activity)
        })
        .await;
    });
}
