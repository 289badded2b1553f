//! The clusters that several tests share: a control plane, the installed manifests of `deploy/`, and
//! the server under test.

use super::{Caller, Cluster, ServerProcess, server};
use kube::Config;
use serde_json::json;
use std::ops::Deref;
use std::path::PathBuf;
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

/// The name of the folder with the files of the server.
const SERVER: &str = "server";

/// A cluster that several tests share, and its server.
pub struct TestCluster {
    cluster: Cluster,
    /// The server under test. Only a test that runs inside [`super::alone`] may stop the server,
    /// because all other tests use the same server.
    pub server: Mutex<ServerProcess>,
    /// The URL of the server, for tests that do not lock `server`.
    server_url: String,
}

impl Deref for TestCluster {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl TestCluster {
    /// Starts the control plane and the server. Returns an error with the reason if this machine
    /// cannot run a control plane.
    ///
    /// `name` is the name of a folder for the files of the control plane. `flags` are added to the flags
    /// of the Deployment.
    pub async fn start(name: &str, flags: &[&str]) -> Result<Self, String> {
        let cluster = Cluster::start(name).await?;
        let mut installed = cluster.install(&MANIFEST_FOLDERS).await;
        let pod = &mut installed.deployment["spec"]["template"]["spec"];
        let args = pod["containers"][0]["args"].as_array_mut();
        let args = args.expect("the container has arguments");
        args.extend(flags.iter().map(|flag| json!(flag)));
        let mut server = cluster.start_unready(SERVER, &installed.deployment).await;
        server.until_ready().await;
        cluster
            .register(installed.registration, server.port())
            .await;
        cluster.until_served().await;
        Ok(Self {
            server_url: server.url(),
            server: Mutex::new(server),
            cluster,
        })
    }

    /// Starts the kube-apiserver and the server again if a test has stopped them.
    pub async fn recover(&self) {
        // The command fails if the kube-apiserver is already running, so the error is ignored.
        let _ = self.control_plane.command("start kube-apiserver").await;
        let mut server = self.server.lock().await;
        if !server.is_running() {
            server.start_again().await;
        }
        drop(server);
        self.until_served().await;
    }

    fn folder(&self) -> PathBuf {
        self.control_plane.addresses.dir.join(SERVER)
    }

    /// Returns the last lines of the server's log.
    pub fn log_tail(&self) -> String {
        server::tail(&self.folder())
    }

    /// Returns a client that connects to the server directly, as the kube-apiserver does.
    pub fn front_proxy(&self) -> Caller {
        self.front_proxy_of(self.direct())
    }

    /// Returns the configuration of a client that connects to the server directly, without
    /// credentials.
    pub fn direct(&self) -> Config {
        server::without_credentials(&self.server_url)
    }
}
