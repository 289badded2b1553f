//! Tests of the records of completed operations. A record (resource `operationrecords`) describes
//! an operation that has ended. The tests check the contents of records, and who may read records.
//! Lists and watches of operations must not contain records.

use crate::harness::{
    ApiAnswer, Kind, OPERATION, TestCluster, VM, columns, eventually, migrating, ok_if, shared,
    text,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The kind of the records.
const OPERATION_RECORD: Kind = Kind {
    api_version: OPERATION.api_version,
    kind: "OperationRecord",
    plural: "operationrecords",
};

/// API path of roles and bindings.
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1";

/// The field `outcome` of a rule, a CEL expression. An operation succeeds when its VirtualMachine
/// is `Running` again, and fails when its VirtualMachine is `Broken`. In both cases, the operation
/// ends at once, without a debounce period.
const OUTCOME: &str = "object.status.printableStatus == 'Running' ? 'Succeeded' : object.status.printableStatus == 'Broken' ? 'Failed' : ''";

/// Returns a rule set that detects the operation `Migrating` on VirtualMachines in one namespace.
/// The rule also has the fields in `fields`.
fn migrating_with(namespace: &str, fields: Value) -> Value {
    let mut rules = migrating(namespace);
    let Value::Object(fields) = fields else {
        panic!("the fields of a rule must be a JSON object: {fields}");
    };
    let rule = rules["spec"]["rules"][0].as_object_mut();
    rule.expect("a rule is an object").extend(fields);
    rules
}

/// Creates a VirtualMachine that migrates. Its status also has the fields in `status`.
async fn migrate(cluster: &TestCluster, namespace: &str, name: &str, mut status: Value) {
    status["printableStatus"] = json!("Migrating");
    let machine = json!({
        "apiVersion": VM.api_version, "kind": VM.kind,
        "metadata": {"name": name}, "status": status,
    });
    cluster.create(&VM, Some(namespace), &machine).await;
}

/// Waits until `kubectl get` with these options returns objects about exactly the subjects in
/// `want`. `want` contains the names of the subjects in alphabetical order.
async fn wait_until_selected(
    cluster: &TestCluster,
    resource: &str,
    namespace: &str,
    options: &[&str],
    want: &[&str],
) {
    let names = "-o=jsonpath={.items[*].spec.subject.name}";
    let args = [&["get", resource, "-n", namespace, names], options].concat();
    eventually(&format!("{options:?} selects {want:?}"), async || {
        let found = cluster.kubectl(&args).await?;
        let mut found: Vec<&str> = found.split_whitespace().collect();
        found.sort_unstable();
        ok_if(found == want, found)
    })
    .await;
}

/// Returns the time at a JSON pointer.
#[track_caller]
fn time(object: &Value, pointer: &str) -> Timestamp {
    let time = text(object, pointer).parse();
    time.unwrap_or_else(|error| panic!("{pointer}: {error}: {object}"))
}

/// Returns the items of a list of records. Fails if the list contains another kind.
#[track_caller]
fn records(list: ApiAnswer) -> Vec<Value> {
    let list = list.ok();
    assert_eq!(list["kind"], "OperationRecordList", "{list}");
    let items = list["items"].as_array().expect("a list has items").clone();
    assert!(
        items.iter().all(|it| it["kind"] == OPERATION_RECORD.kind),
        "{list}"
    );
    items
}

/// Waits until the records of a namespace are about exactly these subjects, and returns the
/// records. `want` is sorted.
async fn wait_until_recorded(cluster: &TestCluster, namespace: &str, want: &[&str]) -> Vec<Value> {
    eventually(&format!("records of {want:?} in {namespace}"), async || {
        let found = records(
            cluster
                .admin
                .get(&OPERATION_RECORD.path(Some(namespace)))
                .await,
        );
        let names = found.iter().map(|it| text(it, "/spec/subject/name"));
        ok_if(names.eq(want.iter().copied()), &found)?;
        Ok(found)
    })
    .await
}

/// Creates a namespace, and a rule set for the operation `Migrating` in this namespace. The
/// operations end when [`OUTCOME`] yields `Succeeded` or `Failed`.
async fn namespace_with_rules(cluster: &TestCluster, prefix: &str) -> &'static str {
    let namespace = cluster.namespace(prefix).await;
    let fields = json!({
        "outcome": OUTCOME, "expectedDuration": "1h", "progress": "object.status.progress",
        "message": "object.status.message",
    });
    let rules = migrating_with(namespace, fields);
    cluster.ready_rule_set(&rules).await;
    namespace
}

/// Runs `Migrating` on a new VirtualMachine. To end the operation, sets the status of the
/// VirtualMachine to `end`. Returns the operation as it was before its end.
async fn run(cluster: &TestCluster, namespace: &str, name: &str, end: &str) -> Value {
    migrate(cluster, namespace, name, json!({"progress": 40})).await;
    let operation = eventually("the operation starts", async || {
        let mut operations = cluster.operations(namespace).await.into_iter();
        let own = operations.find(|it| text(it, "/spec/subject/name") == name);
        own.ok_or_else(|| format!("there is no operation on {name}"))
    })
    .await;
    cluster.set_status(namespace, name, end).await;
    let path = format!(
        "{}/{}",
        OPERATION.path(Some(namespace)),
        name_of(&operation)
    );
    eventually("the operation ends", async || {
        let answer = cluster.admin.get(&path).await;
        ok_if(answer.code == 404, answer)
    })
    .await;
    operation
}

fn name_of(object: &Value) -> &str {
    text(object, "/metadata/name")
}

#[test]
fn a_completed_operation_leaves_a_record() {
    shared(async |cluster| {
        let namespace = namespace_with_rules(cluster, "recorded").await;
        let good = run(cluster, namespace, "good", "Running").await;
        let bad = run(cluster, namespace, "bad", "Broken").await;
        let found = wait_until_recorded(cluster, namespace, &["bad", "good"]).await;
        assert_eq!(
            [name_of(&found[0]), name_of(&found[1])],
            [name_of(&bad), name_of(&good)]
        );

        let name = name_of(&good);
        let args = ["get", "opr", name, "-n", namespace, "-o", "json"];
        let record = cluster
            .kubectl(&args)
            .await
            .expect("kubectl must read the record");
        let record: Value = serde_json::from_str(&record).expect("kubectl prints JSON");
        assert_eq!(record, found[1]);
        // The server no longer serves the operation, so the plugin describes its record.
        for target in [name, "VirtualMachine/good"] {
            let args = ["describe", "-n", namespace, target, "-o", "name"];
            let said = crate::plugin::run(cluster, &args).await;
            let expected = format!("operationrecord.live.ifo.kubevirt.io/{name}\n");
            assert_eq!(said.out, expected, "{}", said.err);
        }
        assert_eq!(record["apiVersion"], OPERATION_RECORD.api_version);
        assert_eq!(record["kind"], OPERATION_RECORD.kind);
        for field in [
            "/metadata/name",
            "/metadata/namespace",
            "/metadata/uid",
            "/metadata/creationTimestamp",
            "/spec",
            "/status/expected",
            "/status/startTimeSource",
        ] {
            let values = [&record, &good].map(|it| it.pointer(field));
            assert!(
                values[0].is_some() && values[0] == values[1],
                "{field}: {record}"
            );
        }
        let status = &record["status"];
        assert_eq!(status["outcome"], "Succeeded", "{record}");
        assert_eq!(status["reason"], "Succeeded", "{record}");
        assert_eq!(status["progress"], 100, "{record}");
        let start = time(&record, "/status/started");
        assert_eq!(
            start,
            time(&record, "/metadata/creationTimestamp"),
            "{record}"
        );
        let passed = time(&record, "/status/completed").duration_since(start);
        assert_eq!(
            status["durationSeconds"].as_i64(),
            Some(passed.as_secs()),
            "{record}"
        );
        assert_eq!(found[0]["status"]["outcome"], "Failed", "{found:?}");
        assert_eq!(found[0]["status"]["progress"], 40, "{found:?}");

        let table = cluster.kubectl(&["get", "opr", "-n", namespace]).await;
        let table = table.expect("kubectl must know the short name opr");
        let lines: Vec<Vec<&str>> = table.lines().map(columns).collect();
        let header = [
            "KIND",
            "SUBJECT",
            "OPERATION",
            "OUTCOME",
            "STARTED",
            "DURATION",
            "USUAL",
        ];
        assert_eq!(lines[0], header, "{table}");
        assert_eq!(lines.len(), 3, "{table}");
        let row = ["VirtualMachine", "good", "Migrating", "Succeeded"];
        assert_eq!(lines[2][..4], row, "{table}");
        assert_eq!(lines[2][4], text(&record, "/status/started"), "{table}");
        assert_eq!(lines[2][6], "limit 60m", "{table}");
        let wide = ["get", "opr", "-n", namespace, "-o", "wide"];
        let table = cluster
            .kubectl(&wide)
            .await
            .expect("kubectl must print the wide table");
        let lines: Vec<Vec<&str>> = table.lines().map(columns).collect();
        let additional = [
            "COMPONENT",
            "RULESET",
            "INITIATOR",
            "REASON",
            "COMPLETED",
            "MESSAGE",
        ];
        assert_eq!(lines[0][0], "NAME", "{table}");
        assert_eq!(
            lines[0][1..],
            [&header[..], &additional].concat(),
            "{table}"
        );
        assert_eq!(lines[2][0], name, "{table}");

        for (selector, want) in [
            ("status.outcome=Failed", &["bad"][..]),
            ("status.outcome!=Failed", &["good"]),
            ("status.reason=Succeeded", &["good"]),
            ("spec.subject.name=bad", &["bad"]),
            ("spec.operation=Migrating", &["bad", "good"]),
            ("spec.operation=Starting", &[]),
            ("metadata.name=none", &[]),
        ] {
            let option = ["--field-selector", selector];
            wait_until_selected(cluster, "opr", namespace, &option, want).await;
        }
        let label = ["-l", "ifo.kubevirt.io/state=Failed"];
        wait_until_selected(cluster, "opr", namespace, &label, &["bad"]).await;
        let unknown = format!(
            "{}?fieldSelector=status.phase%3DActive",
            OPERATION_RECORD.path(None)
        );
        let message = cluster.admin.get(&unknown).await.refused(400);
        assert!(message.contains("status.phase"), "{message}");
    });
}

/// Allows a user to get and list one resource of the group `live.ifo.kubevirt.io` in a namespace.
async fn grant(cluster: &TestCluster, namespace: &str, user: &str, resource: &str) {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": resource},
        "rules": [{
            "apiGroups": ["live.ifo.kubevirt.io"], "resources": [resource],
            "verbs": ["get", "list"],
        }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": resource},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": resource},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    for (plural, object) in [("roles", role), ("rolebindings", binding)] {
        let path = format!("{ROLES}/namespaces/{namespace}/{plural}");
        cluster.admin.post(&path, &object).await.ok();
    }
}

#[test]
fn a_role_gives_access_to_records_or_to_operations() {
    shared(async |cluster| {
        let namespace = namespace_with_rules(cluster, "rights").await;
        let completed = run(cluster, namespace, "completed", "Running").await;
        wait_until_recorded(cluster, namespace, &["completed"]).await;
        migrate(cluster, namespace, "active", json!({})).await;
        let active = [("active", "Migrating")];
        let active = cluster.until_operations(namespace, &active).await.remove(0);
        for (allowed, forbidden, name, other) in [
            (OPERATION_RECORD, OPERATION, &completed, &active),
            (OPERATION, OPERATION_RECORD, &active, &completed),
        ] {
            let user = format!("{namespace}-{}", allowed.plural);
            grant(cluster, namespace, &user, allowed.plural).await;
            let caller = cluster.user(&user);
            let path = allowed.path(Some(namespace));
            let list = eventually("the user may list", async || {
                let answer = caller.get(&path).await;
                ok_if(answer.code == 200, &answer)?;
                Ok(answer.body)
            })
            .await;
            assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{list}");
            let one = caller.get(&format!("{path}/{}", name_of(name))).await.ok();
            assert_eq!(one["kind"], allowed.kind);
            let refused = forbidden.path(Some(namespace));
            for path in [
                refused.clone(),
                format!("{refused}?watch=1"),
                format!("{refused}/{}", name_of(other)),
                allowed.path(None),
                forbidden.path(None),
            ] {
                let message = caller.get(&path).await.refused(403);
                assert!(message.contains("is forbidden"), "{path}: {message}");
            }
            let plural = allowed.plural;
            let args = ["get", plural, "-n", namespace, "-o", "name", "--as", &user];
            let found = cluster.kubectl(&args).await.expect("the user may list");
            assert!(found.contains(name_of(name)), "{found}");
            let plural = forbidden.plural;
            let args = ["get", plural, "-n", namespace, "--as", &user];
            let error = cluster
                .kubectl(&args)
                .await
                .expect_err("the user may not list");
            assert!(error.contains("(Forbidden)"), "{error}");
        }

        // The shipped ClusterRole `ifo-view` extends the ClusterRole `view`. So `view` gives access
        // to both resources.
        let user = format!("{namespace}-viewer");
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "viewer"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view",
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        });
        let path = format!("{ROLES}/namespaces/{namespace}/rolebindings");
        cluster.admin.post(&path, &binding).await.ok();
        let caller = cluster.user(&user);
        for kind in [OPERATION_RECORD, OPERATION] {
            eventually("the user may list", async || {
                let answer = caller.get(&kind.path(Some(namespace))).await;
                ok_if(answer.code == 200, answer)
            })
            .await;
        }
    });
}

#[test]
fn records_are_deleted_with_their_namespace() {
    shared(async |cluster| {
        let deleted = namespace_with_rules(cluster, "tenant").await;
        let neighbour = namespace_with_rules(cluster, "tenant").await;
        for name in [deleted, neighbour] {
            run(cluster, name, "old", "Running").await;
            wait_until_recorded(cluster, name, &["old"]).await;
        }
        let old: BTreeSet<String> = wait_until_recorded(cluster, deleted, &["old"])
            .await
            .iter()
            .map(|it| text(it, "/metadata/uid").to_owned())
            .collect();
        // The operation on `active` completes while its namespace is being deleted.
        migrate(cluster, deleted, "active", json!({})).await;
        cluster
            .until_operations(deleted, &[("active", "Migrating")])
            .await;
        let path = format!("/api/v1/namespaces/{deleted}");
        cluster.admin.delete(&path).await.ok();
        eventually("the namespace is deleted", async || {
            let answer = cluster.admin.get(&path).await;
            ok_if(answer.code == 404, answer.code)
        })
        .await;
        wait_until_recorded(cluster, deleted, &[]).await;

        let again = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": deleted}});
        cluster.admin.post("/api/v1/namespaces", &again).await.ok();
        run(cluster, deleted, "new", "Running").await;
        let new = wait_until_recorded(cluster, deleted, &["new"]).await;
        assert!(!old.contains(text(&new[0], "/metadata/uid")), "{new:?}");
        let all = records(cluster.admin.get(&OPERATION_RECORD.path(None)).await);
        let own = all
            .iter()
            .filter(|it| it["metadata"]["namespace"] == deleted);
        assert_eq!(own.collect::<Vec<_>>(), [&new[0]]);
        wait_until_recorded(cluster, neighbour, &["old"]).await;
    });
}
