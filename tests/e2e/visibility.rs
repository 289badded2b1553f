//! Tests of a server with `--visibility=subject`, whose users may list operations in all namespaces:
//! each user must see the operations on the objects that the user may get. The tests in
//! `src/resources/tests/visibility.rs` prove that answers reveal nothing about other operations.

use crate::harness::{
    Caller, Events, OPERATION, TestCluster, VM, eventually, filtered, items, ok_if, text,
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// Set when a test has created the roles. If two tests apply them at the same time, one of them gets
/// `AlreadyExists`.
static ROLES: OnceCell<()> = OnceCell::const_new();

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
        ROLES
            .get_or_init(async || {
                let file = "deploy/components/subject-visibility/rbac.yaml";
                cluster.kubectl(&format!("apply -f {file}")).await;
            })
            .await;
        let (mine, _) = cluster.migrations(prefix, &["a", "b"]).await;
        let (other, _) = cluster.migrations(prefix, &["a", "b"]).await;
        let name = format!("{mine}-user");
        let tenants = Self {
            cluster,
            mine,
            other,
            user: cluster.user(&name, &[]),
            name,
        };
        tenants.grant(mine, &[]).await;
        let own = OPERATION.path(Some(mine));
        tenants.until_seen(&own, &[mine, mine]).await;
        tenants
    }

    /// Lets the user get the VirtualMachines in a namespace, or only those with these names. Returns
    /// the path of the binding.
    async fn grant(&self, namespace: &str, names: &[&str]) -> String {
        let rules = json!([{
            "apiGroups": [VM.group_version().0], "resources": [VM.plural], "verbs": ["get"],
            "resourceNames": names,
        }]);
        self.cluster
            .grant(&self.name, Some(namespace), &rules)
            .await
    }

    /// Waits until the list of the user has items in exactly these namespaces.
    async fn until_seen(&self, path: &str, namespaces: &[&str]) -> Value {
        let what = format!("items in {namespaces:?}");
        let is_seen = |list: &Value| {
            let found = items(list).iter().map(|it| text(it, "/metadata/namespace"));
            found.eq(namespaces.iter().copied())
        };
        self.user.until_object(&what, path, is_seen).await
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
            let line = format!("get {kind} -A --no-headers -o {columns} --as {user}");
            let table = cluster.kubectl(&line).await;
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join("/");
            table.lines().map(words).collect::<Vec<String>>()
        };
        let own = [
            format!("{mine}/a"),
            format!("{mine}/b"),
            format!("{other}/b"),
        ];
        assert_eq!(kubectl("ifos", &tenants.name).await, own);
        assert_eq!(kubectl("ifos", "stranger").await, Vec::<String>::new());

        // The records of completed operations have the same visibility.
        for name in ["a", "b"] {
            cluster.set_status(other, name, "Running").await;
        }
        eventually("the user sees one record", async || {
            let records = kubectl("opr", &tenants.name).await;
            ok_if(records == [format!("{other}/b")], &records)
        })
        .await;
    });
}

#[test]
fn an_open_watch_follows_the_rights_of_its_user() {
    filtered(async |cluster| {
        let tenants = Tenants::create(cluster, "rights").await;
        let (mine, other) = (tenants.mine, tenants.other);
        let watch = format!("{}?watch=1", OPERATION.path(None));
        let events = Events::of(&tenants.user, &watch).await;
        let mut events = events.expect("the user may watch");
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
        let binding = tenants.grant(other, &[]).await;
        let what = "the granted operations";
        events.until(what, seen("ADDED", other)).await;
        cluster.admin.delete(&binding).await.ok();
        let what = "the revoked operations leave";
        events.until(what, seen("DELETED", other)).await;
        let operation = tenants.operation(other, "a").await;
        let one = OPERATION.one(Some(other), &operation);
        tenants.user.get(&one).await.refused(404);
    });
}
