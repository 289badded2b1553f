//! Starts the real server with the fake kube-apiserver of `fake_apiserver.rs`, and sends requests
//! to the server.

use crate::demo::{OPERATIONS, Process, active, demo_command, eventually};
use crate::fake_apiserver::FakeApiServer;
use aggregated_apiserver::certs::Authority;
use kube::{Client, Config};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::Value;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use tokio::process::Command;

/// Flags with short times, so that the tests are faster.
const QUICK: [&str; 3] = [
    "--requeue-interval=1s",
    "--debounce-threshold=0",
    "--informer-sync-timeout=2s",
];

/// The source of the server's serving certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CertificateSource {
    /// The certificate is in files, which the command line names.
    Given,
    /// The server issues the certificate with its own CA. The server reads the CA from a Secret.
    Own,
}

/// Writes a serving certificate, its key and a kubeconfig to `folder`. The kubeconfig names a
/// kube-apiserver at `address`. Returns the CA of the certificate.
pub fn write_files(folder: &Path, address: &str) -> Authority {
    let authority = Authority::create().unwrap();
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let certified = authority.issue(&names).unwrap();
    std::fs::write(folder.join("tls.crt"), &certified.chain).unwrap();
    std::fs::write(folder.join("tls.key"), &certified.key).unwrap();
    let kubeconfig = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: k, user: u}}}}], \
         clusters: [{{name: k, cluster: {{server: \"http://{address}\"}}}}], users: [{{name: u, user: {{token: t}}}}]}}"
    );
    std::fs::write(folder.join("kubeconfig"), kubeconfig).unwrap();
    authority
}

/// Returns a command that starts the server with the files that [`write_files`] has written to
/// `folder`. The server writes its port to the file `port` in this folder.
pub fn command(folder: &Path, certificate: CertificateSource) -> Command {
    let mut command = demo_command(&QUICK);
    command
        .args(["--secure-port=0", "--port-file"])
        .arg(folder.join("port"))
        .arg("--kubeconfig")
        .arg(folder.join("kubeconfig"));
    if certificate == CertificateSource::Given {
        command
            .arg("--tls-cert-file")
            .arg(folder.join("tls.crt"))
            .arg("--tls-private-key-file")
            .arg(folder.join("tls.key"));
    }
    command
}

/// A running server process.
pub struct RunningServer {
    process: Process,
    client: Client,
    pub config: Config,
    _folder: tempfile::TempDir,
}

impl Deref for RunningServer {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for RunningServer {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

impl RunningServer {
    pub async fn start(api_server: &FakeApiServer) -> Self {
        Self::start_with(api_server, &["--bind-address=127.0.0.1"]).await
    }

    pub async fn start_with(api_server: &FakeApiServer, args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let authority = write_files(folder.path(), &api_server.address.to_string());
        let mut command = command(folder.path(), CertificateSource::Given);
        command.args(args);
        let process = Process::spawn(command);
        let port = eventually("a port", async || {
            std::fs::read_to_string(file("port")).ok()
        })
        .await;
        let url = format!("https://localhost:{}", port.trim());
        let mut config = Config::new(url.parse().unwrap());
        let root = CertificateDer::from_pem_slice(authority.bundle().as_bytes()).unwrap();
        config.root_cert = Some(vec![root.to_vec()]);
        config.auth_info.token = Some("token".to_owned().into());
        Self {
            client: Client::try_from(config.clone()).unwrap(),
            config,
            process,
            _folder: folder,
        }
    }

    /// Sends a GET request, and returns the body of the answer.
    pub async fn text(&self, path: &str) -> Result<String, kube::Error> {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        self.client.request_text(request).await
    }

    /// Returns the operations in flight. Each entry is the name of a subject and the name of its
    /// operation, such as `web Starting`. If the server answers 429, the result is empty. The
    /// server does so after its start, until it has read all resources that rule sets watch.
    pub async fn active(&self) -> Vec<String> {
        match self.text(OPERATIONS).await {
            Ok(text) => {
                let list: Value = serde_json::from_str(&text).unwrap();
                active(list["items"].as_array().unwrap())
            }
            Err(kube::Error::Api(status)) if status.code == 429 => Vec::new(),
            Err(error) => panic!("{error}; log: {:#?}", self.log()),
        }
    }

    /// Asserts that the server still runs, has not panicked, and has always needed less than
    /// `mebibytes` MiB of memory. Returns its peak memory in bytes.
    pub fn assert_healthy_within(&mut self, mebibytes: u64) -> u64 {
        assert!(
            self.child.try_wait().unwrap().is_none(),
            "the server has exited"
        );
        crate::assert_no_panics(&self.log());
        let peak = crate::peak_memory(self.id());
        assert!(peak < mebibytes << 20, "{} MiB at the peak", peak >> 20);
        peak
    }
}
