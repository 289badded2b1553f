//! The long-lived tasks of the process, or of one leadership term (the time for which this replica
//! leads). If such a task ends early, the process exits. If the process continued, the data that
//! the task maintains would become stale, and no error would show this.

use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};

/// Long-lived tasks, which must not end early. Dropping this value aborts them.
#[derive(Default)]
pub(super) struct Tasks {
    aborted: JoinSet<&'static str>,
    finishing: JoinSet<&'static str>,
}

impl Tasks {
    /// Starts a task that [`Tasks::abort`] aborts.
    pub(super) fn start(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.aborted.spawn(named(name, task));
    }

    /// Starts a task that [`Tasks::abort`] does not abort, because the task still has work to do at
    /// the end.
    pub(super) fn start_finishing(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.finishing.spawn(named(name, task));
    }

    /// Like [`Tasks::start_finishing`], but starts the task on `runtime`. The task returns its own
    /// name, or the name of a task that it has run and that ended too early.
    pub(super) fn start_finishing_on(
        &mut self,
        runtime: &Handle,
        task: impl Future<Output = &'static str> + Send + 'static,
    ) {
        self.finishing.spawn_on(task, runtime);
    }

    /// Waits until a task ends, and returns the name of the task. If there are no tasks, waits
    /// forever. Cancel-safe.
    pub(super) async fn next_ended(&mut self) -> &'static str {
        // A task that panicked has no name, but the log contains the panic.
        let name = |ended: Result<_, JoinError>| ended.unwrap_or("a task that panicked");
        tokio::select! {
            Some(ended) = self.aborted.join_next() => name(ended),
            Some(ended) = self.finishing.join_next() => name(ended),
            else => std::future::pending().await,
        }
    }

    /// Aborts the tasks that have no work to do at the end. The other tasks continue.
    pub(super) fn abort(&mut self) {
        self.aborted.abort_all();
    }

    /// Waits until all tasks that have work to do at the end have ended. Cancel-safe.
    pub(super) async fn finish(&mut self) {
        while self.finishing.join_next().await.is_some() {}
    }
}

async fn named(name: &'static str, task: impl Future<Output = ()>) -> &'static str {
    task.await;
    name
}
