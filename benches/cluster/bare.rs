//! A process that only watches the subjects, with the server's own client, and drops what it
//! reads. What the server takes for an event beyond this is its own work; what both take depends
//! on the control plane and on the machine.

use crate::server::processor_of;
use anyhow::Context as _;
use futures::StreamExt as _;
use ifo::observe::{ClusterFeed, ConnectOptions, Feed as _, Raw, connect};
use ifo::telemetry::Metrics;
use ifo_api::{Gvr, Source};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Set in the process: the kubeconfig that it watches with.
const KUBECONFIG: &str = "IFO_BENCH_BARE_WATCH";

/// The process. It is killed when this is dropped.
pub struct BareWatch(Child);

impl BareWatch {
    /// Starts the process.
    pub fn start(kubeconfig: &Path) -> anyhow::Result<Self> {
        let own = std::env::current_exe()?;
        let child = Command::new(own)
            .env(KUBECONFIG, kubeconfig)
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start the bare watch")?;
        Ok(Self(child))
    }

    /// Processor time of all its threads so far, user and system.
    pub fn processor(&self) -> anyhow::Result<Duration> {
        processor_of(self.0.id())
    }
}

impl Drop for BareWatch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Watches for ever, if this process was started for that. Runs on one thread, as the server's
/// pipeline does.
pub fn watch_if_started_for_it() -> anyhow::Result<()> {
    let Some(kubeconfig) = std::env::var_os(KUBECONFIG) else {
        return Ok(());
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(watch(PathBuf::from(kubeconfig)))
}

async fn watch(kubeconfig: PathBuf) -> anyhow::Result<()> {
    let options = ConnectOptions {
        kubeconfig: Some(kubeconfig),
        api_timeout: Duration::from_secs(30),
    };
    let connection = connect(&options).await?;
    let retry = Duration::from_secs(30);
    let cluster = ClusterFeed::new(connection, retry, Arc::new(Metrics::new()));
    let target = Gvr {
        group: "kubevirt.io".to_owned(),
        version: "v1".to_owned(),
        resource: "virtualmachines".to_owned(),
    };
    let source = Source {
        target: Arc::new(target),
        namespace: None,
    };
    let mut events = cluster.follow(source);
    while let Some(event) = events.next().await {
        if let Raw::Lost(lost) = event {
            eprintln!("the bare watch has a gap: {lost}");
        }
    }
    Ok(())
}
