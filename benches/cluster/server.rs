//! Starts the measured server `ifo-apiserver`, and reads its memory and its processor time.

use crate::api_client::{Api, LIVE_API_PATH};
use anyhow::{Context as _, bail};
use kube::config::Kubeconfig;
use kube::{Client, Config};
use serde_json::json;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server. The process is killed when this value is dropped.
pub struct MeasuredServer {
    child: Child,
    pub port: u16,
    /// Time from the start of the process until it served its discovery document.
    pub startup_time: Duration,
}

/// Resident memory of a process in KB.
pub struct Memory {
    pub resident: u64,
    /// Resident memory without mapped files, such as the program itself.
    anonymous: u64,
    /// Largest resident memory of the process so far.
    peak: u64,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} KB resident ({} of them anonymous), {} KB at most so far",
            self.resident, self.anonymous, self.peak
        )
    }
}

impl MeasuredServer {
    pub async fn start(api: &Api) -> anyhow::Result<Self> {
        let program = std::env::var_os("IFO_BENCH_SERVER")
            .map_or_else(|| env!("CARGO_BIN_EXE_ifo-apiserver").into(), PathBuf::from);
        let file = std::env::temp_dir().join(format!("ifo-bench-{}.port", std::process::id()));
        let start = Instant::now();
        let child = Command::new(&program)
            .args(["--secure-port=0", "--bind-address=127.0.0.1"])
            .arg("--kubeconfig")
            .arg(&api.kubeconfig)
            .arg("--port-file")
            .arg(&file)
            .env("DEBOUNCE_THRESHOLD", "5s")
            // By default, the part `watchers` opens 1,000 watches. The server's default limit is
            // 500.
            .env("MAX_WATCHES", "2000")
            .env("RUST_LOG", "off")
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut server = Self {
            child,
            port: 0,
            startup_time: Duration::ZERO,
        };
        server.port = read_port(&file).await?;
        let mut config = Config::new(server.url().parse()?);
        config.accept_invalid_certs = true;
        let anonymous = Api {
            kubeconfig: PathBuf::new(),
            client: Client::try_from(config)?,
        };
        anonymous.get(LIVE_API_PATH).await?;
        server.startup_time = start.elapsed();
        let _ = std::fs::remove_file(file);
        Ok(server)
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Returns a client that sends requests directly to this server, and not to the kube-apiserver.
    /// The client authenticates as the same user as `api`.
    pub async fn direct(&self, api: &Api) -> anyhow::Result<Api> {
        let mut kubeconfig = Kubeconfig::read_from(&api.kubeconfig)?;
        for cluster in &mut kubeconfig.clusters {
            if let Some(cluster) = &mut cluster.cluster {
                cluster.server = Some(self.url());
                cluster.certificate_authority = None;
                cluster.certificate_authority_data = None;
                cluster.insecure_skip_tls_verify = Some(true);
            }
        }
        let name = format!("ifo-bench-{}-{}.json", std::process::id(), self.port);
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, serde_json::to_vec(&kubeconfig)?)?;
        Api::connect(file).await
    }

    /// Registers the server in the APIService. Waits until the kube-apiserver forwards requests to
    /// the server.
    pub async fn register(&self, api: &Api) -> anyhow::Result<()> {
        let service = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "ifo-apiserver", "namespace": "ifo-system"},
            "spec": {"type": "ExternalName", "externalName": "localhost",
                "ports": [{"port": self.port}]}});
        api.apply(
            "/api/v1/namespaces/ifo-system/services/ifo-apiserver",
            &service.to_string(),
        )
        .await?;
        let name = "v1alpha1.live.ifo.kubevirt.io";
        let registration = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": name},
            "spec": {"group": "live.ifo.kubevirt.io", "version": "v1alpha1",
                "groupPriorityMinimum": 2000, "versionPriority": 100,
                "service": {"name": "ifo-apiserver", "namespace": "ifo-system",
                    "port": self.port}}});
        api.apply(
            &format!("/apis/apiregistration.k8s.io/v1/apiservices/{name}"),
            &registration.to_string(),
        )
        .await?;
        api.wait_until_served(&format!("{LIVE_API_PATH}/inflightoperations?limit=1"))
            .await
    }

    pub fn memory(&self) -> anyhow::Result<Memory> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let kilobytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
                .with_context(|| format!("/proc/PID/status has no line {name}"))
        };
        Ok(Memory {
            resident: kilobytes("VmRSS:")?,
            anonymous: kilobytes("RssAnon:")?,
            peak: kilobytes("VmHWM:")?,
        })
    }

    /// Returns the user and system time that the current threads of the process have used so far.
    pub fn processor_time(&self) -> anyhow::Result<Duration> {
        processor_of(self.child.id())
    }

    /// Returns the processor time that the process has used since an earlier call of
    /// [`Self::processor_time`] returned `before`.
    pub fn processor_time_since(&self, before: Duration) -> anyhow::Result<Duration> {
        // The processor time does not include threads that have ended, so it can decrease. If it
        // has decreased, the result is zero.
        Ok(self.processor_time()?.saturating_sub(before))
    }

    pub fn print_processor(
        &self,
        what: &str,
        before: Duration,
        events: usize,
    ) -> anyhow::Result<()> {
        let each = self.processor_time_since(before)? / u32::try_from(events)?;
        println!("processor time for each of {events} {what}: {each:.1?}");
        Ok(())
    }
}

impl Drop for MeasuredServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the user and system time that the current threads of a process have used so far.
pub fn processor_of(process: u32) -> anyhow::Result<Duration> {
    let mut nanoseconds = 0;
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        // If the thread has just ended, the file is missing.
        let text = std::fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        nanoseconds += text
            .split(' ')
            .next()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// Waits until the server has written its port to `file`, and returns the port.
async fn read_port(file: &Path) -> anyhow::Result<u16> {
    for _ in 0..10_000 {
        // The file is missing or empty until the server has written its port.
        let text = std::fs::read_to_string(file).unwrap_or_default();
        if let Ok(port) = text.trim().parse() {
            return Ok(port);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    bail!("the server did not write its port within 10 s")
}
