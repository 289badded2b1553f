//! Tests of the kubectl plugin on a cluster: its commands `list`, `get`, `summary`, `tree`, `wait`
//! and `version`.

use crate::harness::{
    DEADLINE, Lines, RULE_SET, TestCluster, VM, condition, migrating, rule_set, same_but_for_gaps,
    shared, text,
};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use tokio::process::{Child, Command};

/// The exit code and the output of the plugin.
pub struct PluginOutput {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl PluginOutput {
    async fn by(child: Child) -> Self {
        let output = tokio::time::timeout(DEADLINE, child.wait_with_output());
        let output = output
            .await
            .expect("the plugin must exit before the deadline")
            .expect("the plugin is a child of this process");
        let text = |bytes| String::from_utf8(bytes).expect("the plugin prints UTF-8");
        Self {
            code: output.status.code().expect("no signal kills the plugin"),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// Returns standard error without the line about rule sets that do not work. Other tests create
    /// such rule sets, so this line can appear at any time.
    pub fn own_err(&self) -> String {
        let is_own = |line: &&str| !line.contains("not working");
        self.err.split_inclusive('\n').filter(is_own).collect()
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }
}

/// Starts the plugin with the kubeconfig of the administrator.
fn start(cluster: &TestCluster, args: &[&str]) -> Child {
    Command::new(crate::plugin())
        .args(args)
        .env("KUBECONFIG", &cluster.control_plane.addresses.kubeconfig)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the plugin must start")
}

/// Starts the plugin with the kubeconfig of the administrator. The returned value collects the
/// lines of its output while it runs. When the plugin exits, a shell adds the line `exit CODE`.
pub fn follow(cluster: &TestCluster, args: &[&str]) -> Lines {
    let kubeconfig = &cluster.control_plane.addresses.kubeconfig;
    let kubeconfig = kubeconfig.to_str().expect("the path is UTF-8");
    let shell = ["-c", "\"$@\" 2>&1; echo \"exit $?\"", "sh"];
    let more = ["--kubeconfig", kubeconfig];
    let plugin = crate::plugin();
    let plugin = plugin.to_str().expect("the path is UTF-8");
    let all = [&shell[..], &[plugin], args, &more].concat();
    Lines::of(Path::new("/bin/sh"), &all)
}

/// Runs the plugin with the kubeconfig of the administrator until it exits.
pub async fn run(cluster: &TestCluster, args: &[&str]) -> PluginOutput {
    PluginOutput::by(start(cluster, args)).await
}

/// Runs `kubectl ifo wait` for a component until its timeout, and returns its output. Standard
/// error must contain `part`. If `part` is missing, this function tries longer timeouts (up to
/// 40 s). On a busy machine, a short timeout can end before the plugin has read the operations.
async fn wait_until_timeout(cluster: &TestCluster, component: &str, part: &str) -> PluginOutput {
    let mut last = String::new();
    for timeout in ["2s", "10s", "40s"] {
        let said = run(cluster, &["wait", "-c", component, "--timeout", timeout]).await;
        if said.err.contains(part) {
            return said;
        }
        last = said.err;
    }
    panic!("standard error must contain {part:?}: {last}");
}

/// Creates a namespace, and a rule set for this namespace. The component of the rule set is the
/// name of the namespace. So a test can select the operations of this rule set by component.
async fn namespace_with_component(cluster: &TestCluster, prefix: &str) -> &'static str {
    let namespace = cluster.namespace(prefix).await;
    let mut rule_set = migrating(namespace);
    rule_set["spec"]["component"] = json!(namespace);
    cluster.ready_rule_set(&rule_set).await;
    namespace
}

#[test]
fn list_get_and_summary_show_operations_in_flight() {
    shared(async |cluster| {
        let namespace = namespace_with_component(cluster, "plugin").await;
        cluster.machine(namespace, "a", "Migrating").await;
        cluster.machine(namespace, "b", "Migrating").await;
        let both = [("a", "Migrating"), ("b", "Migrating")];
        let operations = cluster.until_operations(namespace, &both).await;
        let name = text(&operations[0], "/metadata/name");

        let said = run(cluster, &["-n", namespace]).await;
        assert_eq!((said.code, &*said.own_err()), (0, ""));
        let rows: Vec<&str> = said.out.lines().collect();
        assert_eq!(rows.len(), 3, "{}", said.out);
        assert!(rows[1].starts_with(namespace) && rows[1].contains("VirtualMachine/a"));

        // The plugin's flag `-o` selects an operation. But users know `-o` as kubectl's flag for
        // the output format. So the plugin also accepts output formats after `-o`.
        let said = run(cluster, &["list", "-n", namespace, "-o", "json"]).await;
        let listed = said.json()["items"].as_array().cloned().unwrap_or_default();
        assert_eq!(listed.len(), operations.len(), "{}", said.err);
        let mut pairs = listed.iter().zip(&operations);
        assert!(
            pairs.all(|(one, other)| same_but_for_gaps(one, other)),
            "{}",
            said.out
        );
        let said = run(
            cluster,
            &[
                "-n",
                namespace,
                "list",
                "-o",
                "name",
                "-k",
                "virtualmachine",
            ],
        )
        .await;
        assert_eq!(said.out.lines().count(), 2, "{}", said.out);
        assert!(
            said.out
                .contains(&format!("inflightoperation.live.ifo.kubevirt.io/{name}"))
        );
        let said = run(cluster, &["list", "-n", namespace, "-o", "Migratin"]).await;
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{}", said.err);
        let said = run(cluster, &["list", "-n", namespace, "-l", "not a selector"]).await;
        assert_eq!(said.code, 2);
        assert!(
            said.err
                .starts_with("error: --selector: unable to parse requirement"),
            "{}",
            said.err
        );

        let said = run(cluster, &["get", name, "-o", "yaml"]).await;
        assert!(said.out.contains(&format!("name: {name}")), "{}", said.out);
        let said = run(cluster, &["get", "nothing-like-this"]).await;
        assert_eq!(said.code, 1);
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);

        let said = run(cluster, &["summary", "-c", namespace, "-O", "json"]).await;
        let summary = said.json();
        assert_eq!(summary["total"], json!({"active": 2, "completed": 0}));
        assert_eq!(summary["byOperation"]["Migrating"]["active"], 2);
        let said = run(cluster, &["version"]).await;
        assert_eq!(said.code, 0, "{}", said.err);
        assert!(said.out.contains("Server Version: v"), "{}", said.out);
    });
}

#[test]
fn kubectl_finds_the_plugin() {
    shared(async |cluster| {
        let namespace = namespace_with_component(cluster, "kubectl-plugin").await;
        cluster.machine(namespace, "a", "Migrating").await;
        cluster
            .until_operations(namespace, &[("a", "Migrating")])
            .await;
        let plugin = crate::plugin();
        let folder = plugin.parent().expect("the binary is in a folder");
        let path = format!(
            "{}:{}",
            folder.display(),
            std::env::var("PATH").unwrap_or_default()
        );
        let output = Command::new(&cluster.control_plane.addresses.kubectl)
            .args(["ifo", "list", "-n", namespace])
            .env("PATH", path)
            .env("KUBECONFIG", &cluster.control_plane.addresses.kubeconfig)
            .output()
            .await
            .expect("kubectl must start");
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(out.contains("VirtualMachine/a"), "{out}{output:?}");
    });
}

#[test]
fn missing_rights_are_named_and_existing_ones_are_used() {
    shared(async |cluster| {
        let namespace = namespace_with_component(cluster, "plugin-user").await;
        cluster.machine(namespace, "a", "Migrating").await;
        cluster
            .until_operations(namespace, &[("a", "Migrating")])
            .await;
        let user = format!("{namespace}-user");
        let said = run(cluster, &["list", "--as", &user]).await;
        assert_eq!(said.code, 1);
        let everywhere = format!("bind the ClusterRole ifo-view to \"{user}\"");
        assert!(
            said.err.contains(&everywhere)
                && said.err.contains("inflightoperations.live.ifo.kubevirt.io"),
            "{}",
            said.err
        );
        let said = run(cluster, &["list", "--as", &user, "-n", namespace]).await;
        assert!(
            said.err.contains(&format!("in namespace {namespace}")),
            "{}",
            said.err
        );

        // An administrator follows the advice in the namespace, with the role in `deploy/`, and also
        // gives the user the right to list namespaces.
        let role = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/rbac/users.yaml");
        let to_user = format!("--user={user}");
        for args in [
            &["apply", "-f", role][..],
            &[
                "create",
                "rolebinding",
                &user,
                "-n",
                namespace,
                "--clusterrole=ifo-view",
                &to_user,
            ],
            &[
                "create",
                "clusterrole",
                &user,
                "--verb=list",
                "--resource=namespaces",
            ],
            &[
                "create",
                "clusterrolebinding",
                &user,
                &format!("--clusterrole={user}"),
                &to_user,
            ],
        ] {
            cluster
                .kubectl(args)
                .await
                .expect("an administrator may grant rights");
        }
        let said = run(cluster, &["list", "--as", &user]).await;
        assert_eq!(said.code, 0, "{}", said.err);
        assert!(said.out.contains("VirtualMachine/a"), "{}", said.out);
        assert_eq!(
            said.own_err(),
            format!(
                "note: you may not list operations in all namespaces; showing those in {namespace}\n"
            )
        );
        // The user may list operations only in one namespace. So `wait` cannot know that no
        // operation is in flight elsewhere.
        let said = run(cluster, &["wait", "--as", &user]).await;
        assert_eq!(said.code, 3, "{}", said.err);
    });
}

#[test]
fn wait_succeeds_only_when_nothing_is_in_flight() {
    shared(async |cluster| {
        let namespace = namespace_with_component(cluster, "plugin-wait").await;
        let said = run(cluster, &["wait", "-c", namespace, "--timeout", "3m"]).await;
        assert_eq!(said.code, 0, "{}", said.err);

        cluster.machine(namespace, "a", "Migrating").await;
        cluster
            .until_operations(namespace, &[("a", "Migrating")])
            .await;
        let said = wait_until_timeout(cluster, namespace, "VirtualMachine/a").await;
        assert_eq!(said.code, 1, "{}", said.err);
        let said = run(cluster, &["wait", "-c", namespace, "--for", "started"]).await;
        assert_eq!(said.code, 0, "{}", said.err);

        let idle = follow(cluster, &["wait", "-c", namespace, "--quiet-period", "1s"]);
        let completed = follow(cluster, &["wait", "-c", namespace, "--for", "completed"]);
        let quiet = start(cluster, &["wait", "-n", namespace, "-o", "Migrating", "-q"]);
        let mut both = [idle, completed];
        // The commands in `both` must have read the operation before it completes. Otherwise
        // `wait --for completed` would not know the operation.
        for lines in &mut both {
            let waits = |line: &String| line.starts_with("waiting: VirtualMachine/a");
            lines
                .until("the plugin waits for the operation", |all| {
                    all.iter().any(waits).then_some(())
                })
                .await;
        }
        cluster.set_status(namespace, "a", "Running").await;
        for lines in &mut both {
            let exit = lines
                .until("the plugin exits", |all| {
                    let mut lines = all.iter();
                    lines.find(|line| line.starts_with("exit ")).cloned()
                })
                .await;
            assert_eq!(exit, "exit 0");
        }
        drop(quiet);
    });
}

#[test]
fn wait_does_not_report_idle_while_detection_is_incomplete() {
    shared(async |cluster| {
        // Without any rule set, the plugin cannot know whether a component exists.
        namespace_with_component(cluster, "plugin-blind-beside").await;
        let namespace = cluster.namespace("plugin-blind").await;
        let said = run(cluster, &["wait", "-c", "nobody-has-this-component"]).await;
        assert_eq!(said.code, 2, "{}", said.err);
        assert!(
            said.err
                .contains("no OperationRuleSet and no operation has this component"),
            "{}",
            said.err
        );

        let mut broken = rule_set(namespace, &VM, &[("Migrating", "object.nonsense(")]);
        broken["spec"]["component"] = json!(namespace);
        broken["spec"]["namespaces"] = json!([namespace]);
        cluster.create(&RULE_SET, None, &broken).await;
        cluster
            .rule_set_until(namespace, "InvalidRule", |rule_set| {
                condition(rule_set, "Ready")["reason"] == "InvalidRule"
            })
            .await;
        let said = wait_until_timeout(cluster, namespace, "does not compile").await;
        assert_eq!(said.code, 3, "{}{}", said.out, said.err);
    });
}
