//! Reads the memory and the processor time of processes: of the measured server, and of the bare watch.
//!
//! The bare watch is a process that watches the subjects with the client code of `ifo-apiserver`, and
//! drops every event. Its processor time is the cost of the watch alone. Both times depend on the control
//! plane and on the machine, so both processes are measured at the same time.

use futures::StreamExt as _;
use ifo_api::{Gvr, Source};
use ifo_observe::{ClusterFeed, Feed as _, Raw, connect};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Returns the resident memory of a process, as text. `anonymous` memory is without mapped files, such as
/// the program itself.
pub fn memory(process: u32) -> String {
    let [resident, anonymous, peak] =
        ["VmRSS:", "RssAnon:", "VmHWM:"].map(|it| kilobytes(process, it));
    format!("{resident} KB resident ({anonymous} of them anonymous), {peak} KB at most so far")
}

/// Returns the value of a line of `/proc/PID/status`.
fn kilobytes(process: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"));
    let status = status.expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
    number.expect("the status has this line")
}

/// Returns the user and system time that the current threads of a process have used so far. It does not
/// include threads that have ended, so it can decrease.
pub fn processor_time(process: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("the process runs");
    let nanoseconds = tasks.flatten().map(|task| {
        // If the thread has just ended, the file is missing.
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        text.split(' ')
            .next()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// The environment variable that makes this program a bare watch. Its value is the path of the
/// kubeconfig.
const KUBECONFIG: &str = "IFO_BENCH_BARE_WATCH";

/// Starts the bare watch.
pub fn start_bare_watch(kubeconfig: &Path) -> Child {
    let own = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(own);
    command.env(KUBECONFIG, kubeconfig).stdin(Stdio::null());
    command.spawn().expect("the bare watch can be started")
}

/// If [`start_bare_watch`] started this process, watches until the process is killed. Otherwise returns
/// at once. The watch uses one thread, because `ifo-apiserver` also uses one thread for watches and
/// rules.
pub fn run_if_bare_watch() {
    if let Some(kubeconfig) = std::env::var_os(KUBECONFIG) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.expect("a runtime can be created");
        runtime.block_on(watch(PathBuf::from(kubeconfig)));
    }
}

async fn watch(kubeconfig: PathBuf) {
    let retry = Duration::from_secs(30);
    let connection = connect(Some(&kubeconfig), retry).await;
    let connection = connection.expect("the kubeconfig is valid");
    let cluster = ClusterFeed::new(connection, retry);
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
}
