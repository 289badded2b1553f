//! Tests of the records of completed operations. A record (resource `operationrecords`) describes
//! an operation that has ended. The tests check what records show, and when they are deleted.

use crate::harness::{
    Cluster, NAMESPACE, OPERATION, OPERATION_RECORD, columns, items, migrating, shared, text,
    with_rule_fields,
};
use serde_json::{Value, json};

/// The field `outcome` of a rule, a CEL expression. An operation succeeds when its VirtualMachine
/// is `Running` again. The operation ends at once, without a debounce period.
const OUTCOME: &str = "object.status.printableStatus == 'Running' ? 'Succeeded' : ''";

/// Waits until the records of a namespace are about exactly these subjects, and returns the
/// records. `want` is sorted.
async fn until_recorded(cluster: &Cluster, namespace: &str, want: &[&str]) -> Vec<Value> {
    let path = OPERATION_RECORD.path(Some(namespace));
    let is = |list: &Value| {
        let names = items(list).iter().map(|it| text(it, "/spec/subject/name"));
        names.eq(want.iter().copied())
    };
    let what = format!("records of {want:?}");
    items(&cluster.admin.until_object(&what, &path, is).await).to_vec()
}

/// Creates a namespace, and a rule set for the operation `Migrating` in this namespace. The
/// operations end with [`OUTCOME`].
async fn namespace_with_rules(cluster: &Cluster, prefix: &str) -> &'static str {
    let namespace = cluster.new_namespace(prefix).await;
    let fields = json!({"outcome": OUTCOME, "expectedDuration": "1h"});
    let rules = with_rule_fields(migrating(namespace), fields);
    cluster.ready_rule_set(&rules).await;
    namespace
}

/// Runs `Migrating` on a new VirtualMachine. Returns the operation as it was before its end.
async fn run(cluster: &Cluster, namespace: &str, name: &str) -> Value {
    cluster.machine(namespace, name, "Migrating").await;
    let path = OPERATION.path(Some(namespace));
    let own = |list: &Value| {
        let mut all = items(list).iter();
        all.find(|it| text(it, "/spec/subject/name") == name)
            .cloned()
    };
    let what = "the operation starts";
    let is = |list: &Value| own(list).is_some();
    let operation = own(&cluster.admin.until_object(what, &path, is).await);
    let operation = operation.expect("it was found");
    cluster.set_status(namespace, name, "Running").await;
    let one = OPERATION.one(Some(namespace), text(&operation, "/metadata/name"));
    cluster.admin.until_code(&one, 404).await;
    operation
}

#[test]
fn a_completed_operation_leaves_a_record_that_kubectl_and_the_plugin_show() {
    shared(async |cluster| {
        let namespace = namespace_with_rules(cluster, "recorded").await;
        let operation = run(cluster, namespace, "good").await;
        let record = until_recorded(cluster, namespace, &["good"])
            .await
            .remove(0);
        let fields = [
            "/metadata/name",
            "/metadata/uid",
            "/metadata/creationTimestamp",
            "/spec",
        ];
        for field in fields {
            assert_eq!(record.pointer(field), operation.pointer(field), "{record}");
        }
        // The server no longer serves the operation, so the plugin describes its record.
        let name = text(&operation, "/metadata/name");
        for target in [name, "VirtualMachine/good"] {
            let args = ["describe", "-n", namespace, target, "-o", "name"];
            let said = crate::plugin::run(cluster, &args).await;
            let expected = format!("operationrecord.live.ifo.kubevirt.io/{name}\n");
            assert_eq!(said.out, expected, "{}", said.err);
        }
        let selector = "--field-selector=status.outcome=Succeeded";
        let table = cluster
            .kubectl(&format!("get opr -n {namespace} {selector}"))
            .await;
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
        let row = ["VirtualMachine", "good", "Migrating", "Succeeded"];
        assert_eq!(lines[1][..4], row, "{table}");
        assert_eq!(lines[1][6], "limit 60m", "{table}");
    });
}

#[test]
fn operations_and_records_are_deleted_with_their_namespace() {
    shared(async |cluster| {
        let deleted = namespace_with_rules(cluster, "tenant").await;
        run(cluster, deleted, "old").await;
        let old = until_recorded(cluster, deleted, &["old"]).await.remove(0);
        // The operation on `active` completes while its namespace is being deleted.
        cluster.machine(deleted, "active", "Migrating").await;
        let active = [("active", "Migrating")];
        cluster.until_operations(deleted, &active).await;
        let path = NAMESPACE.one(None, deleted);
        cluster.admin.delete_and_wait(&path).await;
        until_recorded(cluster, deleted, &[]).await;
        cluster.until_operations(deleted, &[]).await;

        let again = NAMESPACE.object(deleted, json!({}));
        cluster.create(&NAMESPACE, None, &again).await;
        run(cluster, deleted, "new").await;
        let new = until_recorded(cluster, deleted, &["new"]).await.remove(0);
        assert_ne!(new["metadata"]["uid"], old["metadata"]["uid"]);
    });
}
