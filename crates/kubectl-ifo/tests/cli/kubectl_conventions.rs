//! Tests that the plugin follows kubectl's conventions, and that error messages explain the
//! differences. The conventions are about names, namespaces, flags, credentials, pipes, and text
//! for terminals.

use super::run_rules;
use super::tests_with_fake_apiserver::{
    LIVE, RULE_SETS, execute, group_discovery, json_response, list_response, not_found, operation,
    plugin, serve, serve_cluster, status_response,
};
use axum::body::{Body, Bytes};
use axum::response::IntoResponse as _;
use futures::{Stream, StreamExt as _};
use serde_json::{Value, json};
use std::io::BufRead as _;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

#[test]
fn the_oldest_operation_is_named_with_its_namespace() {
    let (_runtime, address) = serve_cluster(vec![operation(1)]);
    let summary = execute(plugin(address).arg("summary")).stdout;
    assert!(
        summary.contains("\nOldest: VirtualMachine/vm-1 in shop Migrating for "),
        "{summary}"
    );
}

#[test]
fn a_resource_in_another_namespace_is_reported_with_that_namespace() {
    let (_runtime, address) = serve_cluster(vec![operation(1)]);
    let here = execute(plugin(address).args(["get", "vm-1-migrating", "-n", "shop", "-o", "name"]));
    here.exits(0);
    let there = execute(plugin(address).args(["get", "vm-1-migrating", "-n", "other"]));
    assert_eq!((there.code, &*there.stdout), (1, ""));
    there.says("its subject is VirtualMachine/vm-1 in shop");
}

#[test]
fn an_unreadable_rule_set_is_reported_with_the_missing_right() {
    let (_runtime, address) = serve(|request| match request.uri().path() {
        LIVE => list_response(&[operation(1)], ""),
        path if path.starts_with(RULE_SETS) => {
            status_response(403, "Forbidden", "no: User \"jane\" cannot get it")
        }
        path if path.ends_with("/vm-1-migrating") => json_response(&operation(1)),
        _ => not_found(),
    });
    let output = execute(plugin(address).args(["describe", "vm-1-migrating"]));
    output.exits(0);
    for part in [
        "you may not get operationrulesets.ifo.kubevirt.io",
        "verbs get, list and watch of operationrulesets.ifo.kubevirt.io to \"jane\"",
    ] {
        assert!(output.stdout.contains(part), "{part}: {}", output.stdout);
    }
}

#[test]
fn found_resources_are_described_before_missing_ones_are_reported() {
    let (_runtime, address) = serve_cluster(vec![operation(1)]);
    let found = "inflightoperation.live.ifo.kubevirt.io/vm-1-migrating\n";
    for (names, out, missing) in [
        (&["vm-1-migrating", "other"][..], found, 1),
        (&["other", "VirtualMachine/vm-1", "vm/none"], found, 2),
        (&["other"], "", 1),
    ] {
        let output = execute(plugin(address).args(["describe", "-o", "name"]).args(names));
        assert_eq!(
            (output.code, &*output.stdout),
            (1, out),
            "{names:?}: {}",
            output.stderr
        );
        assert_eq!(output.stderr.lines().count(), missing, "{}", output.stderr);
        output.says("there is no operation \"other\"");
    }
    let some = execute(plugin(address).args(["describe", "vm-1-migrating", "other"]));
    some.prints("vm-1-migrating");
    let some = execute(plugin(address).args(["describe", "vm-1-migrating", "other", "-o", "json"]));
    assert_eq!(some.json()["kind"], "List");
}

/// Returns an operation whose subject has an owner.
fn owned(number: usize) -> Value {
    let mut operation = operation(number);
    operation["spec"]["subject"]["ownerReferences"] = json!([{
        "apiVersion": "example.io/v1", "kind": "Pool", "name": format!("pool-{number}"),
        "uid": format!("u-{number}"), "controller": true,
    }]);
    operation
}

#[test]
fn owners_and_filters_share_one_discovery() {
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = requests.clone();
    let (_runtime, address) = serve(move |request| {
        let path = request.uri().path();
        let mut requests = log.lock().unwrap_or_else(PoisonError::into_inner);
        requests.push(path.to_owned());
        match path {
            LIVE => list_response(&[owned(1)], ""),
            "/api" => json_response(&group_discovery("", "Pod", "pods", "po")),
            "/apis" => json_response(&group_discovery("example.io", "Pool", "pools", "pl")),
            _ => not_found(),
        }
    });
    let output = execute(plugin(address).args(["tree", "-k", "VirtualMachine"]));
    output.exits(0);
    let requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
    let times = |path: &str| requests.iter().filter(|it| *it == path).count();
    assert_eq!((times("/api"), times("/apis")), (1, 1), "{requests:?}");
    assert_eq!(times("/apis/example.io/v1"), 0, "{requests:?}");
    let owner = "/apis/example.io/v1/namespaces/shop/pools/pool-1";
    assert_eq!(times(owner), 1, "{requests:?}");
}

#[test]
fn file_arguments_precede_flags_with_several_values() {
    for (command, usage) in [
        ("test", "rules test [OPTIONS] <RULES>... --objects"),
        ("replay", "rules replay [OPTIONS] <RULES>... --stream"),
        ("check", "rules check [OPTIONS] <FILE|DIR>... [--schema"),
    ] {
        let help = run_rules(&[command, "--help"]).stdout;
        assert!(
            help.contains(&format!("Usage: kubectl ifo {usage}")),
            "{help}"
        );
    }
}

#[test]
fn flags_without_effect_are_rejected() {
    let (_runtime, address) = serve_cluster(vec![operation(1)]);
    for args in [
        &["summary", "-o", "name"][..],
        &["describe", "vm-1-migrating", "--watch"],
        &["summary", "-O", "name"],
    ] {
        let output = execute(plugin(address).args(args));
        assert_eq!(
            (output.code, &*output.stdout),
            (2, ""),
            "{args:?}: {}",
            output.stderr
        );
    }
}

/// In `rules check`, `--cluster` means to validate against a cluster. kubectl's flag `--cluster` is
/// named `--kubeconfig-cluster` there.
#[test]
fn rules_are_validated_against_the_cluster_of_the_flags() {
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = requests.clone();
    let (_runtime, address) = serve(move |request| {
        let user = request.headers().get("impersonate-user");
        let line = format!("{} {:?}", request.uri().path(), user.map(|it| it.to_str()));
        log.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(line);
        json_response(&json!({"paths": {}}))
    });
    let server = format!("http://{address}");
    let check = ["check", "rules", "--cluster", "--server", &server];
    let checked = run_rules(&[&check[..], &["--as", "jane"]].concat());
    checked.says("does not serve example.io/v1");
    let requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(
        requests.contains(&"/openapi/v3 Some(Ok(\"jane\"))".to_owned()),
        "{requests:?}"
    );
    let unknown = run_rules(&["check", "rules", "--cluster", "--kubeconfig-cluster", "x"]);
    assert_ne!(unknown.code, 0);
    unknown.says("the cluster: ");
}

/// Only Linux has the device `/dev/full`, to which every write fails.
#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_an_error() {
    let (_runtime, address) = serve_cluster(vec![operation(1)]);
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
            .stdout(full.expect("Linux has this device"))
            .stderr(Stdio::piped())
            .spawn()
            .and_then(std::process::Child::wait_with_output)
            .expect("the plugin can be started");
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
                // There is a pause between two events, so that the tree is printed for each event.
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
            LIVE => list_response(&[operation(1)], ""),
            _ => not_found(),
        });
        let mut child = plugin(address)
            .args([command, "-w"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the plugin can be started");
        let stdout = child.stdout.take().expect("the stream is piped");
        let mut line = String::new();
        let read = std::io::BufReader::new(stdout).read_line(&mut line);
        assert!(read.is_ok_and(|it| it > 0), "{command}");
        // The reader has been dropped, which closes the read end of the pipe. So the plugin exits
        // with 128 + SIGPIPE (13).
        let output = child
            .wait_with_output()
            .expect("the plugin can be waited for");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*err), (Some(141), ""), "{command}");
    }
}

#[test]
fn a_flag_with_an_empty_value_is_ignored() {
    let (_runtime, address) = serve_cluster(vec![operation(1)]);
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
        let output = execute(plugin(address).arg(command).args(empty));
        assert_eq!(output.code, 0, "{command}: {}", output.stderr);
        assert!(
            output.stdout.contains("vm-1"),
            "{command}: {}",
            output.stdout
        );
    }
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    let file = folder.path().join("config");
    let kubeconfig = format!(
        "{{apiVersion: v1, kind: Config, current-context: a,
           clusters: [{{name: a, cluster: {{server: 'http://{address}'}}}}],
           contexts: [{{name: a, context: {{cluster: a}}}}]}}"
    );
    std::fs::write(&file, kubeconfig).expect("the file can be written");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    let named = execute(command.env("KUBECONFIG", &file).args(["-s", "", "-oname"]));
    named.exits(0);
    named.prints("vm-1");
    for args in [
        &["list", "-n", "team-b/"][..],
        &["list", "-n", "Team"],
        &["wait", "-n", ""],
    ] {
        let output = execute(plugin(address).args(args));
        assert_eq!(
            (output.code, &*output.stdout),
            (2, ""),
            "{args:?}: {}",
            output.stderr
        );
        output.says("lower-case letters");
    }
}

#[test]
fn a_missing_login_command_is_reported_with_its_install_hint() {
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
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
    std::fs::write(&file, kubeconfig.to_string()).expect("the file can be written");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    let output = execute(command.env("KUBECONFIG", &file));
    assert_eq!(
        (output.code, output.stderr.lines().count()),
        (1, 1),
        "{}",
        output.stderr
    );
    let named =
        "the user's credentials come from \"no-such-login\", which cannot be run: No such file";
    output.says(named);
    let hint = "(Get it with: brew install login)";
    output.says(hint);
}

#[test]
fn extra_fields_of_a_user_are_impersonated_and_verbosity_flags_are_accepted() {
    let (_runtime, address) = serve(|request| {
        let extras = request.headers().get_all("impersonate-extra-scopes").iter();
        let extras: Vec<_> = extras.map(|it| it.to_str().unwrap_or_default()).collect();
        match (request.uri().path(), extras.as_slice()) {
            (LIVE, ["view", "a=b"]) => list_response(&[operation(1)], ""),
            _ => not_found(),
        }
    });
    let mut command = plugin(address);
    let extras = [
        "--as-user-extra=scopes=view",
        "--as-user-extra",
        "scopes=a=b",
    ];
    let output = execute(
        command
            .args(["--as", "jane", "-v", "6", "--v=8", "-v=6"])
            .args(extras),
    );
    output.exits(0);
    output.prints("vm-1");
    let bad = execute(plugin(address).arg("--as-user-extra=scopes"));
    bad.exits(2);
}

/// Returns the body of a watch with these events. The body stays open after the last event.
fn watch_body(events: &[Value]) -> impl Stream<Item = Result<Bytes, std::io::Error>> + use<> {
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
            Body::from_stream(watch_body(&events)).into_response()
        }
        LIVE => list_response(&[operation(1)], ""),
        _ => not_found(),
    });
    let mut child = plugin(address)
        .args(["tree", "-w"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the plugin can be started");
    let stdout = child.stdout.take().expect("the stream is piped");
    let mut printed: Vec<String> = Vec::new();
    for line in std::io::BufReader::new(stdout).lines() {
        printed.push(line.expect("the output is UTF-8"));
        if printed.last().is_some_and(|it| it.contains("vm-2")) {
            break;
        }
    }
    child.kill().expect("the plugin still runs");
    child.wait().expect("the plugin can be waited for");
    let count = |name: &str| printed.iter().filter(|it| it.contains(name)).count();
    assert_eq!((count("vm-1"), count("vm-2")), (2, 1), "{printed:#?}");
}
