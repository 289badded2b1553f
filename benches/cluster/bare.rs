//! A process that only watches the subjects with the server's own client, and drops them. It is the
//! baseline for the server: the rest of the server's time for an event is its own work. Both depend
//! on the control plane and the machine.

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

/// Variable of the process with its kubeconfig.
const KUBECONFIG: &str = "IFO_BENCH_BARE_WATCH";

/// The process. Dropping it kills the process.
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

    /// Returns the processor time of all its threads so far, user and system.
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

/// Watches without end, if this process was started for it. Like the server's pipeline, it uses one
/// thread.
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
