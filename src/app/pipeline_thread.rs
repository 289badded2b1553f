//! The thread of the pipeline, from the watches of objects to the index. On the leader, this thread
//! watches the objects, evaluates the rules, runs the tracker, and writes the index. On a follower,
//! it copies the leader's index. Other threads serve requests.
//!
//! One thread runs all tasks of the pipeline, because an event passes through several tasks. The
//! task of the HTTP/2 connection receives the event, the task of the feed evaluates the rules, and
//! the tracker's task updates the operations. On several threads, each task would have to wake up
//! the next task's thread. That costs more processor time than the evaluation of the rules.

use std::io;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The handle of the running thread. When it is dropped, the thread ends and drops its tasks.
pub(super) struct PipelineThread {
    handle: Handle,
    /// Keeps the thread running. No value is sent: the thread ends when this sender is dropped.
    _running: oneshot::Sender<()>,
}

impl PipelineThread {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The system has no file descriptor or thread left.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (running, ended) = oneshot::channel();
        std::thread::Builder::new()
            .name("pipeline".to_owned())
            .spawn(move || {
                // Waits until the sender is dropped. `ended` then returns an error, which is
                // expected.
                let _ = runtime.block_on(ended);
                // Dropping the runtime would wait for its blocked threads. A thread is blocked, for
                // example, during the lookup of a host name.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            handle,
            _running: running,
        })
    }

    /// Returns the runtime on which the tasks of the pipeline are spawned.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }
}
