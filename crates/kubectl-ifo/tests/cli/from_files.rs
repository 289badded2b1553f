//! Tests of `--from`: commands that read operations from a must-gather, from the output of `kubectl
//! get`, or from standard input. A must-gather is a folder with objects of a cluster, which the
//! command `oc adm must-gather` of OpenShift writes.

use super::CommandOutput;
use super::pseudo_terminal::Terminal;
use super::tests_with_fake_apiserver::{execute, operation};
use portable_pty::CommandBuilder;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};

fn ifo(args: &[&str]) -> CommandOutput {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    execute(
        command
            .args(args)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null()),
    )
}

fn from(path: &Path, args: &[&str]) -> CommandOutput {
    ifo(&[args, &["--from", path.to_str().expect("the path is UTF-8")]].concat())
}

fn write(folder: &Path, path: &str, object: &Value) {
    let path = folder.join(path);
    std::fs::create_dir_all(path.parent().expect("it has a folder"))
        .expect("the folder is writable");
    // JSON is YAML, too.
    std::fs::write(path, format!("---\n{object}\n")).expect("the folder is writable");
}

fn rule_set(ready: &str) -> Value {
    json!({
        "apiVersion": "ifo.kubevirt.io/v1alpha1", "kind": "OperationRuleSet", "metadata": {"name": "vm"},
        "spec": {"component": "kubevirt",
                 "target": {"group": "kubevirt.io", "version": "v1", "resource": "virtualmachines"},
                 "rules": [{"operation": "Migrating", "expression": "object.status.migrating"}]},
        "status": {"conditions": [{"type": "Ready", "status": ready, "reason": "WatchFailed", "message": "m",
                                   "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })
}

fn event(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "shop"},
        "involvedObject": {"kind": "VirtualMachine", "name": name, "namespace": "shop"},
        "reason": "Moved", "message": format!("{name} was moved"), "type": "Normal",
        "lastTimestamp": "2026-01-01T00:00:30Z",
    })
}

/// Writes a must-gather with two operations, in the folders and files that `oc adm inspect` writes.
fn must_gather(folder: &Path) {
    let root = "quay-io-image";
    let time = "2026-01-01 00:01:00.402374637 +0000 UTC m=+0.1\n";
    for number in 1..=2 {
        let name = format!("vm-{number}-migrating");
        let group = "live.ifo.kubevirt.io";
        let path = format!("{root}/namespaces/shop/{group}/inflightoperations/{name}.yaml");
        write(folder, &path, &operation(number));
    }
    let path = format!("{root}/cluster-scoped-resources/ifo.kubevirt.io/operationrulesets/vm.yaml");
    write(folder, &path, &rule_set("True"));
    let events =
        json!({"apiVersion": "v1", "kind": "EventList", "items": [event("vm-1"), event("vm-2")]});
    write(
        folder,
        &format!("{root}/namespaces/shop/core/events.yaml"),
        &events,
    );
    // The plugin ignores files that contain neither the API group of ifo nor Events. So these two
    // files do not matter, although one of them is invalid.
    write(
        folder,
        &format!("{root}/namespaces/shop/core/secrets.yaml"),
        &json!({"kind": "Secret"}),
    );
    std::fs::write(folder.join(root).join("broken.yaml"), "a: [").expect("the folder is writable");
    std::fs::write(folder.join("timestamp"), time).expect("the folder is writable");
}

#[test]
fn a_must_gather_is_read_like_a_cluster() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    must_gather(folder.path());
    let from = |args: &[&str]| from(folder.path(), args);
    let list = from(&["list"]);
    list.exits(0);
    assert_eq!(list.stdout.lines().count(), 3, "{}", list.stdout);
    // Ages are relative to the time of the must-gather, which is 60 s after the operations began.
    list.prints("   60s");
    list.says("at 2026-01-01T00:01:00Z; ages are relative");
    list.says("it was not recorded whether");
    assert!(!list.stderr.contains("broken.yaml"), "{}", list.stderr);

    assert_eq!(from(&["list", "-n", "other", "-o", "name"]).stdout, "");
    assert_eq!(from(&["list", "-l", "team=a", "-o", "name"]).stdout, "");
    let others = from(&["list", "-l", "team!=a", "-o", "name"]);
    assert_eq!(others.stdout.lines().count(), 2, "{}", others.stderr);
    let invalid = from(&["list", "-l", "a=b c"]);
    invalid.exits(2);
    let named = from(&["get", "vm-2-migrating", "-o", "yaml"]);
    named.prints("name: vm-2-migrating");
    let missing = from(&["get", "vm-3-migrating"]);
    missing.exits(1);

    let summary = from(&["summary", "-O", "json"]).json();
    assert_eq!(summary["total"]["active"], 2);
    assert!(summary["incomplete"]["message"].is_string(), "{summary}");

    let description = from(&["describe", "-n", "shop", "VirtualMachine/vm-1"]).stdout;
    for part in ["object.status.migrating", "vm-1 was moved", "30s"] {
        assert!(description.contains(part), "{part}: {description}");
    }
    assert!(!description.contains("vm-2 was moved"), "{description}");
    let tree = from(&["tree", "--for", "VirtualMachine/vm-2"]);
    assert!(
        tree.stdout.contains("VirtualMachine/vm-2") && !tree.stdout.contains("vm-1"),
        "{}",
        tree.stdout
    );
}

#[test]
fn output_of_kubectl_get_is_read_from_a_file_and_from_standard_input() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("ifos.yaml");
    let items = [operation(1), operation(2)];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items, "metadata": {}});
    write(folder.path(), "ifos.yaml", &list);
    let shown = from(&file, &["-o", "name"]);
    assert_eq!(shown.stdout.lines().count(), 2, "{}", shown.stderr);
    shown.says("the last change of the file");
    // If the files contain no rule sets, it is unknown whether a component exists.
    let unknown = from(&file, &["list", "-c", "other"]);
    unknown.exits(0);
    unknown.says("does not contain the rule sets");
    unknown.says("The files contain no operations that were in flight and fit the filters.");

    let mut command = Command::new("sh");
    let pipe = format!(
        "cat '{}' | '{}' list --from -",
        file.display(),
        env!("CARGO_BIN_EXE_kubectl-ifo")
    );
    let piped = execute(command.args(["-c", &pipe]).env_remove("KUBECONFIG"));
    assert!(
        piped.stdout.contains("VirtualMachine/vm-1"),
        "{}",
        piped.stderr
    );
}

#[test]
fn an_empty_list_is_not_shown_as_a_quiet_cluster() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("ifos.json");
    std::fs::write(&file, r#"{"apiVersion":"v1","kind":"List","items":[]}"#)
        .expect("it is writable");
    let list = from(&file, &["list"]);
    assert_eq!((list.code, &*list.stdout), (0, ""), "{}", list.stderr);
    assert!(
        !list.stderr.contains("No operations in flight."),
        "{}",
        list.stderr
    );
    list.says("operations may be missing");
    let tree = from(&file, &["tree", "-o", "json"]).json();
    assert!(tree["incomplete"]["message"].is_string(), "{tree}");

    write(
        folder.path(),
        "cluster-scoped-resources/vm.yaml",
        &rule_set("False"),
    );
    let broken = from(folder.path(), &["list"]);
    broken.says("it was not recorded whether all operations were listed");
}

#[test]
fn commands_that_need_a_cluster_refuse_files() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    must_gather(folder.path());
    for command in [
        &["list", "-w"][..],
        &["tree", "--watch"],
        &["summary", "-w"],
        &["wait"],
        &["support-bundle"],
        &["impact", "worker-3"],
    ] {
        let output = from(folder.path(), command);
        assert_eq!(
            (output.code, &*output.stdout),
            (2, ""),
            "{command:?}: {}",
            output.stderr
        );
        output.says("the operations in files do not change");
    }
    let both = from(folder.path(), &["list", "--context", "prod"]);
    both.exits(2);
    both.says("cannot be used with");
}

#[test]
fn empty_folders_and_unreadable_files_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let list = from(folder.path(), &["list"]);
    assert_eq!((list.code, &*list.stdout), (1, ""));
    list.says("there are no operations");
    let missing = from(&folder.path().join("none"), &["list"]);
    missing.says("No such file");
    let broken = folder.path().join("broken.yaml");
    std::fs::write(&broken, "kind: [").expect("it is writable");
    let broken = from(&broken, &["list"]);
    assert_eq!(broken.code, 1);
    broken.says("broken.yaml: line ");
}

#[test]
fn top_shows_operations_from_files_on_the_whole_screen() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    must_gather(folder.path());
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    command.args(["top", "--from"]);
    command.arg(folder.path());
    command.env_remove("KUBECONFIG");
    let mut top = Terminal::start(command, 80, 24);
    // With `--from`, the clock stands still. So the age stays 60 s.
    top.shows(&["2 progressing", "from files", "VirtualMachine/vm-1", "60s"]);
    top.shows(&["it was not recorded whether"]);
    top.type_text("q");
    assert!(top.restored().success());
}
