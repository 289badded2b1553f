//! Tests of kubectl's conventions, and of messages for the differences.

use super::cluster::{
    LIVE, RULE_SETS, body, cluster, group, list, not_found, operation, plugin, said, serve, status,
};
use super::rules;
use axum::body::{Body, Bytes};
use axum::response::IntoResponse as _;
use futures::{Stream, StreamExt as _};
use serde_json::{Value, json};
use std::io::BufRead as _;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

#[test]
fn the_oldest_operation_is_named_with_its_namespace() {
    let (_runtime, address) = cluster(vec![operation(1)]);
    let summary = said(plugin(address).arg("summary")).out;
    assert!(
        summary.contains("\nOldest: VirtualMachine/vm-1 in shop Migrating for "),
        "{summary}"
    );
}

#[test]
fn a_resource_in_another_namespace_is_reported_with_that_namespace() {
    let (_runtime, address) = cluster(vec![operation(1)]);
    let here = said(plugin(address).args(["get", "vm-1-migrating", "-n", "shop", "-o", "name"]));
    assert_eq!(here.code, 0, "{}", here.err);
    let there = said(plugin(address).args(["get", "vm-1-migrating", "-n", "other"]));
    assert_eq!((there.code, &*there.out), (1, ""));
    assert!(
        there
            .err
            .contains("its subject is VirtualMachine/vm-1 in shop"),
        "{}",
        there.err
    );
}

#[test]
fn an_unreadable_rule_set_is_reported_with_the_missing_right() {
    let (_runtime, address) = serve(|request| match request.uri().path() {
        LIVE => list(&[operation(1)], ""),
        path if path.starts_with(RULE_SETS) => {
            status(403, "Forbidden", "no: User \"jane\" cannot get it")
        }
        path if path.ends_with("/vm-1-migrating") => body(&operation(1)),
        _ => not_found(),
    });
    let said = said(plugin(address).args(["describe", "vm-1-migrating"]));
    assert_eq!(said.code, 0, "{}", said.err);
    for part in [
        "you may not get operationrulesets.ifo.kubevirt.io",
        "kubectl create clusterrole read-operationrulesets --verb=get,list,watch \
         --resource=operationrulesets.ifo.kubevirt.io && kubectl create clusterrolebinding \
         read-operationrulesets-jane --clusterrole=read-operationrulesets --user=jane",
    ] {
        assert!(said.out.contains(part), "{part}: {}", said.out);
    }
}

#[test]
fn found_resources_are_described_before_missing_ones_are_reported() {
    let (_runtime, address) = cluster(vec![operation(1)]);
    let found = "inflightoperation.live.ifo.kubevirt.io/vm-1-migrating\n";
    for (names, out, missing) in [
        (&["vm-1-migrating", "other"][..], found, 1),
        (&["other", "VirtualMachine/vm-1", "vm/none"], found, 2),
        (&["other"], "", 1),
    ] {
        let said = said(plugin(address).args(["describe", "-o", "name"]).args(names));
        assert_eq!((said.code, &*said.out), (1, out), "{names:?}: {}", said.err);
        assert_eq!(said.err.lines().count(), missing, "{}", said.err);
        assert!(
            said.err.contains("there is no operation \"other\""),
            "{}",
            said.err
        );
    }
    let some = said(plugin(address).args(["describe", "vm-1-migrating", "other"]));
    assert!(some.out.contains("vm-1-migrating"), "{}", some.out);
    let some = said(plugin(address).args(["describe", "vm-1-migrating", "other", "-o", "json"]));
    assert_eq!(some.json()["kind"], "List");
}

/// An operation whose subject has an owner.
fn owned(number: usize) -> Value {
    let mut operation = operation(number);
    operation["spec"]["subject"]["ownerReferences"] = json!([{
        "apiVersion": "example.io/v1", "kind": "Pool", "name": format!("pool-{number}"),
        "uid": format!("u-{number}"), "controller": true,
    }]);
    operation
}

#[test]
fn owners_of_the_described_resource_are_requested_first() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = asked.clone();
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        LIVE => list(&(0..300).map(owned).collect::<Vec<_>>(), ""),
        "/apis/example.io/v1" => body(&json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "example.io/v1",
            "resources": [{"name": "pools", "kind": "Pool", "singularName": "", "namespaced": true,
                           "verbs": ["get"]}],
        })),
        path => {
            if let Some((_, name)) = path.split_once("/pools/") {
                let mut asked = log.lock().unwrap_or_else(PoisonError::into_inner);
                asked.push(name.to_owned());
            }
            not_found()
        }
    });
    let told = said(plugin(address).args(["describe", "vm-299-migrating"]));
    assert_eq!(told.code, 0, "{}", told.err);
    let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(asked.first().map(String::as_str), Some("pool-299"));
    assert_eq!(asked.len(), 200);
}

#[test]
fn owners_and_filters_share_one_discovery() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = asked.clone();
    let (_runtime, address) = serve(move |request| {
        let path = request.uri().path();
        let mut asked = log.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push(path.to_owned());
        match path {
            LIVE => list(&[owned(1)], ""),
            "/api" => body(&group("", "Pod", "pods", "po")),
            "/apis" => body(&group("example.io", "Pool", "pools", "pl")),
            _ => not_found(),
        }
    });
    let told = said(plugin(address).args(["tree", "-k", "VirtualMachine"]));
    assert_eq!(told.code, 0, "{}", told.err);
    let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
    let times = |path: &str| asked.iter().filter(|it| *it == path).count();
    assert_eq!((times("/api"), times("/apis")), (1, 1), "{asked:?}");
    assert_eq!(times("/apis/example.io/v1"), 0, "{asked:?}");
    let owner = "/apis/example.io/v1/namespaces/shop/pools/pool-1";
    assert_eq!(times(owner), 1, "{asked:?}");
}

#[test]
fn file_arguments_precede_flags_with_several_values() {
    for (command, usage) in [
        ("test", "rules test [OPTIONS] <RULES>... --objects"),
        ("replay", "rules replay [OPTIONS] <RULES>... --stream"),
        ("check", "rules check [OPTIONS] <FILE|DIR>... [--schema"),
    ] {
        let help = rules(&[command, "--help"]).out;
        assert!(
            help.contains(&format!("Usage: kubectl ifo {usage}")),
            "{help}"
        );
    }
}

#[test]
fn flags_without_effect_are_rejected() {
    let (_runtime, address) = cluster(vec![operation(1)]);
    for args in [
        &["summary", "-o", "name"][..],
        &["describe", "vm-1-migrating", "--watch"],
        &["summary", "-O", "name"],
    ] {
        let said = said(plugin(address).args(args));
        assert_eq!((said.code, &*said.out), (2, ""), "{args:?}: {}", said.err);
    }
}

/// kubectl's flag `--cluster` has another name there.
#[test]
fn rules_are_validated_against_the_cluster_of_the_flags() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = asked.clone();
    let (_runtime, address) = serve(move |request| {
        let user = request.headers().get("impersonate-user");
        let line = format!("{} {:?}", request.uri().path(), user.map(|it| it.to_str()));
        log.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(line);
        body(&json!({"paths": {}}))
    });
    let server = format!("http://{address}");
    let check = ["check", "rules", "--cluster", "--server", &server];
    let checked = rules(&[&check[..], &["--as", "jane"]].concat());
    assert!(checked.err.contains("no schema of"), "{}", checked.err);
    let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(
        asked.contains(&"/openapi/v3 Some(Ok(\"jane\"))".to_owned()),
        "{asked:?}"
    );
    let unknown = rules(&["check", "rules", "--cluster", "--kubeconfig-cluster", "x"]);
    assert_ne!(unknown.code, 0);
    assert!(unknown.err.contains("the cluster: "), "{}", unknown.err);
}

#[test]
fn plain_http_requests_carry_no_credentials() {
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = told.clone();
    let (_runtime, address) = serve(move |request| {
        let secrets = request.headers().get_all("authorization").iter();
        log.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(secrets.map(|it| format!("{it:?}")));
        list(&[operation(1)], "")
    });
    let (address, whole) = (address.to_string(), format!("http://{address}"));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config");
    let kubeconfig = format!(
        "{{apiVersion: v1, kind: Config, current-context: a,
           clusters: [{{name: a, cluster: {{server: '{address}'}}}}],
           users: [{{name: a, user: {{token: t0ken}}}}],
           contexts: [{{name: a, context: {{cluster: a, user: a}}}}]}}"
    );
    std::fs::write(&file, kubeconfig).expect("a file");
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
        said(command.env("KUBECONFIG", &file).args(args))
    };
    for args in [
        &[][..],
        &["-s", &address],
        &["-s", &address, "--token", "x"],
        &["-s", &whole],
    ] {
        let said = run(args);
        assert_eq!(said.code, 0, "{args:?}: {}", said.err);
        assert!(said.out.contains("VirtualMachine/vm-1"), "{}", said.out);
    }
    assert_eq!(*told.lock().expect("no test panicked"), [""; 0]);
    let none = run(&["--server=http://"]);
    assert_eq!(none.code, 1);
    assert!(
        none.err
            .starts_with("error: \"http://\" is no address of a cluster"),
        "{}",
        none.err
    );
}

/// On systems with the device `/dev/full`.
#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_an_error() {
    let (_runtime, address) = cluster(vec![operation(1)]);
    for (args, code) in [
        (&["-O", "json"][..], 1),
        (&["tree"], 1),
        (&["summary"], 1),
        (&["version", "--client"], 1),
        (
            &[
                "rules",
                "eval",
                "1",
                "--object",
                concat!(
                    env!("CARGO_MANIFEST_DIR"),
                    "/../../deploy/kustomization.yaml"
                ),
            ],
            1,
        ),
        (&["completion", "bash"], 1),
        (&["wait", "--for=started", "--timeout=3m"], 2),
    ] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
        if args[0] != "rules" && args[0] != "completion" {
            command = plugin(address);
        }
        let full = std::fs::File::options().write(true).open("/dev/full");
        let output = command
            .args(args)
            .stdout(full.expect("it is there"))
            .stderr(Stdio::piped())
            .spawn()
            .and_then(std::process::Child::wait_with_output)
            .expect("the plugin starts");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {err}");
        assert!(
            err.contains("error: cannot write to standard output: No space left"),
            "{args:?}: {err}"
        );
    }
}

#[test]
fn a_watch_ends_when_its_pipe_is_closed() {
    for command in ["list", "tree"] {
        let (_runtime, address) = serve(|request| match request.uri().path() {
            LIVE if request.uri().query().unwrap_or_default().contains("watch=") => {
                // One change after the other, so that a tree is drawn for each.
                let events = futures::stream::unfold(2, |number| async move {
                    tokio::time::sleep(std::time::Duration::from_millis(150)).await;
                    let mut operation = operation(number);
                    operation["metadata"]["resourceVersion"] = json!(format!("{}", 7 + number));
                    let event = json!({"type": "ADDED", "object": operation});
                    let line = Ok::<_, std::io::Error>(Bytes::from(format!("{event}\n")));
                    Some((line, number + 1))
                });
                Body::from_stream(events).into_response()
            }
            LIVE => list(&[operation(1)], ""),
            _ => not_found(),
        });
        let mut child = plugin(address)
            .args([command, "-w"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the plugin starts");
        let stdout = child.stdout.take().expect("it was asked for");
        let mut line = String::new();
        let read = std::io::BufReader::new(stdout).read_line(&mut line);
        assert!(read.is_ok_and(|it| it > 0), "{command}");
        // And the reader is dropped.
        let output = child.wait_with_output().expect("it ends");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*err), (Some(141), ""), "{command}");
    }
}

#[test]
fn control_characters_in_objects_do_not_reach_the_terminal() {
    let mut evil = operation(1);
    for field in ["operation", "component", "ruleSet"] {
        evil["spec"][field] = json!("e\u{1b}[31mvil\u{7}");
    }
    evil["spec"]["subject"]["kind"] = json!("K\u{1b}]0;title\u{7}");
    evil["status"]["state"] = json!("S\u{9b}2J");
    let (_runtime, address) = cluster(vec![evil]);
    for args in [&["summary"][..], &["list", "-O", "wide"], &["tree"]] {
        let said = said(plugin(address).args(args));
        let commands = |it: char| it.is_control() && it != '\n';
        assert!(said.out.contains("[31mvil"), "{args:?}: {:?}", said.out);
        assert!(!said.out.contains(commands), "{args:?}: {:?}", said.out);
    }
}

#[test]
fn an_empty_flag_value_counts_as_absent() {
    let (_runtime, address) = cluster(vec![operation(1)]);
    let empty = [
        "-n",
        "",
        "--context",
        "",
        "--cluster=",
        "--user=",
        "--as=",
        "--token=",
    ];
    for command in ["list", "tree", "summary"] {
        let said = said(plugin(address).arg(command).args(empty));
        assert_eq!(said.code, 0, "{command}: {}", said.err);
        assert!(said.out.contains("vm-1"), "{command}: {}", said.out);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config");
    let kubeconfig = format!(
        "{{apiVersion: v1, kind: Config, current-context: a,
           clusters: [{{name: a, cluster: {{server: 'http://{address}'}}}}],
           contexts: [{{name: a, context: {{cluster: a}}}}]}}"
    );
    std::fs::write(&file, kubeconfig).expect("a file");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    let named = said(command.env("KUBECONFIG", &file).args(["-s", "", "-oname"]));
    assert_eq!(named.code, 0, "{}", named.err);
    assert!(named.out.contains("vm-1"), "{}", named.out);
    for args in [
        &["list", "-n", "team-b/"][..],
        &["list", "-n", "Team"],
        &["wait", "-n", ""],
    ] {
        let said = said(plugin(address).args(args));
        assert_eq!((said.code, &*said.out), (2, ""), "{args:?}: {}", said.err);
        assert!(said.err.contains("lower-case letters"), "{}", said.err);
    }
}

#[test]
fn a_missing_login_command_is_reported_with_its_install_hint() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config");
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "a", "user": {"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-login",
            "installHint": "Get it with:\n\n  brew install login", "interactiveMode": "Never",
        }}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    });
    std::fs::write(&file, kubeconfig.to_string()).expect("a file");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    let said = said(command.env("KUBECONFIG", &file));
    assert_eq!(
        (said.code, said.err.lines().count()),
        (1, 1),
        "{}",
        said.err
    );
    let named =
        "the user's credentials come from \"no-such-login\", which cannot be run: No such file";
    assert!(said.err.contains(named), "{}", said.err);
    let hint = "(Get it with: brew install login)";
    assert!(said.err.contains(hint), "{}", said.err);
}

#[test]
fn user_extras_are_impersonated_and_verbosity_is_accepted() {
    let (_runtime, address) = serve(|request| {
        let extras = request.headers().get_all("impersonate-extra-scopes").iter();
        let extras: Vec<_> = extras.map(|it| it.to_str().unwrap_or_default()).collect();
        match (request.uri().path(), extras.as_slice()) {
            (LIVE, ["view", "a=b"]) => list(&[operation(1)], ""),
            _ => not_found(),
        }
    });
    let mut command = plugin(address);
    let extras = [
        "--as-user-extra=scopes=view",
        "--as-user-extra",
        "scopes=a=b",
    ];
    let told = said(
        command
            .args(["--as", "jane", "-v", "6", "--v=8", "-v=6"])
            .args(extras),
    );
    assert_eq!(told.code, 0, "{}", told.err);
    assert!(told.out.contains("vm-1"), "{}", told.out);
    let bad = said(plugin(address).arg("--as-user-extra=scopes"));
    assert_eq!(bad.code, 2, "{}", bad.err);
}

/// The lines of a watch, which then stays open.
fn lines(events: &[Value]) -> impl Stream<Item = Result<Bytes, std::io::Error>> + use<> {
    let lines: Vec<_> = events
        .iter()
        .map(|event| Ok(Bytes::from(format!("{event}\n"))))
        .collect();
    futures::stream::iter(lines).chain(futures::stream::pending())
}

#[test]
fn a_watched_tree_in_a_pipe_is_printed_again_only_if_it_changes() {
    let changed = |version: &str, number: usize, generation: u64| {
        let mut operation = operation(number);
        operation["metadata"]["resourceVersion"] = json!(version);
        operation["status"]["subjectGeneration"] = json!(generation);
        json!({"type": "MODIFIED", "object": operation})
    };
    let events = [changed("8", 1, 2), changed("9", 1, 3), changed("10", 2, 1)];
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        LIVE if request.uri().query().unwrap_or_default().contains("watch=") => {
            Body::from_stream(lines(&events)).into_response()
        }
        LIVE => list(&[operation(1)], ""),
        _ => not_found(),
    });
    let mut child = plugin(address)
        .args(["tree", "-w"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the plugin starts");
    let stdout = child.stdout.take().expect("it was asked for");
    let mut printed: Vec<String> = Vec::new();
    for line in std::io::BufReader::new(stdout).lines() {
        printed.push(line.expect("text"));
        if printed.last().is_some_and(|it| it.contains("vm-2")) {
            break;
        }
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let of = |name: &str| printed.iter().filter(|it| it.contains(name)).count();
    assert_eq!((of("vm-1"), of("vm-2")), (2, 1), "{printed:#?}");
}
