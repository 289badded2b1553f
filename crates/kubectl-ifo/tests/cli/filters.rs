//! Tests of filter values that match no operation. Without an error or a warning, a misspelled
//! value would look like a cluster without operations.

use super::CommandOutput;
use super::tests_with_fake_apiserver::{
    LIVE, RULE_SETS, execute, group_discovery, json_response, list_response, not_found, operation,
    plugin, serve, serve_cluster, status_response, watched_rule_set,
};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// The commands that list operations.
const LIST_COMMANDS: [&str; 3] = ["list", "summary", "tree"];

/// Runs a command of the plugin with the server at `address`. `wait` checks only once.
fn run(address: SocketAddr, command: &str, flags: &[&str]) -> CommandOutput {
    let mut plugin = plugin(address);
    plugin.arg(command);
    if command == "wait" {
        plugin.args(["--timeout", "0"]);
    }
    execute(plugin.args(flags))
}

#[test]
fn an_unknown_filter_value_is_an_error_with_a_suggestion() {
    let (_runtime, address) = serve_cluster(Vec::new());
    for (flags, expected) in [
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
        (["-o", "Migratin"], "; did you mean \"Migrating\"?"),
        (
            ["-n", "shpo"],
            "no namespace \"shpo\"; did you mean \"shop\"?",
        ),
        (["-n", "elsewhere"], "; see: kubectl get namespaces"),
    ] {
        for command in LIST_COMMANDS.into_iter().chain(["wait"]) {
            let output = run(address, command, &flags);
            assert_eq!(
                (output.code, &*output.stdout),
                (2, ""),
                "{command} {flags:?}: {}",
                output.stderr
            );
            assert!(
                output.stderr.contains(expected),
                "{command} {flags:?}: {}",
                output.stderr
            );
        }
    }
    let get = run(address, "get", &["none", "-c", "kubvirt"]);
    get.exits(2);
    let describe = run(address, "describe", &["none", "-n", "shpo"]);
    describe.exits(2);
}

#[test]
fn a_filter_value_without_a_match_is_an_error_even_if_other_values_match() {
    let (_runtime, address) = serve_cluster(vec![operation(1)]);
    for flags in [
        &["-c", "kubevirt,kubvirt"][..],
        &["-k", "vm", "-k", "vn"],
        &["-o", "Migrating,Migratin"],
    ] {
        for command in LIST_COMMANDS.into_iter().chain(["wait"]) {
            let output = run(address, command, flags);
            assert_eq!(output.code, 2, "{command} {flags:?}: {}", output.stderr);
        }
    }
}

#[test]
fn a_misspelled_format_is_distinguished_from_a_misspelled_operation() {
    let mut naming = watched_rule_set();
    naming["spec"]["rules"] = json!([{"operation": "Naming"}]);
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        LIVE => list_response(&[], ""),
        RULE_SETS => json_response(&json!({"items": [naming.clone()]})),
        _ => not_found(),
    });
    for (value, expected) in [
        ("yamll", "did you mean \"yaml\"?"),
        ("Namingg", "did you mean \"Naming\"?"),
    ] {
        for command in LIST_COMMANDS {
            let output = run(address, command, &["-o", value]);
            assert_eq!(
                (output.code, &*output.stdout),
                (2, ""),
                "{command}: {}",
                output.stderr
            );
            assert!(
                output.stderr.contains(expected),
                "{command} {value}: {}",
                output.stderr
            );
        }
    }
    // `wait` has no output formats, so its message does not suggest one.
    let wait = run(address, "wait", &["-o", "yamll"]);
    wait.exits(2);
    assert!(!wait.stderr.contains("format"), "{}", wait.stderr);
}

#[test]
fn a_known_value_that_no_rule_set_detects_is_a_warning() {
    let (_runtime, address) = serve_cluster(Vec::new());
    for (flags, expected) in [
        (&["-k", "Pod"][..], "check --kind Pod"),
        (&["-c", "kubevirt", "-k", "po"], "check --kind po"),
        (&["-l", "taem=a"], "label \"taem\": check --selector"),
    ] {
        for command in LIST_COMMANDS {
            let output = run(address, command, flags);
            assert_eq!(output.code, 0, "{command} {flags:?}: {}", output.stderr);
            let warning = output.stderr.lines().find(|it| it.starts_with("warning: "));
            assert!(
                warning.is_some_and(|it| it.contains(expected)),
                "{command} {flags:?}: {}",
                output.stderr
            );
        }
        assert_eq!(run(address, "wait", flags).code, 3, "{flags:?}");
    }
    for flags in [["-k", "vm"], ["-c", "kubevirt"], ["-n", "shop"]] {
        let output = run(address, "list", &flags);
        assert_eq!(
            output.stderr,
            "No operations in flight that fit the filters.\n"
        );
    }
}

#[test]
fn each_value_that_no_rule_set_detects_has_a_warning() {
    let (_runtime, address) = serve_cluster(Vec::new());
    for command in LIST_COMMANDS {
        let output = run(address, command, &["-k", "Pod,VirtualMachine,po"]);
        let warnings: Vec<&str> = output
            .stderr
            .lines()
            .filter(|it| it.starts_with("warning: "))
            .collect();
        assert!(
            warnings.len() == 2
                && warnings[0].contains("check --kind Pod")
                && warnings[1].contains("check --kind po"),
            "{command}: {}",
            output.stderr
        );
    }
}

#[test]
fn a_kind_that_may_not_exist_is_noted_even_if_a_rule_set_has_this_target() {
    let mut unserved = watched_rule_set();
    unserved["status"]["conditions"] = json!([{
        "type": "InvalidTarget", "status": "True", "reason": "NotServed", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    // The server has no discovery, so it is unknown whether the kind exists.
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        LIVE => list_response(&[], ""),
        RULE_SETS => json_response(&json!({"items": [unserved.clone()]})),
        _ => not_found(),
    });
    for command in LIST_COMMANDS {
        let output = run(address, command, &["-k", "VirtualMachine"]);
        assert!(
            output.stderr.starts_with(
                "note: cannot check --kind VirtualMachine: the cluster does not list all kinds\n"
            ),
            "{command}: {}",
            output.stderr
        );
    }
}

/// Returns an operation whose component, name and kind are in no rule set.
fn unknown_operation() -> Value {
    let mut unknown = operation(1);
    unknown["spec"]["component"] = json!("mine");
    unknown["spec"]["operation"] = json!("Polishing");
    unknown["spec"]["subject"]["kind"] = json!("Shoe");
    unknown["spec"]["subject"]["apiVersion"] = json!("example.io/v1");
    unknown
}

#[test]
fn values_of_listed_operations_are_accepted_as_filters() {
    let (_runtime, address) = serve_cluster(vec![unknown_operation()]);
    for flags in [
        &["-c", "mine"][..],
        &["-o", "Polishing"],
        &["-k", "shoes"],
        &["-k", "Shoe.example.io"],
    ] {
        let output = run(address, "list", flags);
        assert_eq!((output.code, &*output.stderr), (0, ""), "{flags:?}");
        assert_eq!(
            output.stdout.lines().count(),
            2,
            "{flags:?}: {}",
            output.stdout
        );
    }
    // Both values are known, so there is no error, although no operation has both.
    let other = run(address, "list", &["-c", "mine", "-o", "Migrating"]);
    other.exits(0);
}

#[test]
fn wait_accepts_components_and_operations_in_any_case() {
    let (_runtime, address) = serve_cluster(Vec::new());
    for flags in [["-c", "KubeVirt"], ["-o", "migrating"]] {
        let output = run(address, "wait", &flags);
        assert_eq!((output.code, &*output.stderr), (0, ""), "{flags:?}");
    }
}

/// Starts a server whose user has two rights: to list operations in the namespace `shop`, and to
/// read discovery.
fn serve_tenant(operations: Vec<Value>) -> (tokio::runtime::Runtime, SocketAddr) {
    serve(move |request| match request.uri().path() {
        path if path.ends_with("/namespaces/shop/inflightoperations") => {
            list_response(&operations, "")
        }
        "/api" => json_response(&group_discovery("", "Pod", "pods", "po")),
        "/apis" => json_response(&group_discovery(
            "kubevirt.io",
            "VirtualMachine",
            "virtualmachines",
            "vm",
        )),
        "/apis/live.ifo.kubevirt.io/v1alpha1" => json_response(&json!({
            "kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": "live.ifo.kubevirt.io/v1alpha1",
            "resources": [{"name": "inflightoperations", "kind": "InFlightOperation",
                           "singularName": "", "namespaced": true, "verbs": ["list"]}],
        })),
        _ => status_response(403, "Forbidden", "no: User \"jane\" cannot do it"),
    })
}

#[test]
fn rule_sets_that_the_user_may_not_read_are_not_an_error() {
    let (_runtime, address) = serve_tenant(Vec::new());
    for flags in [&["-n", "shop"][..], &["-n", "shop", "-k", "vm"]] {
        let output = run(address, "list", flags);
        assert_eq!(
            (output.code, &*output.stderr),
            (0, "No operations in flight that fit the filters.\n"),
            "{flags:?}"
        );
    }
    for (flag, value) in [("component", "kubvirt"), ("operation", "Migratin")] {
        let flags = ["-n", "shop", &*format!("--{flag}"), value];
        let output = run(address, "list", &flags);
        output.exits(0);
        let note = format!(
            "note: cannot check --{flag} {value}: you may not list \
             operationrulesets.ifo.kubevirt.io\n"
        );
        output.says_first(&note);
    }
    // Kinds are checked, because the user may read discovery.
    let typo = run(address, "list", &["-n", "shop", "-k", "Typo"]);
    typo.exits(2);
    let (_runtime, address) = serve_tenant(vec![operation(1)]);
    let known = run(address, "list", &["-n", "shop", "-c", "kubevirt"]);
    assert_eq!((known.code, &*known.stderr), (0, ""));
}

#[test]
fn a_list_that_is_not_found_is_the_reason_why_a_value_cannot_be_checked() {
    let (_runtime, address) = serve(|request| {
        let query = request.uri().query().unwrap_or_default();
        match request.uri().path() {
            // The list for the check has no field selector, because it has operations in any phase.
            LIVE if query.contains("fieldSelector") => list_response(&[], ""),
            RULE_SETS => json_response(&json!({"items": [watched_rule_set()]})),
            _ => status_response(404, "NotFound", "the resource is not served"),
        }
    });
    let output = run(address, "list", &["-c", "kubvirt"]);
    output.exits(0);
    let note = "note: cannot check --component kubvirt: the resource is not served\n";
    output.says(note);
}

#[test]
fn all_commands_accept_the_same_names_of_a_kind() {
    let mut deployment = operation(1);
    deployment["spec"]["subject"]["kind"] = json!("Deployment");
    deployment["spec"]["subject"]["apiVersion"] = json!("apps/v1");
    let mut rules = watched_rule_set();
    rules["spec"]["target"] = json!({"group": "apps", "version": "v1", "resource": "deployments"});
    // Like the demo server, this server has operations on a kind that its discovery does not
    // contain.
    let serve_demo = move |operations: Vec<Value>| {
        let rules = rules.clone();
        serve(move |request| match request.uri().path() {
            LIVE => list_response(&operations, ""),
            RULE_SETS => json_response(&json!({"items": [rules.clone()]})),
            "/api" => json_response(&group_discovery("", "Namespace", "namespaces", "ns")),
            "/apis" => json_response(&group_discovery(
                "ifo.kubevirt.io",
                "OperationRuleSet",
                "operationrulesets",
                "ors",
            )),
            _ => not_found(),
        })
    };
    let (_runtime, busy) = serve_demo(vec![deployment]);
    let (_other, idle) = serve_demo(Vec::new());
    for kind in [
        "deploy",
        "Deployment",
        "deployments",
        "deployment.apps",
        "Deployments.v1.apps",
    ] {
        for command in LIST_COMMANDS {
            let output = run(busy, command, &["-k", kind]);
            assert_eq!((output.code, &*output.stderr), (0, ""), "{command} {kind}");
            assert!(
                output.stdout.contains("Deployment"),
                "{command} {kind}: {}",
                output.stdout
            );
        }
        assert_eq!(run(busy, "wait", &["-k", kind]).code, 1, "{kind}");
        let quiet = run(idle, "wait", &["-k", kind]);
        assert_eq!(quiet.code, 0, "{kind}: {}", quiet.stderr);
        let resource = format!("{kind}/vm-1");
        let described = run(busy, "describe", &[&resource, "-o", "name"]);
        described.exits(0);
        let tree = run(busy, "tree", &["--for", &resource, "-o", "name"]);
        assert_eq!(tree.stdout, described.stdout, "{}", tree.stderr);
    }
    for command in LIST_COMMANDS.into_iter().chain(["wait"]) {
        let typo = run(busy, command, &["-k", "deployy"]);
        assert_eq!(typo.code, 2, "{command}: {}", typo.stderr);
        typo.says("did you mean");
    }
}

#[test]
fn all_namespaces_is_the_default_and_wins_over_namespace() {
    let (_runtime, address) = serve_cluster(vec![operation(1)]);
    let all = run(address, "list", &["-o", "name"]).stdout;
    for flags in [
        &["--all-namespaces", "-o", "name"][..],
        &["--all-namespaces", "-n", "elsewhere", "-o", "name"],
        &["--all-namespaces=true", "-o", "name"],
        &["--all-namespaces=false", "-n", "shop", "-o", "name"],
    ] {
        let output = run(address, "list", flags);
        assert_eq!(
            (output.code, &output.stdout),
            (0, &all),
            "{flags:?}: {}",
            output.stderr
        );
    }
    for command in ["get", "describe"] {
        let flags = ["vm-1-migrating", "--all-namespaces", "-A", "-o", "name"];
        let output = run(address, command, &flags);
        assert_eq!(
            (output.code, &output.stdout),
            (0, &all),
            "{command}: {}",
            output.stderr
        );
    }
    for command in ["summary", "tree", "wait", "version"] {
        let output = run(address, command, &["--all-namespaces"]);
        assert_ne!(output.code, 2, "{command}: {}", output.stderr);
    }
}
