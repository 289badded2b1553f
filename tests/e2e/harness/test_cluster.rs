//! The cluster that the end-to-end tests share: a control plane, the installed manifests of
//! `deploy/`, and the server under test. This file also contains helpers that create objects and
//! wait for operations.

use super::control_plane::ControlPlane;
use super::relay::Relay;
use super::server::{self, ServerProcess};
use super::{
    ApiAnswer, Caller, Events, Kind, Lines, OPERATION, RULE_SET, VM, VMI, condition, crd,
    eventually, is_in_gap, ok_if, text,
};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::sync::Mutex;

/// The folders of manifests that the harness installs for all tests. They differ from the
/// installation in the README in two points:
///
/// - They include `deploy/targets-default`, which lets the server watch common resources.
/// - They do not include rule packs, which are the folders in `rules/`.
pub const MANIFEST_FOLDERS: [&str; 4] = [
    "deploy/crd",
    "deploy",
    "deploy/targets-default",
    "apiservice",
];

/// The audience of the tokens with which replicas authenticate to each other, as in the Deployment
/// in `deploy/`.
const PEER_AUDIENCE: &str = "ifo-apiserver";

/// The cluster that the tests share.
pub struct TestCluster {
    pub control_plane: ControlPlane,
    /// A client of the kube-apiserver. Its user is a member of system:masters.
    pub admin: Caller,
    /// The server under test. Only a test that runs inside [`super::alone`] may stop the server,
    /// because all other tests use the same server.
    pub server: Mutex<ServerProcess>,
    /// The URL of the server, for tests that do not lock `server`.
    pub server_url: String,
    /// The configuration of `admin`.
    config: Config,
    /// The kubeconfig of the server under test.
    pub kubeconfig: PathBuf,
}

impl TestCluster {
    /// Starts the control plane and the server. Returns an error with the reason if this machine
    /// cannot run a control plane.
    ///
    /// `name` is the name of a folder for the files of the control plane. `flags` are added to the flags
    /// of the Deployment.
    pub async fn start(name: &str, flags: &[&str]) -> Result<Self, String> {
        let control_plane = ControlPlane::start(name).await?;
        let (config, admin) = administrator(&control_plane).await;
        let addresses = &control_plane.addresses;

        let installed = install(&control_plane, &MANIFEST_FOLDERS).await;
        let Installed {
            mut deployment,
            registration,
        } = installed;
        let args = &mut deployment["spec"]["template"]["spec"]["containers"][0]["args"];
        let args = args.as_array_mut().expect("the container has arguments");
        args.extend(flags.iter().map(|flag| json!(flag)));

        let account = text(&deployment, "/spec/template/spec/serviceAccountName");
        let namespace = text(&deployment, "/metadata/namespace");
        let kubeconfig = addresses.dir.join("ifo-apiserver.kubeconfig");
        let url = match gap_interval() {
            Some(interval) => {
                let relay = Relay::start(&addresses.apiserver_url).await;
                let url = relay.url.clone();
                tokio::spawn(relay.with_gaps(interval));
                url
            }
            None => addresses.apiserver_url.clone(),
        };
        let account = (namespace, account);
        credentials(&control_plane, &url, &admin, account, &kubeconfig).await;
        let server = ServerProcess::start(&addresses.dir, &deployment, &kubeconfig).await;

        register(&control_plane, registration, server.port()).await;
        let cluster = Self {
            server_url: server.url(),
            server: Mutex::new(server),
            control_plane,
            admin,
            config,
            kubeconfig,
        };
        cluster.wait_until_served().await;
        Ok(cluster)
    }

    /// Waits until the kube-apiserver lists operations, and until its discovery document contains
    /// the resource of operations.
    pub async fn wait_until_served(&self) {
        eventually("operations are served", async || {
            let answer = self.admin.get(&OPERATION.path(None)).await;
            ok_if(answer.code == 200, answer)
        })
        .await;
        // kubectl reads the names of the resources from the discovery document.
        eventually("operations are in discovery", async || {
            let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
            let answer = self.admin.get_with("/apis", &[("Accept", accept)]).await;
            let (group, _) = OPERATION.group_version();
            let groups = answer.body["items"].as_array().cloned().unwrap_or_default();
            let live = groups.iter().find(|it| it["metadata"]["name"] == group);
            let fresh = live.is_some_and(|it| it["versions"][0]["freshness"] == "Current");
            ok_if(fresh, live)
        })
        .await;
    }

    /// Starts the kube-apiserver and the server again if a test has stopped them.
    pub async fn recover(&self) {
        // The command fails if the kube-apiserver is already running, so the error is ignored.
        let _ = self.control_plane.command("start kube-apiserver").await;
        let mut server = self.server.lock().await;
        if !server.is_running() {
            server.start_again(&self.kubeconfig).await;
        }
        drop(server);
        self.wait_until_served().await;
    }

    /// Returns the last lines of the server's log.
    pub fn log_tail(&self) -> String {
        server::tail(&self.control_plane.addresses.dir)
    }

    /// Creates a namespace for one test. The name of the namespace is `prefix` and a number.
    pub async fn namespace(&self, prefix: &str) -> &'static str {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{prefix}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name},
        });
        self.admin.post("/api/v1/namespaces", &namespace).await.ok();
        // The name is leaked, so that it lives as long as the process. A leak of a few short names
        // is harmless.
        name.leak()
    }

    /// Returns a client of the kube-apiserver for the user `name`. This user is only in the group
    /// system:authenticated.
    pub fn user(&self, name: &str) -> Caller {
        let mut config = self.config.clone();
        config.auth_info.impersonate = Some(name.to_owned());
        Caller::new(config)
    }

    /// Returns a client that connects to the server directly, as the kube-apiserver does.
    pub fn front_proxy(&self) -> Caller {
        self.front_proxy_of(self.direct())
    }

    /// Returns a client that connects to the server at the URL in `config`, as the kube-apiserver
    /// does.
    pub fn front_proxy_of(&self, config: Config) -> Caller {
        front_proxy(&self.control_plane, config)
    }

    /// Returns the configuration of a client that connects to the server directly, without
    /// credentials.
    pub fn direct(&self) -> Config {
        let mut config = Config::new(self.server_url.parse().expect("the URL is valid"));
        config.accept_invalid_certs = true;
        config
    }

    /// Creates an object.
    pub async fn create(&self, kind: &Kind, namespace: Option<&str>, object: &Value) -> Value {
        self.admin.post(&kind.path(namespace), object).await.ok()
    }

    /// Creates a VirtualMachine whose `printableStatus` is `status`.
    pub async fn machine(&self, namespace: &str, name: &str, status: &str) -> Value {
        let machine = json!({
            "apiVersion": VM.api_version, "kind": VM.kind,
            "metadata": {"name": name},
            "status": {"printableStatus": status},
        });
        self.create(&VM, Some(namespace), &machine).await
    }

    /// Changes the `printableStatus` of a VirtualMachine.
    pub async fn set_status(&self, namespace: &str, name: &str, status: &str) -> Value {
        let patch = json!({"status": {"printableStatus": status}});
        let path = format!("{}/{name}", VM.path(Some(namespace)));
        self.admin.merge(&path, &patch).await.ok()
    }

    /// Creates a rule set and waits until it is Ready.
    pub async fn ready_rule_set(&self, rule_set: &Value) -> Value {
        self.create(&RULE_SET, None, rule_set).await;
        self.rule_set_until(text(rule_set, "/metadata/name"), "Ready", |it| {
            condition(it, "Ready")["status"] == "True"
        })
        .await
    }

    /// Waits until `is` returns true for a rule set. `what` is the expectation for the error
    /// message.
    pub async fn rule_set_until(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Value {
        let path = format!("{}/{name}", RULE_SET.path(None));
        eventually(&format!("rule set {name}: {what}"), async || {
            let rule_set = self.admin.get(&path).await.ok();
            ok_if(is(&rule_set), &rule_set["status"])?;
            Ok(rule_set)
        })
        .await
    }

    /// Lists all operations of a namespace.
    pub async fn operations(&self, namespace: &str) -> Vec<Value> {
        let list = self.admin.get(&OPERATION.path(Some(namespace))).await;
        items(list)
    }

    /// Waits until a namespace has exactly the operations in `want`, and returns the operations. An
    /// entry of `want` is the name of a subject (the object that an operation is about) and the
    /// name of the operation, such as `Migrating`. The entries are sorted by `metadata.name` of the
    /// `InFlightOperation` objects. During a watch gap (an interruption of the server's own watch),
    /// also waits for the end of the gap.
    pub async fn until_operations(&self, namespace: &str, want: &[(&str, &str)]) -> Vec<Value> {
        eventually(&format!("operations {want:?} in {namespace}"), async || {
            let operations = self.operations(namespace).await;
            let found: Vec<(&str, &str)> = operations.iter().map(names).collect();
            ok_if(found == want, &found)?;
            ok_if(!operations.iter().any(is_in_gap), "there is a watch gap")?;
            Ok(operations)
        })
        .await
    }

    /// Starts a watch of the operations in a namespace.
    pub async fn watch(&self, namespace: &str) -> Events {
        let path = format!("{}?watch=1", OPERATION.path(Some(namespace)));
        Events::of(&self.admin, &path)
            .await
            .expect("an administrator must be allowed to watch")
    }

    /// Applies objects as `kubectl apply` does.
    pub async fn apply(&self, manifests: &[Value]) {
        apply(&self.control_plane.addresses.kubectl, manifests).await;
    }

    /// Writes a kubeconfig for a ServiceAccount to this file (see the function [`kubeconfig_of`]).
    pub async fn kubeconfig_of(&self, namespace: &str, account: &str, file: &Path) {
        kubeconfig_of(&self.control_plane, &self.admin, (namespace, account), file).await;
    }

    /// Binds the ClusterRole `view` to the user in the namespace.
    pub async fn grant_view(&self, namespace: &str, user: &str) {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "viewer"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        });
        let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces";
        let path = format!("{bindings}/{namespace}/rolebindings");
        self.admin.post(&path, &binding).await.ok();
    }

    /// Runs kubectl until it exits. Returns its output, or an error if kubectl fails.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String, String> {
        kubectl(&self.control_plane.addresses.kubectl, args, None).await
    }

    /// Runs kubectl with `input` as its standard input. Returns true if it succeeds, and everything
    /// that it prints.
    pub async fn kubectl_with(&self, args: &[&str], input: String) -> (bool, String) {
        let program = &self.control_plane.addresses.kubectl;
        let output = kubectl_output(program, args, Some(input)).await;
        let [out, err] =
            [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
        (output.status.success(), err + &out)
    }

    /// Starts a kubectl that runs until it is killed, such as `kubectl get -w`.
    pub fn kubectl_watch(&self, args: &[&str]) -> Lines {
        Lines::of(&self.control_plane.addresses.kubectl, args)
    }

    /// Returns the objects of a kustomization in this repository.
    pub async fn kustomize(&self, folder: &str) -> Vec<Value> {
        kustomize(&self.control_plane.addresses.kubectl, folder).await
    }
}

/// The manifests that [`install`] does not apply. Instead of the Deployment, the tests start
/// processes. [`register`] changes the Service and the APIService before it applies them.
#[derive(Debug)]
pub struct Installed {
    pub deployment: Value,
    /// The Service and the APIService.
    pub registration: Vec<Value>,
}

/// Installs these folders of manifests, and the CRDs of the kinds that the tests use.
pub async fn install(control_plane: &ControlPlane, folders: &[&str]) -> Installed {
    let program = &control_plane.addresses.kubectl;
    let mut manifests = Vec::new();
    for folder in folders {
        manifests.extend(kustomize(program, folder).await);
    }
    let deployment = manifests.iter().find(|it| it["kind"] == "Deployment");
    let deployment = deployment.expect("deploy/ must have a Deployment").clone();
    let (registration, others): (Vec<Value>, Vec<Value>) = manifests
        .into_iter()
        .filter(|it| it["kind"] != "Deployment")
        .partition(|it| it["kind"] == "Service" || it["kind"] == "APIService");
    apply(program, &others).await;
    apply(program, &[crd(&VM, "Namespaced"), crd(&VMI, "Namespaced")]).await;
    Installed {
        deployment,
        registration,
    }
}

/// Registers a server on a loopback address, so that the kube-apiserver connects to it. The Service
/// gets the type `ExternalName` with the name `localhost`, and the APIService gets the port.
pub async fn register(control_plane: &ControlPlane, mut registration: Vec<Value>, port: u16) {
    for manifest in &mut registration {
        if manifest["kind"] == "Service" {
            manifest["spec"] = json!({
                "type": "ExternalName", "externalName": "localhost",
                "ports": [{"port": port}],
            });
        } else {
            manifest["spec"]["service"]["port"] = json!(port);
        }
    }
    apply(&control_plane.addresses.kubectl, &registration).await;
}

/// Returns a client that connects to a server as the kube-apiserver does: with the client
/// certificate of the front proxy.
pub fn front_proxy(control_plane: &ControlPlane, mut config: Config) -> Caller {
    let addresses = &control_plane.addresses;
    config.auth_info.client_certificate = Some(addresses.request_header_client_certificate.clone());
    config.auth_info.client_key = Some(addresses.request_header_client_key.clone());
    Caller::new(config)
}

/// Returns the interval at which a relay interrupts the connections between the server and the
/// kube-apiserver. The environment variable `IFO_E2E_GAPS` contains the interval in seconds.
/// Without this variable, returns None.
fn gap_interval() -> Option<Duration> {
    let seconds = std::env::var("IFO_E2E_GAPS").ok()?;
    let seconds = seconds
        .parse()
        .expect("IFO_E2E_GAPS must be a number of seconds");
    Some(Duration::from_secs(seconds))
}

/// Returns the events of the audit log about requests of the server's ServiceAccount.
pub fn audited(cluster: &TestCluster) -> Vec<Value> {
    let log = &cluster.control_plane.addresses.audit_log;
    let log = std::fs::read_to_string(log).expect("the control plane writes an audit log");
    log.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|event| {
            text(event, "/user/username") == "system:serviceaccount:ifo-system:ifo-apiserver"
        })
        .collect()
}

/// Returns the configuration and the client of a member of system:masters.
pub async fn administrator(control_plane: &ControlPlane) -> (Config, Caller) {
    // All clients in this process use this TLS provider. The call fails if the provider is already
    // installed, so the error is ignored.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(&control_plane.addresses.kubeconfig);
    let kubeconfig = kubeconfig.expect("the control plane writes a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let config = config.expect("the kubeconfig is valid");
    (config.clone(), Caller::new(config))
}

/// Writes a kubeconfig for a ServiceAccount to this file. `account` is the namespace and the name
/// of the ServiceAccount. Next to this file, also writes the token with which the server
/// authenticates to other replicas.
pub async fn kubeconfig_of(
    control_plane: &ControlPlane,
    admin: &Caller,
    account: (&str, &str),
    file: &Path,
) {
    let url = &control_plane.addresses.apiserver_url;
    credentials(control_plane, url, admin, account, file).await;
}

/// Writes the same files as [`kubeconfig_of`], with `url` as the address of the kube-apiserver.
/// `url` can be the URL of a relay.
pub async fn credentials(
    control_plane: &ControlPlane,
    url: &str,
    admin: &Caller,
    account: (&str, &str),
    file: &Path,
) {
    let token = token(admin, account, &[]).await;
    let content = server::kubeconfig(url, &control_plane.addresses.client_ca, &token);
    std::fs::write(file, content.to_string()).expect("the folder is writable");
    let token = self::token(admin, account, &[PEER_AUDIENCE]).await;
    std::fs::write(server::peer_token_file(file), token).expect("the folder is writable");
}

/// Creates a token for a ServiceAccount. The token is valid for a day, and only for the servers in
/// `audiences`. If `audiences` is empty, the token is valid for the kube-apiserver.
async fn token(admin: &Caller, (namespace, name): (&str, &str), audiences: &[&str]) -> String {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": audiences, "expirationSeconds": 86400},
    });
    let answer = admin.post(&path, &request).await.ok();
    text(&answer, "/status/token").to_owned()
}

/// Returns the items of a list.
fn items(list: ApiAnswer) -> Vec<Value> {
    match list.ok()["items"].take() {
        Value::Array(items) => items,
        other => panic!("the list has no items: {other}"),
    }
}

/// Returns the name of the operation's subject and the name of the operation.
fn names(operation: &Value) -> (&str, &str) {
    (
        text(operation, "/spec/subject/name"),
        text(operation, "/spec/operation"),
    )
}

/// Splits a line of a table of kubectl into its cells. Two or more spaces separate two cells.
/// Leaves out empty cells.
pub fn columns(line: &str) -> Vec<&str> {
    line.split("  ")
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
        .collect()
}

async fn kustomize(program: &Path, folder: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let folder = folder
        .to_str()
        .expect("the path of the repository is UTF-8");
    let yaml = kubectl(program, &["kustomize", folder], None)
        .await
        .expect("the folder must be a kustomization");
    serde_saphyr::from_multiple(&yaml).expect("kubectl prints YAML")
}

async fn apply(program: &Path, manifests: &[Value]) {
    let input = manifests
        .iter()
        .map(Value::to_string)
        .collect::<Vec<_>>()
        .join("\n---\n");
    kubectl(program, &["apply", "-f", "-"], Some(input))
        .await
        .expect("the manifests must be valid");
}

/// Runs kubectl until it exits, with `input` as its standard input. Returns its output, or an error
/// if kubectl fails.
pub async fn kubectl(
    program: &Path,
    args: &[&str],
    input: Option<String>,
) -> Result<String, String> {
    let output = kubectl_output(program, args, input).await;
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        Ok(out)
    } else {
        Err(format!("kubectl {}: {err}{out}", args.join(" ")))
    }
}

async fn kubectl_output(program: &Path, args: &[&str], input: Option<String>) -> Output {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("kubectl must start");
    let mut stdin = child.stdin.take().expect("standard input is piped");
    if let Some(input) = input {
        // If kubectl exits early, the write fails. The standard error of kubectl then contains the
        // reason, so this error is ignored.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    drop(stdin);
    tokio::time::timeout(super::DEADLINE, child.wait_with_output())
        .await
        .unwrap_or_else(|_| panic!("kubectl {} did not exit", args.join(" ")))
        .expect("kubectl is a child of this process")
}
