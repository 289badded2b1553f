//! The real binary in front of an impostor.

use crate::demo::{DEADLINE, OPERATIONS, active, binary, eventually};
use crate::impostor::Impostor;
use ifo::certs::Authority;
use kube::{Client, Config};
use serde_json::Value;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;
use tokio::time::Instant;

/// Settings that make the tests quick; no test is about them.
const QUICK: [&str; 3] = [
    "--requeue-interval=1s",
    "--debounce-threshold=0",
    "--informer-sync-timeout=2s",
];

/// A server that runs; it is killed when this is dropped.
pub struct Server {
    pub client: Client,
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    _folder: tempfile::TempDir,
}

impl Server {
    pub async fn start(impostor: &Impostor) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let authority = Authority::create().unwrap();
        let certified = authority
            .issue(&["localhost".to_owned()], &["127.0.0.1".parse().unwrap()])
            .unwrap();
        std::fs::write(file("tls.crt"), &certified.chain).unwrap();
        std::fs::write(file("tls.key"), &certified.key).unwrap();
        let kubeconfig = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: k, user: u}}}}], \
             clusters: [{{name: k, cluster: {{server: \"http://{}\"}}}}], users: [{{name: u, user: {{token: t}}}}]}}",
            impostor.address
        );
        std::fs::write(file("kubeconfig"), kubeconfig).unwrap();
        let mut child = binary(&QUICK)
            .args(["--bind-address=127.0.0.1", "--secure-port=0", "--port-file"])
            .arg(file("port"))
            .arg("--kubeconfig")
            .arg(file("kubeconfig"))
            .arg("--tls-cert-file")
            .arg(file("tls.crt"))
            .arg("--tls-private-key-file")
            .arg(file("tls.key"))
            .spawn()
            .unwrap();
        let log = Arc::<Mutex<Vec<String>>>::default();
        let lines = Arc::clone(&log);
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
        tokio::spawn(async move {
            while let Ok(Some(line)) = errors.next_line().await {
                lines.lock().unwrap().push(line);
            }
        });
        let port = eventually("a port", async || {
            std::fs::read_to_string(file("port")).ok()
        })
        .await;
        let url = format!("https://localhost:{}", port.trim());
        let mut config = Config::new(url.parse().unwrap());
        config.root_cert = Some(vec![
            openssl::x509::X509::from_pem(authority.bundle().unwrap().as_bytes())
                .unwrap()
                .to_der()
                .unwrap(),
        ]);
        config.auth_info.token = Some("token".to_owned().into());
        Self {
            client: Client::try_from(config).unwrap(),
            child,
            log,
            _folder: folder,
        }
    }

    /// The answer to a GET, as text.
    pub async fn text(&self, path: &str) -> Result<String, kube::Error> {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        self.client.request_text(request).await
    }

    /// The operations that are under way, as `subject operation`; none before data is
    /// served.
    pub async fn active(&self) -> Vec<String> {
        match self.text(OPERATIONS).await {
            Ok(text) => {
                let list: Value = serde_json::from_str(&text).unwrap();
                let items = list["items"].as_array().unwrap();
                let mut all: Vec<_> = items.iter().filter_map(active).collect();
                all.sort();
                all
            }
            Err(kube::Error::Api(status)) if status.code == 429 => Vec::new(),
            Err(error) => panic!("{error}; log: {:#?}", self.log()),
        }
    }

    /// Waits until the operations under way are so.
    pub async fn until(&self, what: &str, holds: impl Fn(&[String]) -> bool) {
        let started = Instant::now();
        loop {
            let active = self.active().await;
            if holds(&active) {
                return;
            }
            assert!(
                started.elapsed() < 2 * DEADLINE,
                "in vain: {what}; {active:?}; log: {:#?}",
                self.log()
            );
            tokio::time::sleep(crate::demo::LOOK).await;
        }
    }

    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// Asserts that it runs, has not panicked, and never had more memory than this.
    pub fn stayed_within(&mut self, mebibytes: u64) {
        assert!(self.child.try_wait().unwrap().is_none(), "it ended");
        crate::calm(&self.log());
        let peak = crate::peak_memory(self.child.id().unwrap());
        assert!(peak < mebibytes << 20, "{} MiB at the peak", peak >> 20);
    }
}
