//! Starts the real server with the fake kube-apiserver of `fake_apiserver.rs`, and sends requests
//! to the server.

use crate::demo::{
    DEADLINE, OPERATIONS, active_line, demo_command, eventually, signal, wait_for_exit,
};
use crate::fake_apiserver::FakeApiServer;
use aggregated_apiserver::certs::Authority;
use kube::{Client, Config};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::Value;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::Instant;

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
    let loopback = ["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
    let certified = authority
        .issue(&["localhost".to_owned()], &loopback)
        .unwrap();
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

/// A running server process. Dropping this value kills the process.
pub struct RunningServer {
    pub client: Client,
    pub config: Config,
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    _folder: tempfile::TempDir,
}

impl RunningServer {
    pub async fn start(api_server: &FakeApiServer) -> Self {
        Self::start_with(api_server, &["--bind-address=127.0.0.1"]).await
    }

    pub async fn start_with(api_server: &FakeApiServer, args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let authority = write_files(folder.path(), &api_server.address.to_string());
        let mut child = command(folder.path(), CertificateSource::Given)
            .args(args)
            .spawn()
            .unwrap();
        let log = Arc::<Mutex<Vec<String>>>::default();
        let lines = Arc::clone(&log);
        let mut log_lines = BufReader::new(child.stderr.take().unwrap()).lines();
        tokio::spawn(async move {
            while let Ok(Some(line)) = log_lines.next_line().await {
                lines.lock().unwrap().push(line);
            }
        });
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
            child,
            log,
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
                let items = list["items"].as_array().unwrap();
                let mut all: Vec<_> = items.iter().filter_map(active_line).collect();
                all.sort();
                all
            }
            Err(kube::Error::Api(status)) if status.code == 429 => Vec::new(),
            Err(error) => panic!("{error}; log: {:#?}", self.log()),
        }
    }

    /// Waits until `holds` returns true for the operations in flight. `what` describes this
    /// expectation in the error message.
    pub async fn wait_until(&self, what: &str, holds: impl Fn(&[String]) -> bool) {
        let started = Instant::now();
        loop {
            let active = self.active().await;
            if holds(&active) {
                return;
            }
            assert!(
                started.elapsed() < DEADLINE,
                "this did not happen within {} s: {what}; the operations are {active:?}; log: {:#?}",
                DEADLINE.as_secs(),
                self.log()
            );
            tokio::time::sleep(crate::demo::POLL_INTERVAL).await;
        }
    }

    /// Sends a signal, such as `TERM`, to the server.
    pub fn signal(&self, name: &str) {
        signal(self.child.id().unwrap(), name);
    }

    pub async fn wait_for_exit(&mut self) -> ExitStatus {
        wait_for_exit(&mut self.child).await
    }

    /// Waits until a line of the log contains this text.
    pub async fn wait_for_log(&self, text: &str) {
        eventually(text, async || {
            let log = self.log();
            log.iter().any(|line| line.contains(text)).then_some(())
        })
        .await;
    }

    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// Asserts that the server still runs, has not panicked, and has always needed less than
    /// `mebibytes` MiB of memory. Returns its peak memory in bytes.
    pub fn assert_healthy_within(&mut self, mebibytes: u64) -> u64 {
        assert!(
            self.child.try_wait().unwrap().is_none(),
            "the server has exited"
        );
        crate::assert_no_panics(&self.log());
        let peak = crate::peak_memory(self.child.id().unwrap());
        assert!(peak < mebibytes << 20, "{} MiB at the peak", peak >> 20);
        peak
    }
}
