//! Runs the commands in `deploy/k9s/plugins.yaml` as k9s does, with a fake API server.

use super::cluster::record;
use super::fake_apiserver::{
    LIVE as OF_CLUSTER, RECORDS, RULE_SETS, execute, json_response, list_response, not_found,
    operation, serve, watched_rule_set,
};
use serde::Deserialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

const OPERATIONS: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/namespaces/shop/inflightoperations";

/// The file, with the fields that the JSON schema of k9s requires and that the file uses.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    plugins: BTreeMap<String, Plugin>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Plugin {
    short_cut: String,
    description: String,
    scopes: BTreeSet<String>,
    command: String,
    args: Vec<String>,
}

/// Writes an executable script for `sh`.
fn script(path: &std::path::Path, text: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{text}\n")).expect("the folder is writable");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, mode).expect("the mode can be set");
}

#[test]
fn the_keys_of_k9s_show_the_selected_row() {
    let file = include_str!("../../../../deploy/k9s/plugins.yaml");
    let file: File = serde_saphyr::from_str(file).expect("the file has only known fields");
    let mut labelled = record(1);
    labelled["metadata"]["labels"] = json!({"ifo.kubevirt.io/subject-name": "vm-1"});
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        OF_CLUSTER | OPERATIONS => list_response(&[operation(1)], ""),
        RECORDS => list_response(&[labelled.clone(), record(2)], ""),
        RULE_SETS => list_response(&[watched_rule_set()], ""),
        path if path.ends_with("/vm-1-migrating") => json_response(&operation(1)),
        "/api/v1/pods" => list_response(&[], ""),
        _ => not_found(),
    });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plugin = env!("CARGO_BIN_EXE_kubectl-ifo");
    script(
        &folder.path().join("kubectl"),
        &format!("test \"$1\" = ifo && shift && exec '{plugin}' \"$@\""),
    );
    script(&folder.path().join("less"), "exec cat");
    // A shell would split this name, or run a part of it.
    let context = "it's; $(exit) a context";
    let kubeconfig = folder.path().join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "none",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
        "contexts": [{"name": context, "context": {"cluster": "c", "user": ""}}],
    });
    std::fs::write(&kubeconfig, config.to_string()).expect("the folder is writable");
    let kubeconfig = kubeconfig.to_str().expect("the path is UTF-8");
    let path = format!("{}:/usr/bin:/bin", folder.path().display());

    let expected = [
        ("ifo-describe", "vm-1-migrating", "State:"),
        ("ifo-history", "vm-1-migrating", "VirtualMachine/vm-1"),
        ("ifo-impact", "worker-1", "worker-1"),
        ("ifo-subject", "vm-1", "vm-1-migrating"),
    ];
    assert!(file.plugins.keys().eq(expected.map(|it| it.0).iter()));
    let mut keys = BTreeSet::new();
    for (plugin, name, part) in expected {
        let plugin = &file.plugins[plugin];
        assert!(plugin.description.starts_with("ifo "));
        for scope in &plugin.scopes {
            assert!(
                keys.insert((scope, &plugin.short_cut)),
                "{scope}: two commands for one key"
            );
        }
        let values = [
            ("$COL-SUBJECT-NAME", "vm-1"),
            ("$COL-KIND", "VirtualMachine"),
            ("$RESOURCE_NAME", "virtualmachines"),
            ("$NAMESPACE", "shop"),
            ("$KUBECONFIG", kubeconfig),
            ("$NAME", name),
            ("$CONTEXT", context),
        ];
        let args = plugin.args.iter().map(|arg| {
            let values = values.iter();
            values.fold(arg.clone(), |arg, (key, value)| arg.replace(key, value))
        });
        let mut command = Command::new(&plugin.command);
        command.args(args).env("PATH", &path).stdin(Stdio::null());
        let output = execute(&mut command);
        let (text, error) = (&output.stdout, &output.stderr);
        assert!(text.contains(part), "{}: {text}{error}", plugin.description);
        assert!(!text.contains("vm-2"), "{}: {text}", plugin.description);
    }
}
