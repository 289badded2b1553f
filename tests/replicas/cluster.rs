//! The replicas, their control plane, and the controls with which a test disturbs them.

use crate::balancer::{self, Endpoint, Endpoints};
use crate::harness::relay::Relay;
use crate::harness::{
    Caller, ControlPlane, Image, Installed, OPERATION, Server, administrator, credentials,
    eventually, front_proxy, install, register, so, text,
};
use http::Method;
use kube::Config;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// The Lease of the replicas.
pub const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/ifo-system/leases/ifo-apiserver";

/// The registration of the replicas.
const REGISTRATION: &str =
    "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.live.ifo.kubevirt.io";

/// The replicas behind one address, and what belongs to them.
pub struct Replicas<'a> {
    pub control_plane: &'a ControlPlane,
    /// A client through kube-apiserver, as a member of system:masters.
    pub admin: Caller,
    pub endpoints: Endpoints,
    pub all: Vec<Replica>,
    image: Image,
    deployment: Value,
    started: usize,
}

/// One replica: the server, its relay to kube-apiserver, and its position behind the balancer.
pub struct Replica {
    pub server: Server,
    pub relay: Relay,
    pub endpoint: Arc<Endpoint>,
    kubeconfig: PathBuf,
}

impl Replica {
    /// Starts the container again after its end, and waits until it is ready.
    pub async fn start_again(&mut self) {
        self.server.start_again(&self.kubeconfig).await;
        self.endpoint.recover();
    }
}

impl<'a> Replicas<'a> {
    /// Installs these folders, and starts this many replicas with these variables.
    pub async fn start(
        control_plane: &'a ControlPlane,
        folders: &[&str],
        variables: &[(&str, &str)],
        count: usize,
    ) -> Self {
        let image = Image::default();
        let mut replicas = Self::install(control_plane, image, folders, variables).await;
        for _ in 0..count {
            replicas.add().await;
        }
        replicas.recovered().await;
        replicas
    }

    /// Installs these folders, and starts no replica yet.
    pub async fn install(
        control_plane: &'a ControlPlane,
        image: Image,
        folders: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let (_, admin) = administrator(control_plane).await;
        let Installed {
            deployment,
            registration,
        } = install(control_plane, folders).await;
        let endpoints = Endpoints::default();
        let port = balancer::start(&endpoints).await;
        register(control_plane, registration, port).await;
        Self {
            control_plane,
            admin,
            endpoints,
            all: Vec::new(),
            image,
            deployment: with_variables(deployment, variables),
            started: 0,
        }
    }

    /// Starts further replicas from this release, whose manifests are the same.
    pub fn use_image(&mut self, image: Image) {
        self.image = image;
    }

    /// Applies the folders of another release. Further replicas belong to it.
    pub async fn apply(&mut self, image: Image, folders: &[&str], variables: &[(&str, &str)]) {
        let installed = install(self.control_plane, folders).await;
        self.deployment = with_variables(installed.deployment, variables);
        self.image = image;
    }

    /// Starts one more replica in a Pod of its own, and waits until it is ready.
    pub async fn add(&mut self) {
        let number = self.started;
        self.started += 1;
        let state = &self.control_plane.state;
        let dir = state.dir.join(format!("replica-{number}"));
        std::fs::create_dir_all(&dir).expect("the run's folder is ours");
        let relay = Relay::start(&state.server).await;
        let kubeconfig = dir.join("kubeconfig");
        let account = text(&self.deployment, "/spec/template/spec/serviceAccountName");
        let account = (text(&self.deployment, "/metadata/namespace"), account);
        let (control_plane, admin) = (self.control_plane, &self.admin);
        credentials(control_plane, &relay.url, admin, account, &kubeconfig).await;
        let image = self.image.clone();
        let server = Server::start_image(image, &dir, &self.deployment, &kubeconfig).await;
        let caller = front_proxy(control_plane, as_administrator(server.stranger()));
        let endpoint = Endpoint::new(number, server.port(), caller, server.stranger());
        let endpoint = Arc::new(endpoint);
        self.endpoints.add(endpoint.clone());
        self.all.push(Replica {
            server,
            relay,
            endpoint,
            kubeconfig,
        });
    }

    /// Deletes the Pod of the oldest replica.
    pub async fn remove_oldest(&mut self) {
        let mut oldest = self.all.remove(0);
        oldest.endpoint.disturb();
        let status = oldest.server.terminate().await;
        assert!(status.success(), "{status}");
        self.endpoints.remove(oldest.endpoint.number);
    }

    /// Waits until a replica holds the Lease. Returns its index.
    pub async fn leader(&self) -> usize {
        eventually("a replica holds the Lease", async || {
            let lease = self.admin.try_get(LEASE).await?;
            let holder = text(&lease.body, "/spec/holderIdentity");
            let holds = |replica: &Replica| {
                let (uid, _) = holder.split_once('_').unwrap_or_default();
                uid == replica.server.uid().to_string()
            };
            let leader = self.all.iter().position(holds);
            leader.ok_or_else(|| format!("{}: {}", lease.code, lease.text))
        })
        .await
    }

    /// Waits until a replica leads, all are ready, and the kube-apiserver serves operations.
    pub async fn recovered(&self) {
        self.leader().await;
        self.served().await;
    }

    /// Waits until all are ready, and the kube-apiserver serves operations.
    pub async fn served(&self) {
        balancer::all_ready(&self.endpoints).await;
        for replica in &self.all {
            replica.endpoint.recover();
        }
        eventually("the registration is available", async || {
            let found = self.admin.try_get(REGISTRATION).await?;
            let conditions = found.body["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            let available = |it: &Value| it["type"] == "Available" && it["status"] == "True";
            so(conditions.any(available), &found)
        })
        .await;
        // Its connections to a deleted replica are closed, too.
        for _ in 0..10 {
            eventually("operations are served", async || {
                let answer = self.admin.try_get(&OPERATION.path(None)).await?;
                so(answer.code == 200, answer)
            })
            .await;
        }
    }

    /// Deletes the Lease.
    pub async fn delete_lease(&self) {
        let answer = self.admin.delete(LEASE).await;
        assert_eq!(answer.code, 200, "{}", answer.text);
    }

    /// Changes the Lease, also if other clients write it at the same time.
    pub async fn edit_lease(&self, edit: impl Fn(&mut Value)) {
        eventually("the Lease is edited", async || {
            let mut lease = self.admin.get(LEASE).await.ok();
            edit(&mut lease);
            let body = lease.to_string();
            let kind = "application/json";
            let answer = self.admin.send(Method::PUT, LEASE, kind, body).await;
            so(answer.code == 200, answer)
        })
        .await;
    }

    /// The last lines of the replicas' logs.
    pub fn logs(&self) -> String {
        let logs = (0..self.started).map(|number| {
            let dir = self
                .control_plane
                .state
                .dir
                .join(format!("replica-{number}"));
            format!("replica {number}: {}\n", crate::harness::tail(&dir))
        });
        logs.collect()
    }
}

/// The Deployment with these variables in the environment of its container.
fn with_variables(mut deployment: Value, variables: &[(&str, &str)]) -> Value {
    let env = deployment.pointer_mut("/spec/template/spec/containers/0/env");
    let env = env.and_then(Value::as_array_mut).expect("a list");
    for (name, value) in variables {
        env.retain(|it| it["name"] != *name);
        env.push(json!({"name": name, "value": value}));
    }
    deployment
}

/// Sets every value to one that no replica has written.
pub fn garble(lease: &mut Value) {
    let annotations = lease["metadata"]["annotations"].as_object_mut();
    for (_, value) in annotations.into_iter().flatten() {
        *value = json!("not what a replica writes");
    }
}

/// Requests as kube-apiserver forwards them for an administrator.
fn as_administrator(mut config: Config) -> Config {
    let header = |name: &'static str, value: &'static str| {
        (
            http::HeaderName::from_static(name),
            http::HeaderValue::from_static(value),
        )
    };
    config.headers.push(header("x-remote-user", "test"));
    config
        .headers
        .push(header("x-remote-group", "system:masters"));
    config
}
