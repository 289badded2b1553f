//! The page in a file (`--export`), and the page for files (`--from`).

use super::Ui;
use super::cluster::{Cluster, Contents, contents, operation_at};
use crate::fake_apiserver::{execute, plugin};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Returns the data in an exported page.
fn data_of(page: &str) -> Value {
    let (_, rest) = page
        .split_once("<script type=\"application/json\" id=\"data\">")
        .expect("the page has data");
    let (data, _) = rest.split_once("</script>").expect("the data has an end");
    serde_json::from_str(data).expect("the data is JSON")
}

/// Returns the texts of the elements `tag` without attributes.
fn texts<'a>(page: &'a str, tag: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    let parts = page.split(&open).skip(1);
    parts
        .map(|it| it.split(&close).next().unwrap_or_default())
        .collect()
}

fn hash(text: &str) -> String {
    let digest = digest(&SHA256, text.as_bytes());
    format!("'sha256-{}'", STANDARD.encode(digest))
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

#[test]
fn an_export_has_the_page_and_its_data_in_one_file() {
    let hostile = "</script><script>alert(1)</script><!-- \u{2028} & \"";
    let mut operation = operation_at(1, "7");
    operation["status"]["message"] = json!(hostile);
    let cluster = Cluster::start(Contents {
        operations: vec![operation.clone()],
        answers: [
            ("*operationrecords".to_owned(), json!(403)),
            // For example, there is no leader.
            ("*activities".to_owned(), json!(503)),
        ]
        .into(),
        ..contents()
    });
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("page.html");
    let export = || execute(plugin(cluster.address).args(["ui", "--export", path_text(&path)]));
    let output = export();
    output.exits(0);
    assert_eq!(output.stdout, format!("{}: 1 objects\n", path.display()));
    output.says("operationrecords");
    let page = std::fs::read_to_string(&path).expect("the page");
    let mode = path.metadata().expect("the page").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let data = data_of(&page);
    assert_eq!(data["items"], json!([operation]));
    assert_eq!(data["begin"]["mode"], "live");
    assert!(
        data["state"]["warnings"][0]
            .as_str()
            .is_some_and(|it| it.contains("operationrecords"))
    );
    // The policy allows exactly the scripts and the style of the page.
    let (_, policy) = page
        .split_once("<meta http-equiv=\"Content-Security-Policy\" content=\"")
        .expect("the page has a policy");
    let policy = policy.split('"').next().unwrap_or_default();
    let hashes = |tag| {
        texts(&page, tag)
            .into_iter()
            .map(hash)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let expected = format!(
        "default-src 'none'; script-src {}; style-src {}; img-src data: blob:; base-uri 'none'; form-action 'none'",
        hashes("script"),
        hashes("style")
    );
    assert_eq!(policy, expected);
    // Nothing is loaded from elsewhere.
    for reference in ["src=", "href=\"/", "@import", "url("] {
        let markup: Vec<&str> = page.lines().filter(|it| it.starts_with('<')).collect();
        assert!(
            !markup.iter().any(|it| it.contains(reference)),
            "{reference}"
        );
    }
    // An existing file is not replaced.
    let again = export();
    again.exits(2);
    let files = std::fs::read_dir(folder.path())
        .expect("the folder")
        .count();
    assert_eq!(files, 1);
}

#[test]
fn an_export_that_fails_leaves_no_file() {
    let cluster = Cluster::start(contents());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("none/page.html");
    let output = execute(plugin(cluster.address).args(["ui", "--export", path_text(&path)]));
    output.exits(1);
    output.says("cannot write");
}

#[test]
fn files_are_shown_and_exported() {
    let folder = tempfile::tempdir().expect("a folder");
    let record = json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "OperationRecord",
        "metadata": {"name": "old", "namespace": "shop"},
        "spec": operation_at(1, "7")["spec"], "status": {"outcome": "Failed"},
    });
    let activity = json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "Activity",
        "metadata": {"name": "namespace", "namespace": "shop"}, "status": {"active": 1},
    });
    let list = json!({"apiVersion": "v1", "kind": "List",
                      "items": [operation_at(1, "7"), record, activity]});
    let (from, page) = (
        folder.path().join("list.json"),
        folder.path().join("page.html"),
    );
    std::fs::write(&from, list.to_string()).expect("the folder is writable");
    let command = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
        command.env_remove("KUBECONFIG").stdin(Stdio::null());
        command.args(["ui", "--from", path_text(&from)]);
        command
    };
    let output = execute(command().args(["--export", path_text(&page)]));
    output.exits(0);
    let data = data_of(&std::fs::read_to_string(&page).expect("the page"));
    let kinds = |items: &[Value]| {
        let kinds = items.iter().map(|it| it["kind"].to_string());
        kinds.collect::<BTreeSet<_>>()
    };
    let expected = ["Activity", "InFlightOperation", "OperationRecord"];
    let expected = BTreeSet::from(expected.map(|it| format!("{it:?}")));
    assert_eq!(kinds(data["items"].as_array().expect("a list")), expected);
    assert_eq!(data["begin"]["mode"], "files");
    let ui = Ui::of(command().arg("--no-open"));
    let all = ui.events(&ui.sign_in()).next_of("all");
    assert_eq!(kinds(all["items"].as_array().expect("a list")), expected);
    assert_eq!(all["begin"]["mode"], "files");
    assert_eq!(all["begin"]["context"], path_text(&from));
}

#[test]
fn the_page_of_a_bundle_of_one_namespace_names_the_namespace() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = "inflightoperations.json";
    let index = json!({
        "created": "2026-01-01T00:00:00Z", "redacted": true, "pluginVersion": "v", "namespace": "shop",
        "serverNamespace": "ifo-system", "parts": [{"path": format!("apis/live.ifo.kubevirt.io/{path}"), "result": "Read", "count": 1}],
    });
    for (name, content) in [("bundle.json", &index), (path, &operation_at(1, "7"))] {
        std::fs::write(folder.path().join(name), content.to_string()).expect("the folder");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    command.env_remove("KUBECONFIG").stdin(Stdio::null());
    command.args(["ui", "--no-open", "--from", path_text(folder.path())]);
    let ui = Ui::of(&mut command);
    let all = ui.events(&ui.sign_in()).next_of("all");
    assert_eq!(all["begin"]["namespace"], "shop");
}
