//! A control plane, and functions that run kubectl on it, and install and start servers.

use super::control_plane::ControlPlane;
use super::server::{self, ServerProcess};
use super::{API_SERVICE, Caller, OPERATION, VM, VMI, eventually, is, ok_if, text};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Output, Stdio};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// The user name of the server.
pub const ACCOUNT: &str = "system:serviceaccount:ifo-system:ifo-apiserver";

/// The audience of the tokens with which replicas authenticate to each other, as in the Deployment
/// in `deploy/`.
const PEER_AUDIENCE: &str = "ifo-apiserver";

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
#[derive(Debug, Default)]
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
        let mut installed = Installed::default();
        let mut others = Vec::new();
        for folder in folders {
            for object in self.kustomize(folder).await {
                match text(&object, "/kind") {
                    "Deployment" => installed.deployment = object,
                    "Service" | "APIService" => installed.registration.push(object),
                    _ => others.push(object),
                }
            }
        }
        self.apply(&others).await;
        self.define(&[VM, VMI]).await;
        installed
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
}

/// Splits a line of a table of kubectl into its cells. Two or more spaces separate two cells.
/// Leaves out empty cells.
pub fn columns(line: &str) -> Vec<&str> {
    let cells = line.split("  ").map(str::trim);
    cells.filter(|cell| !cell.is_empty()).collect()
}
