//! Tests of the names of kinds in the plugin. A kind can have initials that are the short name of
//! another kind. Then the plugin must neither show nor accept these initials for the first kind.

use crate::harness::{CRD, Kind, TestCluster, crd, eventually, ok_if, rule_set, shared};
use serde_json::json;
use std::process::Stdio;
use tokio::process::Command;

/// The API group of both kinds. No other test uses it.
const GROUP: &str = "kinds.e2e.example.com";

/// A kind without short names. Its initials are `VMI`.
const IMAGE: Kind = Kind {
    api_version: "kinds.e2e.example.com/v1",
    kind: "VirtualMachineImage",
    plural: "virtualmachineimages",
};

/// A kind with the short name `vmi`.
const INSTANCE: Kind = Kind {
    api_version: "kinds.e2e.example.com/v1",
    kind: "VirtualMonitorInstance",
    plural: "virtualmonitorinstances",
};

/// Installs both kinds, and gives the server the right to read them.
async fn install_kinds(cluster: &TestCluster) {
    let mut instance = crd(&INSTANCE, "Namespaced");
    instance["spec"]["names"]["shortNames"] = json!(["vmi"]);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": GROUP},
        "rules": [{"apiGroups": [GROUP], "resources": ["*"], "verbs": ["get", "list", "watch"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": GROUP},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": GROUP,
        },
        "subjects": [{
            "kind": "ServiceAccount", "namespace": "ifo-system", "name": "ifo-apiserver",
        }],
    });
    cluster.create(&CRD, None, &crd(&IMAGE, "Namespaced")).await;
    cluster.create(&CRD, None, &instance).await;
    cluster.apply(&[role, binding]).await;
}

/// Runs the plugin on a pseudo-terminal with this number of columns, and returns its output.
async fn on_terminal(cluster: &TestCluster, columns: usize, args: &str) -> String {
    let plugin = crate::plugin();
    let command = format!(
        "stty cols {columns} rows 40; exec {} {args}",
        plugin.display()
    );
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env("KUBECONFIG", &cluster.control_plane.addresses.kubeconfig)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .await
        .expect("the program `script` of util-linux must be installed");
    let text = String::from_utf8(output.stdout).expect("the plugin prints UTF-8");
    assert!(output.status.success(), "{text}");
    text.replace('\r', "")
}

#[test]
fn initials_that_are_the_short_name_of_another_kind_are_never_used() {
    shared(async |cluster| {
        let namespace = cluster.namespace("kind-names").await;
        install_kinds(cluster).await;
        let name = "an-object-with-a-name-so-long-that-kinds-are-shortened-on-80-columns";
        for kind in [&IMAGE, &INSTANCE] {
            let rules = [("Preparing", "object.status.phase == 'Preparing'")];
            let mut rules = rule_set(&format!("{namespace}-{}", kind.plural), kind, &rules);
            rules["spec"]["namespaces"] = json!([namespace]);
            cluster.ready_rule_set(&rules).await;
            let object = json!({
                "apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name},
                "status": {"phase": "Preparing"},
            });
            let path = kind.path(Some(namespace));
            eventually(&format!("{} can be created", kind.kind), async || {
                let answer = cluster.admin.post(&path, &object).await;
                ok_if(answer.code == 201, answer)
            })
            .await;
        }
        let both = [(name, "Preparing"), (name, "Preparing")];
        cluster.until_operations(namespace, &both).await;

        for command in ["list", "tree"] {
            for columns in [80, 119] {
                let text =
                    on_terminal(cluster, columns, &format!("{command} -n {namespace}")).await;
                let count = |part: &str| text.matches(part).count();
                // The operation on the image has its complete kind, even if its name is cut.
                let instance = match (command, columns) {
                    // The tree needs fewer columns than the list, so all texts are complete.
                    ("tree", 119) => "VirtualMonitorInstance/an-object",
                    _ => "vmi/an-object",
                };
                assert_eq!(count(instance), 1, "{columns}: {text}");
                assert_eq!(count("VirtualMachineImage"), 1, "{columns}: {text}");
                assert_eq!(count("VMI"), 0, "{columns}: {text}");
            }
        }

        // The short name selects only the kind that has it.
        for (kind, selected) in [
            ("vmi", "VirtualMonitorInstance"),
            ("virtualmachineimage", "VirtualMachineImage"),
            (
                "virtualmachineimages.kinds.e2e.example.com",
                "VirtualMachineImage",
            ),
        ] {
            let args = ["list", "-n", namespace, "-k", kind];
            let said = crate::plugin::run(cluster, &args).await;
            let rows: Vec<&str> = said.out.lines().skip(1).collect();
            assert_eq!(rows.len(), 1, "{kind}: {}{}", said.out, said.err);
            assert!(rows[0].contains(selected), "{kind}: {}", said.out);
        }
    });
}
