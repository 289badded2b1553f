//! Functions of [`Cluster`] that create and change objects, give rights, and wait for states.

use super::{
    Cluster, Events, Kind, NAMESPACE, OPERATION, RULE_SET, VM, crd, eventually, is, is_in_gap,
    items, ok_if, text,
};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};

/// API path of roles and bindings.
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

impl Cluster {
    /// Asserts that a namespace can be created and deleted. kubectl waits until the namespace does not
    /// exist.
    pub async fn a_namespace_can_be_deleted(&self) {
        let name = self.new_namespace("deletable").await;
        self.kubectl(&format!("delete namespace {name}")).await;
    }

    /// Creates a namespace for one test. The name of the namespace is `prefix` and a number of three
    /// digits: lists have the namespaces in the order of their creation.
    pub async fn new_namespace(&self, prefix: &str) -> &'static str {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{prefix}-{:03}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.create(&NAMESPACE, None, &NAMESPACE.object(&name, json!({})))
            .await;
        // The name is leaked, so that it lives as long as the process. A leak of a few short names
        // is harmless.
        name.leak()
    }

    /// Creates an object.
    pub async fn create(&self, kind: &Kind, namespace: Option<&str>, object: &Value) -> Value {
        self.admin.post(&kind.path(namespace), object).await.ok()
    }

    /// Creates CRDs for namespaced kinds, and waits until their objects can be listed.
    pub async fn define(&self, kinds: &[Kind]) {
        for kind in kinds {
            self.apply(&[crd(kind, "Namespaced")]).await;
            self.admin.until_code(&kind.path(None), 200).await;
        }
    }

    /// Changes fields of an object with a JSON merge patch.
    pub async fn merge(&self, kind: &Kind, namespace: &str, name: &str, patch: &Value) -> Value {
        let path = kind.one(Some(namespace), name);
        self.admin.merge(&path, patch).await.ok()
    }

    /// Creates a VirtualMachine with this status.
    pub async fn vm(&self, namespace: &str, name: &str, status: Value) -> Value {
        let vm = VM.object(name, json!({"status": status}));
        self.create(&VM, Some(namespace), &vm).await
    }

    /// Creates a VirtualMachine whose `printableStatus` is `status`.
    pub async fn machine(&self, namespace: &str, name: &str, status: &str) -> Value {
        self.vm(namespace, name, json!({"printableStatus": status}))
            .await
    }

    /// Changes the `printableStatus` of a VirtualMachine.
    pub async fn set_status(&self, namespace: &str, name: &str, status: &str) -> Value {
        let patch = json!({"status": {"printableStatus": status}});
        self.merge(&VM, namespace, name, &patch).await
    }

    /// Creates a rule set and waits until it is Ready.
    pub async fn ready_rule_set(&self, rule_set: &Value) -> Value {
        self.create(&RULE_SET, None, rule_set).await;
        let name = text(rule_set, "/metadata/name");
        self.until_rule_set(name, "Ready", "True").await
    }

    /// Waits until the condition of a rule set has this status or reason.
    pub async fn until_rule_set(&self, name: &str, condition: &str, value: &str) -> Value {
        let what = format!("{condition} is {value}");
        self.rule_set_until(name, &what, |it| is(it, condition, value))
            .await
    }

    /// Waits until `is` returns true for a rule set. `what` is the expectation for the error
    /// message.
    pub async fn rule_set_until(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Value {
        let path = RULE_SET.one(None, name);
        self.admin.until_object(what, &path, is).await
    }

    /// Returns the names of all rule sets.
    pub async fn rule_sets(&self) -> Vec<String> {
        let list = self.admin.get(&RULE_SET.path(None)).await.ok();
        let name = |it: &Value| text(it, "/metadata/name").to_owned();
        items(&list).iter().map(name).collect()
    }

    /// Lists all operations of a namespace.
    pub async fn operations(&self, namespace: &str) -> Vec<Value> {
        let list = self.admin.get(&OPERATION.path(Some(namespace))).await;
        items(&list.ok()).to_vec()
    }

    /// Waits until a namespace has exactly the operations in `want`, and returns the operations. An
    /// entry of `want` is the name of a subject (the object that an operation is about) and the
    /// name of the operation, such as `Migrating`. The entries are sorted by `metadata.name` of the
    /// `InFlightOperation` objects. During a watch gap (an interruption of the server's own watch),
    /// also waits for the end of the gap.
    pub async fn until_operations(&self, namespace: &str, want: &[(&str, &str)]) -> Vec<Value> {
        eventually(&format!("operations {want:?} in {namespace}"), async || {
            let operations = self.operations(namespace).await;
            let names = |it| (text(it, "/spec/subject/name"), text(it, "/spec/operation"));
            let found: Vec<(&str, &str)> = operations.iter().map(names).collect();
            ok_if(found == want, &found)?;
            ok_if(!operations.iter().any(is_in_gap), "there is a watch gap")?;
            Ok(operations)
        })
        .await
    }

    /// Creates a namespace with the rule set [`super::migrating`], and VirtualMachines with these names
    /// that migrate. Waits until their operations exist. The names are sorted.
    pub async fn migrations(&self, prefix: &str, machines: &[&str]) -> (&'static str, Vec<Value>) {
        let namespace = self.new_namespace(prefix).await;
        self.ready_rule_set(&super::migrating(namespace)).await;
        for name in machines {
            self.machine(namespace, name, "Migrating").await;
        }
        let want: Vec<(&str, &str)> = machines.iter().map(|it| (*it, "Migrating")).collect();
        (namespace, self.until_operations(namespace, &want).await)
    }

    /// Returns the events in the audit log of the kube-apiserver after the first `skipped` lines.
    pub fn audit_log(&self, skipped: usize) -> Vec<Value> {
        let log = std::fs::read_to_string(&self.control_plane.addresses.audit_log);
        let log = log.expect("the control plane writes an audit log");
        let lines = log.lines().skip(skipped);
        lines
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// Starts a watch of the operations in a namespace.
    pub async fn watch(&self, namespace: &str) -> Events {
        let path = format!("{}?watch=1", OPERATION.path(Some(namespace)));
        let events = Events::of(&self.admin, &path).await;
        events.expect("an administrator must be allowed to watch")
    }

    /// Gives rights to a user, in a namespace or in the whole cluster. `user` can also have the form
    /// `group:NAME`. Returns the path of the binding.
    pub async fn grant(&self, user: &str, namespace: Option<&str>, rules: &Value) -> String {
        let kind = if namespace.is_some() {
            "Role"
        } else {
            "ClusterRole"
        };
        let (kind, name) = (kind, uuid::Uuid::new_v4().to_string());
        let role = json!({"metadata": {"name": name}, "rules": rules});
        let roles = rbac_path(namespace, kind);
        self.admin.post(&roles, &role).await.ok();
        self.bind(user, namespace, (kind, &name)).await
    }

    /// Binds a role to a user or a group, as [`Self::grant`] does. Returns the path of the binding.
    pub async fn bind(
        &self,
        user: &str,
        namespace: Option<&str>,
        (kind, role): (&str, &str),
    ) -> String {
        let group = "rbac.authorization.k8s.io";
        let (subject, user) = match user.strip_prefix("group:") {
            Some(name) => ("Group", name),
            None => ("User", user),
        };
        let name = uuid::Uuid::new_v4().to_string();
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": kind, "name": role},
            "subjects": [{"apiGroup": group, "kind": subject, "name": user}],
        });
        let kind = if namespace.is_some() {
            "RoleBinding"
        } else {
            "ClusterRoleBinding"
        };
        let bindings = rbac_path(namespace, kind);
        self.admin.post(&bindings, &binding).await.ok();
        format!("{bindings}/{name}")
    }

    /// Binds the ClusterRole `view` to the user in the namespace. This role includes the right to read
    /// operations. Returns the path of the binding.
    pub async fn grant_view(&self, namespace: &str, user: &str) -> String {
        self.bind(user, Some(namespace), ("ClusterRole", "view"))
            .await
    }
}

/// Returns the API path of all roles or bindings of a kind.
fn rbac_path(namespace: Option<&str>, kind: &str) -> String {
    let namespace = namespace.map_or(String::new(), |name| format!("namespaces/{name}/"));
    format!("{RBAC}/{namespace}{}s", kind.to_lowercase())
}
