//! The bare watch: a process that watches the subjects (the `VirtualMachine` objects) with the
//! client code of `ifo-apiserver`, and drops every event.
//!
//! The processor time of the bare watch is the cost of the watch alone. The difference to the
//! processor time of `ifo-apiserver` is the cost of rules and operations. Both times depend on the
//! control plane and on the machine, so both processes are measured at the same time.

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

/// The environment variable that makes this program a bare watch. Its value is the path of the
/// kubeconfig.
const KUBECONFIG: &str = "IFO_BENCH_BARE_WATCH";

/// A running bare watch. The process is killed when this value is dropped.
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

    /// Returns the user and system time that the current threads of the process have used so far.
    pub fn processor_time(&self) -> anyhow::Result<Duration> {
        processor_of(self.0.id())
    }
}

impl Drop for BareWatch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// If [`BareWatch::start`] started this process, watches until the process is killed. Otherwise
/// returns at once. The watch uses one thread, because `ifo-apiserver` also uses one thread for
/// watches and rules.
pub fn run_if_bare_watch() -> anyhow::Result<()> {
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
    let mut events = cluster.follow(source, None);
    while let Some(event) = events.next().await {
        if let Raw::Lost(lost) = event {
            eprintln!("the bare watch was interrupted: {lost}");
        }
    }
    Ok(())
}
