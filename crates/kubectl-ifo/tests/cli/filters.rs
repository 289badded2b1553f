//! Tests of filter values that match nothing, which would look like a quiet cluster.

use super::Said;
use super::cluster::{
    LIVE, RULE_SETS, body, cluster, group, list, not_found, operation, plugin, said, serve, status,
    watching,
};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// The commands that print operations.
const READING: [&str; 3] = ["list", "summary", "tree"];

fn run(address: SocketAddr, command: &str, flags: &[&str]) -> Said {
    let mut plugin = plugin(address);
    plugin.arg(command);
    if command == "wait" {
        plugin.args(["--timeout", "0"]);
    }
    said(plugin.args(flags))
}

#[test]
fn an_unknown_filter_value_is_an_error_with_a_suggestion() {
    let (_runtime, address) = cluster(Vec::new());
    for (flags, told) in [
        (
            ["-c", "kubvirt"],
            "this component; did you mean \"kubevirt\"?",
        ),
        (
            ["-c", "nonsense"],
            "this component; see: kubectl get operationrulesets",
        ),
        (
            ["-c", "kubevirt,kubvirt"],
            "this component; did you mean \"kubevirt\"?",
        ),
        (
            ["-k", "VirtualMachin"],
            "no resource \"VirtualMachin\"; did you mean \"virtualmachine\"?",
        ),
        (
            ["-o", "Migratin"],
            "; did you mean the operation \"Migrating\"?",
        ),
        (
            ["-n", "shpo"],
            "no namespace \"shpo\"; did you mean \"shop\"?",
        ),
        (["-n", "elsewhere"], "; see: kubectl get namespaces"),
    ] {
        for command in READING.into_iter().chain(["wait"]) {
            let said = run(address, command, &flags);
            assert_eq!(
                (said.code, &*said.out),
                (2, ""),
                "{command} {flags:?}: {}",
                said.err
            );
            assert!(said.err.contains(told), "{command} {flags:?}: {}", said.err);
        }
    }
    let get = run(address, "get", &["none", "-c", "kubvirt"]);
    assert_eq!(get.code, 2, "{}", get.err);
    let describe = run(address, "describe", &["none", "-n", "shpo"]);
    assert_eq!(describe.code, 2, "{}", describe.err);
}

#[test]
fn a_filter_value_without_a_match_is_checked_even_beside_matching_ones() {
    let (_runtime, address) = cluster(vec![operation(1)]);
    for flags in [
        &["-c", "kubevirt,kubvirt"][..],
        &["-k", "vm", "-k", "vn"],
        &["-o", "Migrating,Migratin"],
    ] {
        for command in READING.into_iter().chain(["wait"]) {
            let said = run(address, command, flags);
            assert_eq!(said.code, 2, "{command} {flags:?}: {}", said.err);
        }
    }
}

#[test]
fn a_misspelled_format_is_distinguished_from_a_misspelled_operation() {
    let mut naming = watching();
    naming["spec"]["rules"] = json!([{"operation": "Naming"}]);
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        LIVE => list(&[], ""),
        RULE_SETS => body(&json!({"items": [naming.clone()]})),
        _ => not_found(),
    });
    for (value, told) in [
        ("yamll", "did you mean the format \"yaml\"?"),
        (
            "namin",
            "did you mean the format \"name\" or the operation \"Naming\"?",
        ),
        ("Namingg", "did you mean the operation \"Naming\"?"),
    ] {
        for command in READING {
            let said = run(address, command, &["-o", value]);
            assert_eq!((said.code, &*said.out), (2, ""), "{command}: {}", said.err);
            assert!(said.err.contains(told), "{command} {value}: {}", said.err);
        }
    }
    // This command has no output formats.
    let wait = run(address, "wait", &["-o", "yamll"]);
    assert_eq!(wait.code, 2, "{}", wait.err);
    assert!(!wait.err.contains("format"), "{}", wait.err);
}

#[test]
fn a_known_value_that_no_rule_set_detects_is_a_warning() {
    let (_runtime, address) = cluster(Vec::new());
    for (flags, told) in [
        (&["-k", "Pod"][..], "check --kind Pod"),
        (&["-c", "kubevirt", "-k", "po"], "check --kind po"),
        (&["-l", "taem=a"], "label \"taem\": check --selector"),
    ] {
        for command in READING {
            let said = run(address, command, flags);
            assert_eq!(said.code, 0, "{command} {flags:?}: {}", said.err);
            let warning = said.err.lines().find(|it| it.starts_with("warning: "));
            assert!(
                warning.is_some_and(|it| it.contains(told)),
                "{command} {flags:?}: {}",
                said.err
            );
        }
        assert_eq!(run(address, "wait", flags).code, 3, "{flags:?}");
    }
    for flags in [["-k", "vm"], ["-c", "kubevirt"], ["-n", "shop"]] {
        let said = run(address, "list", &flags);
        assert_eq!(said.err, "No operations in flight that fit the filters.\n");
    }
}

/// An operation of a component and on a kind that no rule set has.
fn stray() -> Value {
    let mut stray = operation(1);
    stray["spec"]["component"] = json!("mine");
    stray["spec"]["operation"] = json!("Polishing");
    stray["spec"]["subject"]["kind"] = json!("Shoe");
    stray["spec"]["subject"]["apiVersion"] = json!("example.io/v1");
    stray
}

#[test]
fn values_of_listed_operations_are_known() {
    let (_runtime, address) = cluster(vec![stray()]);
    for flags in [
        &["-c", "mine"][..],
        &["-o", "Polishing"],
        &["-k", "shoes"],
        &["-k", "Shoe.example.io"],
    ] {
        let said = run(address, "list", flags);
        assert_eq!((said.code, &*said.err), (0, ""), "{flags:?}");
        assert_eq!(said.out.lines().count(), 2, "{flags:?}: {}", said.out);
    }
    // The value belongs to another operation.
    let other = run(address, "list", &["-c", "mine", "-o", "Migrating"]);
    assert_eq!(other.code, 0, "{}", other.err);
}

/// A user who may only list operations in `shop`.
fn tenant(operations: Vec<Value>) -> (tokio::runtime::Runtime, SocketAddr) {
    serve(move |request| match request.uri().path() {
        path if path.ends_with("/namespaces/shop/inflightoperations") => list(&operations, ""),
        "/api" => body(&group("", "Pod", "pods", "po")),
        "/apis" => body(&group(
            "kubevirt.io",
            "VirtualMachine",
            "virtualmachines",
            "vm",
        )),
        "/apis/live.ifo.kubevirt.io/v1alpha1" => body(&json!({
            "kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": "live.ifo.kubevirt.io/v1alpha1",
            "resources": [{"name": "inflightoperations", "kind": "InFlightOperation",
                           "singularName": "", "namespaced": true, "verbs": ["list"]}],
        })),
        _ => status(403, "Forbidden", "no: User \"jane\" cannot do it"),
    })
}

#[test]
fn unreadable_rule_sets_are_no_error() {
    let (_runtime, address) = tenant(Vec::new());
    for flags in [&["-n", "shop"][..], &["-n", "shop", "-k", "vm"]] {
        let said = run(address, "list", flags);
        assert_eq!(
            (said.code, &*said.err),
            (0, "No operations in flight that fit the filters.\n"),
            "{flags:?}"
        );
    }
    for (flag, value) in [("component", "kubvirt"), ("operation", "Migratin")] {
        let flags = ["-n", "shop", &*format!("--{flag}"), value];
        let said = run(address, "list", &flags);
        assert_eq!(said.code, 0, "{}", said.err);
        let note = format!(
            "note: cannot check --{flag} {value}: you may not list \
             operationrulesets.ifo.kubevirt.io\n"
        );
        assert!(said.err.starts_with(&note), "{}", said.err);
    }
    // All users may read discovery.
    let typo = run(address, "list", &["-n", "shop", "-k", "Typo"]);
    assert_eq!(typo.code, 2, "{}", typo.err);
    let (_runtime, address) = tenant(vec![operation(1)]);
    let known = run(address, "list", &["-n", "shop", "-c", "kubevirt"]);
    assert_eq!((known.code, &*known.err), (0, ""));
}

#[test]
fn all_commands_accept_the_same_names_of_a_kind() {
    let mut deployment = operation(1);
    deployment["spec"]["subject"]["kind"] = json!("Deployment");
    deployment["spec"]["subject"]["apiVersion"] = json!("apps/v1");
    let mut rules = watching();
    rules["spec"]["target"] = json!({"group": "apps", "version": "v1", "resource": "deployments"});
    // Like the demo, which lists namespaces and none of the kinds of its scenes.
    let demo = move |operations: Vec<Value>| {
        let rules = rules.clone();
        serve(move |request| match request.uri().path() {
            LIVE => list(&operations, ""),
            RULE_SETS => body(&json!({"items": [rules.clone()]})),
            "/api" => body(&group("", "Namespace", "namespaces", "ns")),
            "/apis" => body(&group(
                "ifo.kubevirt.io",
                "OperationRuleSet",
                "operationrulesets",
                "ors",
            )),
            _ => not_found(),
        })
    };
    let (_runtime, busy) = demo(vec![deployment]);
    let (_other, idle) = demo(Vec::new());
    for kind in [
        "deploy",
        "Deployment",
        "deployments",
        "deployment.apps",
        "Deployments.v1.apps",
    ] {
        for command in READING {
            let said = run(busy, command, &["-k", kind]);
            assert_eq!((said.code, &*said.err), (0, ""), "{command} {kind}");
            assert!(
                said.out.contains("Deployment"),
                "{command} {kind}: {}",
                said.out
            );
        }
        assert_eq!(run(busy, "wait", &["-k", kind]).code, 1, "{kind}");
        let quiet = run(idle, "wait", &["-k", kind]);
        assert_eq!(quiet.code, 0, "{kind}: {}", quiet.err);
        let resource = format!("{kind}/vm-1");
        let described = run(busy, "describe", &[&resource, "-o", "name"]);
        assert_eq!(described.code, 0, "{}", described.err);
        let tree = run(busy, "tree", &["--for", &resource, "-o", "name"]);
        assert_eq!(tree.out, described.out, "{}", tree.err);
    }
    for command in READING.into_iter().chain(["wait"]) {
        let typo = run(busy, command, &["-k", "deployy"]);
        assert_eq!(typo.code, 2, "{command}: {}", typo.err);
        assert!(typo.err.contains("did you mean"), "{}", typo.err);
    }
}

#[test]
fn all_namespaces_is_the_default_and_wins_over_namespace() {
    let (_runtime, address) = cluster(vec![operation(1)]);
    let all = run(address, "list", &["-o", "name"]).out;
    for flags in [
        &["--all-namespaces", "-o", "name"][..],
        &["--all-namespaces", "-n", "elsewhere", "-o", "name"],
        &["--all-namespaces=true", "-o", "name"],
        &["--all-namespaces=false", "-n", "shop", "-o", "name"],
    ] {
        let said = run(address, "list", flags);
        assert_eq!((said.code, &said.out), (0, &all), "{flags:?}: {}", said.err);
    }
    for command in ["get", "describe"] {
        let flags = ["vm-1-migrating", "--all-namespaces", "-A", "-o", "name"];
        let said = run(address, command, &flags);
        assert_eq!((said.code, &said.out), (0, &all), "{command}: {}", said.err);
    }
    for command in ["summary", "tree", "wait", "version"] {
        let said = run(address, command, &["--all-namespaces"]);
        assert_ne!(said.code, 2, "{command}: {}", said.err);
    }
}
