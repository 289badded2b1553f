//! Tests of kubectl with operations, with a current version of kubectl and with version 1.20 of 2020.
//! `tests/e2e/compare_with_custom_resource` proves that the server answers like the kube-apiserver.
//! So these tests need only one command line for each part of kubectl.

mod program;

pub use program::{Kubectl, is_log, wait_for_watch};

use crate::harness::{TestCluster, VM, eventually, ok_if, rule_set, shared, skip, text};
use futures::StreamExt as _;
use serde_json::json;

/// Number of commands that run at the same time.
const AT_ONCE: usize = 4;

/// The command lines. The arguments are separated by single spaces. `$ns` stands for the namespace of
/// the test, and `$a` and `$b` for the names of its operations. `$file` is the path of a JSON file
/// with the operation `$a`. The second value is true if the command must succeed. The texts must
/// follow each other in the output, whose white space is ignored. If the command must fail, this is
/// its standard error.
const LINES: [(&str, bool, &[&str]); 30] = [
    // Names of the resource, selectors and pages.
    (
        "get ifos -n $ns",
        true,
        &[
            "SUBJECT OPERATION STATE AGE MESSAGE VirtualMachine/a Starting Progressing 50%",
            "Half done. VirtualMachine/b",
        ],
    ),
    (
        "get inflightoperation/$a -n $ns",
        true,
        &["VirtualMachine/a Starting"],
    ),
    (
        "get inflightoperations.v1alpha1.live.ifo.kubevirt.io -n $ns",
        true,
        &["/a", "/b"],
    ),
    (
        "get ifos -A -l team=$ns,!none",
        true,
        &["NAMESPACE SUBJECT", "$ns VirtualMachine/a", "/b"],
    ),
    (
        "get ifos -n $ns --field-selector=spec.operation!=Starting",
        true,
        &["MESSAGE VirtualMachine/b"],
    ),
    (
        "get ifos -n $ns -o name --chunk-size=1",
        true,
        &["inflightoperation.live.ifo.kubevirt.io/$a", "/$b"],
    ),
    (
        "get ifos -n $ns --sort-by=.spec.operation",
        true,
        &["/b Migrating", "/a Starting"],
    ),
    (
        "get ifos,configmaps -n $ns",
        true,
        &["VirtualMachine/a", "configmap/kube-root-ca.crt"],
    ),
    // Output formats.
    ("get ifos -n $ns -o wide", true, &["NAME", "$a"]),
    (
        "get ifos -n $ns -L team --show-labels",
        true,
        &["TEAM LABELS", "$ns", "ifo.kubevirt.io/operation=Starting"],
    ),
    (
        "get ifo $a -n $ns -o yaml",
        true,
        &[
            "apiVersion: live.ifo.kubevirt.io/v1alpha1 kind: InFlightOperation",
            "progress: 50",
        ],
    ),
    (
        "get ifos -n $ns -o jsonpath={.items[*].spec.subject.name}",
        true,
        &["a b"],
    ),
    (
        "get ifos -n $ns -o custom-columns=WHO:.spec.subject.name,DONE:.status.progress",
        true,
        &["WHO DONE a 50 b 50"],
    ),
    // Objects that do not exist, and forbidden requests.
    ("get ifo none -n $ns --ignore-not-found", true, &[]),
    (
        "get ifo none -n $ns",
        false,
        &[
            "Error from server (NotFound): inflightoperations.live.ifo.kubevirt.io \"none\" not found",
        ],
    ),
    (
        "get ifos -n $ns --as=nobody",
        false,
        &["Error from server (Forbidden): inflightoperations.live.ifo.kubevirt.io is forbidden"],
    ),
    // Descriptions of objects and resources.
    (
        "describe ifo $a -n $ns",
        true,
        &[
            "Name: $a Namespace: $ns Labels:",
            "Spec:",
            "Operation: Starting",
            "Status:",
            "Events:",
            "The moon was full.",
        ],
    ),
    (
        "explain ifo.spec.subject",
        true,
        &[
            "The object on which the operation was detected.",
            "uid <string>",
        ],
    ),
    (
        "explain ifo.status.conditions --api-version=live.ifo.kubevirt.io/v1alpha1",
        true,
        &["observedGeneration <integer>"],
    ),
    (
        "api-resources --api-group=live.ifo.kubevirt.io",
        true,
        &["inflightoperations", "true InFlightOperation"],
    ),
    ("auth can-i watch ifos -n $ns --as=nobody", false, &[]),
    // Conditions.
    (
        "wait ifos -n $ns --all --for=condition=Completed=false --timeout=60s",
        true,
        &["/$a condition met", "/$b condition met"],
    ),
    (
        "wait ifo/$a -n $ns --for=condition=Completed --timeout=1s",
        false,
        &["timed out waiting for the condition"],
    ),
    // Commands that write. The server refuses each of them.
    ("delete ifo $a -n $ns", false, &["delete is not supported"]),
    ("edit ifo $a -n $ns", false, &["patch is not supported"]),
    (
        "label ifo $a -n $ns a=b",
        false,
        &["patch is not supported"],
    ),
    (
        "apply --server-side -f $file",
        false,
        &["patch is not supported"],
    ),
    ("replace -f $file", false, &["update is not supported"]),
    ("create -f $file", false, &["create is not supported"]),
    (
        "scale ifo $a -n $ns --replicas=2",
        false,
        &["Error from server (NotFound)"],
    ),
];

/// Creates a namespace with the operations `Starting` on the VirtualMachine `a` and `Migrating` on
/// `b`, and an Event about the first. Runs the command lines for which `is_understood` returns true.
/// Then ends the first operation, while `kubectl wait` waits for its end and for its deletion.
async fn check(cluster: &TestCluster, kubectl: &Kubectl, is_understood: fn(&str) -> bool) {
    let namespace = cluster.namespace("kubectl").await;
    let machines = [("a", "Starting"), ("b", "Migrating")];
    let rule = |(_, status): (&str, &str)| {
        json!({
            "operation": status,
            "expression": format!("object.status.printableStatus == '{status}'"),
            "message": "object.status.message", "progress": "object.status.progress",
        })
    };
    let mut rules = rule_set(namespace, &VM, &[]);
    rules["spec"]["namespaces"] = json!([namespace]);
    rules["spec"]["labels"] = json!({"team": namespace});
    rules["spec"]["rules"] = json!(machines.map(rule));
    cluster.ready_rule_set(&rules).await;
    for (name, status) in machines {
        let machine = json!({
            "apiVersion": VM.api_version, "kind": VM.kind, "metadata": {"name": name},
            "status": {"printableStatus": status, "message": "Half done.", "progress": 50},
        });
        cluster.create(&VM, Some(namespace), &machine).await;
    }
    let operations = cluster.until_operations(namespace, &machines).await;
    let [a, b] = [0, 1].map(|index| text(&operations[index], "/metadata/name"));
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "moon"},
        "type": "Normal", "reason": "Noticed", "message": "The moon was full.",
        "involvedObject": {
            "apiVersion": operations[0]["apiVersion"], "kind": operations[0]["kind"],
            "namespace": namespace, "name": a, "uid": operations[0]["metadata"]["uid"],
        },
    });
    let path = format!("/api/v1/namespaces/{namespace}/events");
    cluster.admin.post(&path, &event).await.ok();
    let folder = tempfile::tempdir().expect("temporary folders can be created");
    let file = folder.path().join("operation.json");
    std::fs::write(&file, operations[0].to_string()).expect("the folder is writable");
    let file = file
        .to_str()
        .expect("the path of a temporary folder is UTF-8");
    let filled = |text: &str| {
        let pairs = [("$ns", namespace), ("$file", file), ("$a", a), ("$b", b)];
        let fill = |text: String, (word, value)| text.replace(word, value);
        pairs.into_iter().fold(text.to_owned(), fill)
    };
    let lines = LINES.into_iter().filter(|(line, ..)| is_understood(line));
    let run = async |(line, succeeds, texts): (&str, bool, &[&str])| {
        let line = filled(line);
        let output = kubectl.run(&line.split(' ').collect::<Vec<_>>()).await;
        assert_eq!(output.succeeded, succeeds, "{line}: {output:?}");
        let printed = if succeeds { &output.out } else { &output.err };
        let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut rest = printed.as_str();
        for text in texts.iter().map(|text| filled(text)) {
            let at = rest.find(&text);
            let at = at.unwrap_or_else(|| panic!("{line}: no {text:?} in {printed}"));
            rest = &rest[at + text.len()..];
        }
        // A command that succeeds prints no warning.
        assert!(
            !succeeds || output.err.is_empty() || line.contains("none"),
            "{line}: {output:?}"
        );
    };
    let runs = futures::stream::iter(lines)
        .map(run)
        .buffer_unordered(AT_ONCE);
    runs.collect::<Vec<()>>().await;

    let waits = ["delete", "condition=Completed", "condition=Detected=false"].map(|what| {
        let line = format!("wait ifo/{a} -n {namespace} --for={what} --timeout=180s");
        kubectl.follow(&line.split(' ').collect::<Vec<_>>())
    });
    let mut running = Vec::from(waits);
    for lines in &mut running {
        wait_for_watch(lines).await;
    }
    cluster.set_status(namespace, "a", "Running").await;
    for lines in &mut running {
        let is_met = |all: &[String]| {
            all.iter()
                .any(|it| it.ends_with("condition met"))
                .then_some(())
        };
        lines.until("the condition is met", is_met).await;
    }
}

#[test]
fn current_kubectl_understands_operations() {
    shared(async |cluster| {
        let kubectl = Kubectl::new(cluster);
        // Only a kubectl since 1.27 reads the schemas in `/openapi/v3`.
        eventually("kubectl explain describes operations", async || {
            let output = kubectl.run(&["explain", "ifo"]).await;
            ok_if(output.succeeded, output.err)
        })
        .await;
        check(cluster, &kubectl, |_| true).await;
    });
}

#[test]
fn kubectl_of_2020_understands_operations() {
    shared(async |cluster| match Kubectl::old(cluster).await {
        Ok(kubectl) => {
            let is_understood = |line: &str| !line.starts_with("explain");
            check(cluster, &kubectl, is_understood).await;
        }
        Err(why) => skip(&why),
    });
}
