//! A control plane on which `deploy/` is installed, with the server under test.

use super::control_plane::ControlPlane;
use super::relay::Relay;
use super::server::{self, Server};
use super::{
    Answer, Caller, Events, Kind, Lines, OPERATION, RULE_SET, VM, VMI, condition, crd, eventually,
    is_in_gap, so, text,
};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::sync::Mutex;

/// The folders that are installed for all tests: those of the README, with the right to read common
/// targets instead of the rule packs.
pub const FOLDERS: [&str; 4] = [
    "deploy/crd",
    "deploy",
    "deploy/targets-default",
    "apiservice",
];

/// The audience of the tokens with which replicas authenticate to each other, as in `deploy/`.
const PEERS: &str = "ifo-apiserver";

/// The shared environment of the tests.
pub struct World {
    pub control_plane: ControlPlane,
    /// A client through kube-apiserver, as a member of system:masters.
    pub admin: Caller,
    /// The server under test. A test that stops it must run alone.
    pub server: Mutex<Server>,
    /// The address of the server, for tests that do not lock it.
    pub server_url: String,
    config: Config,
    /// The kubeconfig of the server under test.
    pub kubeconfig: PathBuf,
}

impl World {
    /// Starts everything. The error is the reason for which this machine cannot run a control
    /// plane.
    pub async fn start() -> Result<Self, String> {
        let control_plane = ControlPlane::start("shared").await?;
        let (config, admin) = administrator(&control_plane).await;
        let state = &control_plane.state;

        let installed = install(&control_plane, &FOLDERS).await;
        let Installed {
            deployment,
            registration,
        } = installed;

        let account = text(&deployment, "/spec/template/spec/serviceAccountName");
        let namespace = text(&deployment, "/metadata/namespace");
        let kubeconfig = state.dir.join("ifo-apiserver.kubeconfig");
        let url = match gaps() {
            Some(interval) => {
                let relay = Relay::start(&state.server).await;
                let url = relay.url.clone();
                tokio::spawn(relay.with_gaps(interval));
                url
            }
            None => state.server.clone(),
        };
        let account = (namespace, account);
        credentials(&control_plane, &url, &admin, account, &kubeconfig).await;
        let server = Server::start(&state.dir, &deployment, &kubeconfig).await;

        register(&control_plane, registration, server.port()).await;
        let world = Self {
            server_url: server.url(),
            server: Mutex::new(server),
            control_plane,
            admin,
            config,
            kubeconfig,
        };
        world.served().await;
        Ok(world)
    }

    /// Waits until kube-apiserver returns operations.
    pub async fn served(&self) {
        eventually("operations are served", async || {
            let answer = self.admin.get(&OPERATION.path(None)).await;
            so(answer.code == 200, answer)
        })
        .await;
        // kubectl's names for the resources.
        eventually("operations are in discovery", async || {
            let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
            let answer = self.admin.get_with("/apis", &[("Accept", accept)]).await;
            let (group, _) = OPERATION.group_version();
            let groups = answer.body["items"].as_array().cloned().unwrap_or_default();
            let live = groups.iter().find(|it| it["metadata"]["name"] == group);
            let fresh = live.is_some_and(|it| it["versions"][0]["freshness"] == "Current");
            so(fresh, live)
        })
        .await;
    }

    /// Repairs the world after a test that ran alone and may have failed.
    pub async fn recover(&self) {
        // The command fails if the server is running already, which is fine.
        let _ = self.control_plane.command("start kube-apiserver").await;
        let mut server = self.server.lock().await;
        if !server.is_running() {
            server.start_again(&self.kubeconfig).await;
        }
        drop(server);
        self.served().await;
    }

    /// The last lines of the server's log.
    pub fn log_tail(&self) -> String {
        server::tail(&self.control_plane.state.dir)
    }

    /// Creates a namespace for one test.
    pub async fn namespace(&self, prefix: &str) -> &'static str {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{prefix}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name},
        });
        self.admin.post("/api/v1/namespaces", &namespace).await.ok();
        // Namespaces are not deleted, because there are only a few per run.
        name.leak()
    }

    /// A user with only the group system:authenticated.
    pub fn user(&self, name: &str) -> Caller {
        let mut config = self.config.clone();
        config.auth_info.impersonate = Some(name.to_owned());
        Caller::new(config)
    }

    /// A client that connects to the server directly, as kube-apiserver does.
    pub fn front_proxy(&self) -> Caller {
        self.front_proxy_of(self.direct())
    }

    /// The same for any server under test.
    pub fn front_proxy_of(&self, config: Config) -> Caller {
        front_proxy(&self.control_plane, config)
    }

    /// A client for the server without kube-apiserver.
    pub fn direct(&self) -> Config {
        let mut config = Config::new(self.server_url.parse().expect("it is a URI"));
        config.accept_invalid_certs = true;
        config
    }

    /// Creates an object.
    pub async fn create(&self, kind: &Kind, namespace: Option<&str>, object: &Value) -> Value {
        self.admin.post(&kind.path(namespace), object).await.ok()
    }

    /// Creates a machine with this status.
    pub async fn machine(&self, namespace: &str, name: &str, status: &str) -> Value {
        let machine = json!({
            "apiVersion": VM.api_version, "kind": VM.kind,
            "metadata": {"name": name},
            "status": {"printableStatus": status},
        });
        self.create(&VM, Some(namespace), &machine).await
    }

    /// Changes the status of a machine.
    pub async fn set_status(&self, namespace: &str, name: &str, status: &str) -> Value {
        let patch = json!({"status": {"printableStatus": status}});
        let path = format!("{}/{name}", VM.path(Some(namespace)));
        self.admin.merge(&path, &patch).await.ok()
    }

    /// Changes the status of an object that has a status subresource.
    pub async fn patch_status(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        status: &Value,
    ) -> Value {
        let path = format!("{}/{name}/status", kind.path(Some(namespace)));
        let patch = json!({"status": status});
        self.admin.merge(&path, &patch).await.ok()
    }

    /// Installs a definition of `tests/e2e/fixtures` and waits until `kind` is served.
    pub async fn install(&self, definition: &str, kind: &Kind) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/e2e/fixtures")
            .join(definition);
        let file = file.to_str().expect("the repository's path is UTF-8");
        self.kubectl(&["apply", "-f", file])
            .await
            .expect("the definition is valid");
        eventually(&format!("{} are served", kind.plural), async || {
            let answer = self.admin.get(&kind.path(None)).await;
            so(answer.code == 200, answer)
        })
        .await;
    }

    /// Reads the shipped rule set for this target from this folder. It is restricted to one
    /// namespace, and named after it.
    pub async fn shipped(&self, folder: &str, target: &Kind, namespace: &str) -> Value {
        let shipped = self.kustomize(folder).await;
        let mut rules = shipped
            .into_iter()
            .find(|it| it["spec"]["target"]["resource"] == target.plural)
            .unwrap_or_else(|| panic!("rules for {} ship in {folder}", target.plural));
        rules["metadata"]["name"] = json!(namespace);
        rules["spec"]["namespaces"] = json!([namespace]);
        rules
    }

    /// Creates a rule set and waits until it is Ready.
    pub async fn ready_rule_set(&self, rule_set: &Value) -> Value {
        self.create(&RULE_SET, None, rule_set).await;
        self.rule_set_until(text(rule_set, "/metadata/name"), "Ready", |it| {
            condition(it, "Ready")["status"] == "True"
        })
        .await
    }

    /// Waits until a rule set fulfills a condition.
    pub async fn rule_set_until(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Value {
        let path = format!("{}/{name}", RULE_SET.path(None));
        eventually(&format!("rule set {name}: {what}"), async || {
            let rule_set = self.admin.get(&path).await.ok();
            so(is(&rule_set), &rule_set["status"])?;
            Ok(rule_set)
        })
        .await
    }

    /// All operations of a namespace.
    pub async fn operations(&self, namespace: &str) -> Vec<Value> {
        let list = self.admin.get(&OPERATION.path(Some(namespace))).await;
        items(list)
    }

    /// Waits until the operations of a namespace are these, as (subject, operation) sorted by name,
    /// and no watch gap is open. Returns them.
    pub async fn until_operations(&self, namespace: &str, want: &[(&str, &str)]) -> Vec<Value> {
        eventually(&format!("operations {want:?} in {namespace}"), async || {
            let operations = self.operations(namespace).await;
            let found: Vec<(&str, &str)> = operations.iter().map(names).collect();
            so(found == want, &found)?;
            so(!operations.iter().any(is_in_gap), "a watch gap")?;
            Ok(operations)
        })
        .await
    }

    /// Watches the operations of a namespace.
    pub async fn watch(&self, namespace: &str) -> Events {
        let path = format!("{}?watch=1", OPERATION.path(Some(namespace)));
        Events::of(&self.admin, &path)
            .await
            .expect("an administrator may watch")
    }

    /// Applies objects as `kubectl apply` does.
    pub async fn apply(&self, manifests: &[Value]) {
        apply(&self.control_plane.state.kubectl, manifests).await;
    }

    /// A kubeconfig, in this file, for a ServiceAccount.
    pub async fn kubeconfig_of(&self, namespace: &str, account: &str, file: &Path) {
        kubeconfig_of(&self.control_plane, &self.admin, (namespace, account), file).await;
    }

    /// Runs kubectl to its end. Returns its output, and fails if it fails.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String, String> {
        kubectl(&self.control_plane.state.kubectl, args, None).await
    }

    /// Starts a kubectl that continues, such as one with `-w`.
    pub fn kubectl_watch(&self, args: &[&str]) -> Lines {
        Lines::of(&self.control_plane.state.kubectl, args)
    }

    /// Renders a folder of this repository as `kubectl apply -k` does.
    pub async fn kustomize(&self, folder: &str) -> Vec<Value> {
        kustomize(&self.control_plane.state.kubectl, folder).await
    }
}

/// The manifests that a test applies itself, after all others.
#[derive(Debug)]
pub struct Installed {
    pub deployment: Value,
    /// The Service and the APIService.
    pub registration: Vec<Value>,
}

/// Installs these folders and the kinds of the tests' subjects.
pub async fn install(control_plane: &ControlPlane, folders: &[&str]) -> Installed {
    let program = &control_plane.state.kubectl;
    let mut manifests = Vec::new();
    for folder in folders {
        manifests.extend(kustomize(program, folder).await);
    }
    let deployment = manifests.iter().find(|it| it["kind"] == "Deployment");
    let deployment = deployment.expect("deploy/ has a Deployment").clone();
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

/// Registers a server on loopback. A Service of type ExternalName leads kube-apiserver to it, with
/// the port in the APIService.
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
    apply(&control_plane.state.kubectl, &registration).await;
}

/// A client that connects to a server as kube-apiserver does.
pub fn front_proxy(control_plane: &ControlPlane, mut config: Config) -> Caller {
    let state = &control_plane.state;
    config.auth_info.client_certificate = Some(state.request_header_client_certificate.clone());
    config.auth_info.client_key = Some(state.request_header_client_key.clone());
    Caller::new(config)
}

/// The interval at which the connections of the server to kube-apiserver break: the seconds in
/// `IFO_E2E_GAPS`.
fn gaps() -> Option<Duration> {
    let seconds = std::env::var("IFO_E2E_GAPS").ok()?;
    let seconds = seconds
        .parse()
        .expect("IFO_E2E_GAPS is a number of seconds");
    Some(Duration::from_secs(seconds))
}

/// The writes, reviews, lists and watches of the server's ServiceAccount so far, as lines of the
/// audit log.
pub fn audited(world: &World) -> Vec<Value> {
    let log = &world.control_plane.state.audit_log;
    let log = std::fs::read_to_string(log).expect("the control plane keeps an audit log");
    log.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|event| {
            text(event, "/user/username") == "system:serviceaccount:ifo-system:ifo-apiserver"
        })
        .collect()
}

/// A member of system:masters.
pub async fn administrator(control_plane: &ControlPlane) -> (Config, Caller) {
    // The TLS provider of all clients in this process.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(&control_plane.state.kubeconfig);
    let kubeconfig = kubeconfig.expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let config = config.expect("a usable kubeconfig");
    (config.clone(), Caller::new(config))
}

/// Writes a kubeconfig for a ServiceAccount (namespace and name) to this file, and the token for
/// other replicas next to it.
pub async fn kubeconfig_of(
    control_plane: &ControlPlane,
    admin: &Caller,
    account: (&str, &str),
    file: &Path,
) {
    let url = &control_plane.state.server;
    credentials(control_plane, url, admin, account, file).await;
}

/// The same for a kube-apiserver at this URL, which may be that of a relay.
pub async fn credentials(
    control_plane: &ControlPlane,
    url: &str,
    admin: &Caller,
    account: (&str, &str),
    file: &Path,
) {
    let token = token(admin, account, &[]).await;
    let content = server::kubeconfig(url, &control_plane.state.client_ca, &token);
    std::fs::write(file, content.to_string()).expect("the run's folder is ours");
    let token = self::token(admin, account, &[PEERS]).await;
    std::fs::write(server::peer_token(file), token).expect("the run's folder is ours");
}

/// Creates a token for a ServiceAccount that is valid for the whole run. Without an audience, it is
/// for the kube-apiserver.
async fn token(admin: &Caller, (namespace, name): (&str, &str), audiences: &[&str]) -> String {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": audiences, "expirationSeconds": 86400},
    });
    let answer = admin.post(&path, &request).await.ok();
    text(&answer, "/status/token").to_owned()
}

/// The items of a list.
fn items(list: Answer) -> Vec<Value> {
    match list.ok()["items"].take() {
        Value::Array(items) => items,
        other => panic!("a list without items: {other}"),
    }
}

/// Subject and operation.
fn names(operation: &Value) -> (&str, &str) {
    (
        text(operation, "/spec/subject/name"),
        text(operation, "/spec/operation"),
    )
}

/// The cells of a line that kubectl prints.
pub fn columns(line: &str) -> Vec<&str> {
    line.split("  ")
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
        .collect()
}

async fn kustomize(program: &Path, folder: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let folder = folder.to_str().expect("the repository's path is UTF-8");
    let yaml = kubectl(program, &["kustomize", folder], None)
        .await
        .expect("the folder is a kustomization");
    serde_saphyr::from_multiple(&yaml).expect("kubectl prints YAML")
}

async fn apply(program: &Path, manifests: &[Value]) {
    let input = manifests
        .iter()
        .map(Value::to_string)
        .collect::<Vec<_>>()
        .join("\n---\n");
    // Later objects need the CRDs.
    kubectl(program, &["apply", "-f", "-"], Some(input))
        .await
        .expect("the manifests can be applied");
}

/// Runs kubectl to its end. Returns its output, and fails if it fails.
pub async fn kubectl(
    program: &Path,
    args: &[&str],
    input: Option<String>,
) -> Result<String, String> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("kubectl can be started");
    let mut stdin = child.stdin.take().expect("it is piped");
    if let Some(input) = input {
        // If kubectl does not read its input to the end, its standard error has the reason.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    drop(stdin);
    let output = tokio::time::timeout(super::DEADLINE, child.wait_with_output())
        .await
        .unwrap_or_else(|_| panic!("kubectl {} does not end", args.join(" ")))
        .expect("a child can be waited for");
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        Ok(out)
    } else {
        Err(format!("kubectl {}: {err}{out}", args.join(" ")))
    }
}
