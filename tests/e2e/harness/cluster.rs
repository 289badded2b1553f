//! A control plane, and functions that install a server on it, create objects, and wait for their
//! states.

use super::control_plane::ControlPlane;
use super::server::{self, ServerProcess};
use super::{
    API_SERVICE, Caller, Events, Kind, Lines, NAMESPACE, OPERATION, RULE_SET, VM, VMI, crd,
    eventually, is, is_in_gap, items, ok_if, text,
};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// The user name of the server.
pub const ACCOUNT: &str = "system:serviceaccount:ifo-system:ifo-apiserver";

/// The audience of the tokens with which replicas authenticate to each other, as in the Deployment
/// in `deploy/`.
const PEER_AUDIENCE: &str = "ifo-apiserver";

/// API path of roles and bindings.
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// The headers with which the front proxy names an administrator.
pub const AS_ADMINISTRATOR: [(&str, &str); 2] = [
    ("X-Remote-User", "admin"),
    ("X-Remote-Group", "system:masters"),
];

/// A control plane, and its administrator.
pub struct Cluster {
    pub control_plane: ControlPlane,
    /// A client of the kube-apiserver. Its user is a member of system:masters.
    pub admin: Caller,
    /// The configuration of `admin`.
    config: Config,
    /// The namespace of the server.
    pub namespace: &'static str,
}

/// The manifests that [`Cluster::install`] does not apply. Instead of the Deployment, the tests start
/// processes. [`Cluster::register`] changes the Service and the APIService before it applies them.
#[derive(Debug)]
pub struct Installed {
    pub deployment: Value,
    /// The Service and the APIService.
    pub registration: Vec<Value>,
}

impl Cluster {
    /// Starts a control plane, on which nothing is installed. Returns an error with the reason if this
    /// machine cannot run one. `name` is the name of a folder for its files.
    pub async fn start(name: &str) -> Result<Self, String> {
        let control_plane = ControlPlane::start(name).await?;
        // All clients in this process use this TLS provider. The call fails if the provider is already
        // installed, so the error is ignored.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let kubeconfig = Kubeconfig::read_from(&control_plane.addresses.kubeconfig);
        let kubeconfig = kubeconfig.expect("the control plane writes a kubeconfig");
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let config = config.expect("the kubeconfig is valid");
        Ok(Self {
            control_plane,
            admin: Caller::new(config.clone()),
            config,
            namespace: "ifo-system",
        })
    }

    /// Returns a client of the kube-apiserver for a user. This user is only in the group
    /// system:authenticated and in `groups`.
    pub fn user(&self, name: &str, groups: &[&str]) -> Caller {
        let mut config = self.config.clone();
        config.auth_info.impersonate = Some(name.to_owned());
        if !groups.is_empty() {
            let groups = groups.iter().chain(&["system:authenticated"]);
            config.auth_info.impersonate_groups = Some(groups.map(ToString::to_string).collect());
        }
        Caller::new(config)
    }

    /// Returns a client that connects to the server at the URL in `config` as the kube-apiserver does:
    /// with the client certificate of the front proxy.
    pub fn front_proxy_of(&self, mut config: Config) -> Caller {
        let addresses = &self.control_plane.addresses;
        let (certificate, key) = (
            &addresses.request_header_client_certificate,
            &addresses.request_header_client_key,
        );
        config.auth_info.client_certificate = Some(certificate.clone());
        config.auth_info.client_key = Some(key.clone());
        Caller::new(config)
    }

    /// Runs kubectl in the folder of the repository, with arguments that single spaces separate.
    /// Returns its output, or an error if kubectl fails.
    pub async fn try_kubectl(&self, line: &str) -> Result<String, String> {
        self.kubectl_with(line, String::new()).await
    }

    /// Runs kubectl as [`Self::try_kubectl`] does. Fails if kubectl fails.
    pub async fn kubectl(&self, line: &str) -> String {
        let output = self.try_kubectl(line).await;
        output.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs kubectl as [`Self::try_kubectl`] does, with this standard input.
    pub async fn kubectl_with(&self, line: &str, input: String) -> Result<String, String> {
        let output = self.kubectl_output(line, input).await;
        let [out, err] =
            [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it).into_owned());
        if output.status.success() {
            Ok(out)
        } else {
            Err(format!("kubectl {line}: {err}{out}"))
        }
    }

    /// Runs kubectl as [`Self::kubectl_with`] does. Returns its exit status and its whole output.
    pub async fn kubectl_output(&self, line: &str, input: String) -> Output {
        let mut child = Command::new(&self.control_plane.addresses.kubectl)
            .args(line.split(' '))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("kubectl must start");
        let mut stdin = child.stdin.take().expect("standard input is piped");
        // If kubectl exits early, the write fails. The standard error of kubectl then contains the
        // reason, so this error is ignored.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        tokio::time::timeout(super::DEADLINE, child.wait_with_output())
            .await
            .unwrap_or_else(|_| panic!("kubectl {line} did not exit"))
            .expect("kubectl is a child of this process")
    }

    /// Starts a kubectl that runs until it is killed, such as `kubectl get -w`.
    pub fn kubectl_watch(&self, line: &str) -> Lines {
        let args: Vec<&str> = line.split(' ').collect();
        Lines::of(&self.control_plane.addresses.kubectl, &args)
    }

    /// Returns the objects that `kubectl kustomize` renders for a folder.
    pub async fn kustomize(&self, folder: &str) -> Vec<Value> {
        let yaml = self.kubectl(&format!("kustomize {folder}")).await;
        serde_saphyr::from_multiple(&yaml).expect("kubectl prints YAML")
    }

    /// Applies the kustomizations in these folders.
    pub async fn apply_folders(&self, folders: &[&str]) {
        for folder in folders {
            self.kubectl(&format!("apply -k {folder}")).await;
        }
    }

    /// Applies objects as `kubectl apply --server-side` does. Returns an error if kubectl fails.
    pub async fn try_apply(&self, objects: &[Value]) -> Result<(), String> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let line = "apply --server-side --force-conflicts -f -";
        self.kubectl_with(line, list.to_string()).await.map(|_| ())
    }

    pub async fn apply(&self, objects: &[Value]) {
        let applied = self.try_apply(objects).await;
        applied.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Deletes objects, and waits until they do not exist.
    pub async fn delete_all(&self, objects: &[Value]) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let deleted = self.kubectl_with("delete -f -", list.to_string()).await;
        deleted.expect("the objects must exist");
    }

    /// Installs these folders of manifests, and the CRDs of the kinds that the tests use.
    pub async fn install(&self, folders: &[&str]) -> Installed {
        let mut manifests = Vec::new();
        for folder in folders {
            manifests.extend(self.kustomize(folder).await);
        }
        let deployment = manifests.iter().find(|it| it["kind"] == "Deployment");
        let deployment = deployment.expect("deploy/ must have a Deployment").clone();
        let (registration, others): (Vec<Value>, Vec<Value>) = manifests
            .into_iter()
            .filter(|it| it["kind"] != "Deployment")
            .partition(|it| it["kind"] == "Service" || it["kind"] == "APIService");
        self.apply(&others).await;
        self.apply(&[crd(&VM, "Namespaced"), crd(&VMI, "Namespaced")])
            .await;
        Installed {
            deployment,
            registration,
        }
    }

    /// Registers a server on a loopback address, so that the kube-apiserver connects to it. The Service
    /// gets the type `ExternalName` with the name `localhost`, and the APIService gets the port.
    pub async fn register(&self, mut registration: Vec<Value>, port: u16) {
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
        self.apply(&registration).await;
    }

    /// Writes a kubeconfig for a ServiceAccount to this file. Next to this file, also writes the token
    /// with which the server authenticates to other replicas. `url` is the address of the kube-apiserver
    /// or of a relay.
    pub async fn credentials(&self, url: &str, (namespace, account): (&str, &str), file: &Path) {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let token = async |audiences: &[&str]| {
            let request = json!({
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                "spec": {"audiences": audiences, "expirationSeconds": 86400},
            });
            let answer = self.admin.post(&path, &request).await.ok();
            text(&answer, "/status/token").to_owned()
        };
        let ca = &self.control_plane.addresses.client_ca;
        let content = server::kubeconfig(url, ca, &token(&[]).await);
        std::fs::write(file, content.to_string()).expect("the folder is writable");
        let token = token(&[PEER_AUDIENCE]).await;
        std::fs::write(server::peer_token_file(file), token).expect("the folder is writable");
    }

    /// Starts a server process with the flags and rights of a Deployment, and does not wait until it is
    /// ready. The files of the process are in the folder `name`.
    pub async fn start_unready(&self, name: &str, deployment: &Value) -> ServerProcess {
        let url = &self.control_plane.addresses.apiserver_url;
        self.start_behind(url, name, deployment).await
    }

    /// Starts a server process as [`Self::start_unready`] does. `url` is the address of the
    /// kube-apiserver or of a relay.
    pub async fn start_behind(&self, url: &str, name: &str, deployment: &Value) -> ServerProcess {
        let dir = self.control_plane.addresses.dir.join(name);
        std::fs::create_dir_all(&dir).expect("the folder of the control plane is writable");
        // An earlier server process may have left a file with its port.
        let _ = std::fs::remove_file(dir.join("port"));
        let account = text(deployment, "/spec/template/spec/serviceAccountName");
        let account = (text(deployment, "/metadata/namespace"), account);
        let file = dir.join("kubeconfig");
        self.credentials(url, account, &file).await;
        ServerProcess::start_unready(&dir, deployment, &file)
    }

    /// Returns the installed Deployment of the server.
    pub async fn deployment(&self) -> Value {
        let namespace = self.namespace;
        let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/ifo-apiserver");
        self.admin.get(&path).await.ok()
    }

    /// Starts a server process with the flags and rights of the installed Deployment, and waits until
    /// it is ready.
    pub async fn unrouted_server(&self) -> ServerProcess {
        let mut server = self.start_unready("server", &self.deployment().await).await;
        server.until_ready().await;
        server
    }

    /// Starts a server as [`Self::unrouted_server`] does. Changes the Service, so that the
    /// kube-apiserver connects to this process.
    pub async fn server(&self) -> ServerProcess {
        let server = self.unrouted_server().await;
        let loopback = json!({"spec": {
            "type": "ExternalName", "externalName": "localhost",
            "ports": [{"name": "https", "port": server.port()}],
        }});
        let path = format!(
            "/api/v1/namespaces/{}/services/ifo-apiserver",
            self.namespace
        );
        self.admin.merge(&path, &loopback).await.ok();
        server
    }

    /// Applies a kustomization with the APIService, and writes the port of the server process into the
    /// APIService.
    pub async fn apply_registration(&self, folder: &str, server: &ServerProcess) {
        self.apply_folders(&[folder]).await;
        let port = json!({"spec": {"service": {"port": server.port()}}});
        self.admin.merge(API_SERVICE, &port).await.ok();
    }

    /// Registers the server with the kustomization in `apiservice`, and waits until operations are
    /// served.
    pub async fn register_server(&self, server: &ServerProcess) {
        self.apply_registration("apiservice", server).await;
        self.until_served().await;
    }

    /// Waits until the kube-apiserver lists operations, and until its discovery document contains
    /// the resource of operations. kubectl reads the names of the resources from this document.
    pub async fn until_served(&self) {
        self.admin.until_code(&OPERATION.path(None), 200).await;
        eventually("operations are in discovery", async || {
            let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
            let answer = self.admin.get_with("/apis", &[("Accept", accept)]).await;
            let groups = answer.body["items"].as_array().cloned().unwrap_or_default();
            let (group, _) = OPERATION.group_version();
            let live = groups.iter().find(|it| it["metadata"]["name"] == group);
            let fresh = live.is_some_and(|it| it["versions"][0]["freshness"] == "Current");
            ok_if(fresh, live)
        })
        .await;
    }

    /// Returns the APIService, or None if it does not exist.
    pub async fn registration(&self) -> Option<Value> {
        let answer = self.admin.get(API_SERVICE).await;
        (answer.code != 404).then(|| answer.ok())
    }

    /// Waits until the APIService reports that operations are written as custom resources.
    pub async fn until_persisted(&self) {
        let persisted = |it: &Value| is(it, "OperationsPersisted", "True");
        let what = "operations are persisted";
        self.admin.until_object(what, API_SERVICE, persisted).await;
    }

    /// Asserts that a namespace can be created and deleted. kubectl waits until the namespace does not
    /// exist.
    pub async fn a_namespace_can_be_deleted(&self) {
        let name = self.new_namespace("deletable").await;
        self.kubectl(&format!("delete namespace {name}")).await;
    }

    /// Creates a namespace for one test. The name of the namespace is `prefix` and a number of three
    /// digits: lists have the namespaces in the order of their creation.
    pub async fn new_namespace(&self, prefix: &str) -> &'static str {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{prefix}-{:03}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.create(&NAMESPACE, None, &NAMESPACE.object(&name, json!({})))
            .await;
        // The name is leaked, so that it lives as long as the process. A leak of a few short names
        // is harmless.
        name.leak()
    }

    /// Creates an object.
    pub async fn create(&self, kind: &Kind, namespace: Option<&str>, object: &Value) -> Value {
        self.admin.post(&kind.path(namespace), object).await.ok()
    }

    /// Changes fields of an object with a JSON merge patch.
    pub async fn merge(&self, kind: &Kind, namespace: &str, name: &str, patch: &Value) -> Value {
        let path = kind.one(Some(namespace), name);
        self.admin.merge(&path, patch).await.ok()
    }

    /// Creates a VirtualMachine with this status.
    pub async fn vm(&self, namespace: &str, name: &str, status: Value) -> Value {
        let vm = VM.object(name, json!({"status": status}));
        self.create(&VM, Some(namespace), &vm).await
    }

    /// Creates a VirtualMachine whose `printableStatus` is `status`.
    pub async fn machine(&self, namespace: &str, name: &str, status: &str) -> Value {
        self.vm(namespace, name, json!({"printableStatus": status}))
            .await
    }

    /// Changes the `printableStatus` of a VirtualMachine.
    pub async fn set_status(&self, namespace: &str, name: &str, status: &str) -> Value {
        let patch = json!({"status": {"printableStatus": status}});
        self.merge(&VM, namespace, name, &patch).await
    }

    /// Creates a rule set and waits until it is Ready.
    pub async fn ready_rule_set(&self, rule_set: &Value) -> Value {
        self.create(&RULE_SET, None, rule_set).await;
        let name = text(rule_set, "/metadata/name");
        self.until_rule_set(name, "Ready", "True").await
    }

    /// Waits until the condition of a rule set has this status or reason.
    pub async fn until_rule_set(&self, name: &str, condition: &str, value: &str) -> Value {
        let what = format!("{condition} is {value}");
        self.rule_set_until(name, &what, |it| is(it, condition, value))
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
        let path = RULE_SET.one(None, name);
        self.admin.until_object(what, &path, is).await
    }

    pub async fn delete_rule_set(&self, name: &str) {
        self.admin.delete(&RULE_SET.one(None, name)).await.ok();
    }

    /// Returns the names of all rule sets.
    pub async fn rule_sets(&self) -> Vec<String> {
        let list = self.admin.get(&RULE_SET.path(None)).await.ok();
        let name = |it: &Value| text(it, "/metadata/name").to_owned();
        items(&list).iter().map(name).collect()
    }

    /// Lists all operations of a namespace.
    pub async fn operations(&self, namespace: &str) -> Vec<Value> {
        let list = self.admin.get(&OPERATION.path(Some(namespace))).await;
        items(&list.ok()).to_vec()
    }

    /// Waits until a namespace has exactly the operations in `want`, and returns the operations. An
    /// entry of `want` is the name of a subject (the object that an operation is about) and the
    /// name of the operation, such as `Migrating`. The entries are sorted by `metadata.name` of the
    /// `InFlightOperation` objects. During a watch gap (an interruption of the server's own watch),
    /// also waits for the end of the gap.
    pub async fn until_operations(&self, namespace: &str, want: &[(&str, &str)]) -> Vec<Value> {
        eventually(&format!("operations {want:?} in {namespace}"), async || {
            let operations = self.operations(namespace).await;
            let names = |it| (text(it, "/spec/subject/name"), text(it, "/spec/operation"));
            let found: Vec<(&str, &str)> = operations.iter().map(names).collect();
            ok_if(found == want, &found)?;
            ok_if(!operations.iter().any(is_in_gap), "there is a watch gap")?;
            Ok(operations)
        })
        .await
    }

    /// Creates a namespace with the rule set [`super::migrating`], and VirtualMachines with these names
    /// that migrate. Waits until their operations exist. The names are sorted.
    pub async fn migrations(&self, prefix: &str, machines: &[&str]) -> (&'static str, Vec<Value>) {
        let namespace = self.new_namespace(prefix).await;
        self.ready_rule_set(&super::migrating(namespace)).await;
        for name in machines {
            self.machine(namespace, name, "Migrating").await;
        }
        let want: Vec<(&str, &str)> = machines.iter().map(|it| (*it, "Migrating")).collect();
        (namespace, self.until_operations(namespace, &want).await)
    }

    /// Returns the events in the audit log of the kube-apiserver after the first `skipped` lines.
    pub fn audit_log(&self, skipped: usize) -> Vec<Value> {
        let log = std::fs::read_to_string(&self.control_plane.addresses.audit_log);
        let log = log.expect("the control plane writes an audit log");
        let lines = log.lines().skip(skipped);
        lines
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// Starts a watch of the operations in a namespace.
    pub async fn watch(&self, namespace: &str) -> Events {
        let path = format!("{}?watch=1", OPERATION.path(Some(namespace)));
        let events = Events::of(&self.admin, &path).await;
        events.expect("an administrator must be allowed to watch")
    }

    /// Gives rights to a user, in a namespace or in the whole cluster. `user` can also have the form
    /// `group:NAME`. Returns the path of the binding.
    pub async fn grant(&self, user: &str, namespace: Option<&str>, rules: &Value) -> String {
        let (prefix, folder) = rbac_folder(namespace);
        let name = format!("{}-{}", user.replace(':', "-"), uuid::Uuid::new_v4());
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{prefix}Role"),
            "metadata": {"name": name}, "rules": rules,
        });
        let roles = format!("{folder}{}roles", prefix.to_lowercase());
        self.admin.post(&roles, &role).await.ok();
        let role = format!("{prefix}Role");
        self.bind(user, namespace, (&role, &name)).await
    }

    /// Binds a role to a user or a group, as [`Self::grant`] does. Returns the path of the binding.
    pub async fn bind(
        &self,
        user: &str,
        namespace: Option<&str>,
        (kind, role): (&str, &str),
    ) -> String {
        let (prefix, folder) = rbac_folder(namespace);
        let group = "rbac.authorization.k8s.io";
        let (subject, user) = match user.strip_prefix("group:") {
            Some(name) => ("Group", name),
            None => ("User", user),
        };
        let name = uuid::Uuid::new_v4().to_string();
        let binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": format!("{prefix}RoleBinding"),
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": kind, "name": role},
            "subjects": [{"apiGroup": group, "kind": subject, "name": user}],
        });
        let bindings = format!("{folder}{}rolebindings", prefix.to_lowercase());
        self.admin.post(&bindings, &binding).await.ok();
        format!("{bindings}/{name}")
    }

    /// Binds the ClusterRole `view` to the user in the namespace. This role includes the right to read
    /// operations. Returns the path of the binding.
    pub async fn grant_view(&self, namespace: &str, user: &str) -> String {
        self.bind(user, Some(namespace), ("ClusterRole", "view"))
            .await
    }
}

/// Returns the prefix of the kinds of roles, and the API path of the folder of roles.
fn rbac_folder(namespace: Option<&str>) -> (&'static str, String) {
    match namespace {
        Some(namespace) => ("", format!("{RBAC}/namespaces/{namespace}/")),
        None => ("Cluster", format!("{RBAC}/")),
    }
}

/// Splits a line of a table of kubectl into its cells. Two or more spaces separate two cells.
/// Leaves out empty cells.
pub fn columns(line: &str) -> Vec<&str> {
    let cells = line.split("  ").map(str::trim);
    cells.filter(|cell| !cell.is_empty()).collect()
}
