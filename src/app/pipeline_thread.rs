//! The thread of the pipeline. On the leader, this thread watches the objects, evaluates the rules,
//! runs the tracker (which turns detections into operations), and writes the index (the operations
//! in memory). On a follower, this thread copies the leader's index. Other threads serve requests.
//!
//! One thread runs all tasks of the pipeline, because each event of a watch passes through several
//! tasks. The task of the HTTP/2 connection receives the event, the task of the feed (the watch of
//! one resource) evaluates the rules, and the tracker's task updates the operations. On several
//! threads, each task would have to wake up the next task's thread. These wake-ups would take more
//! processor time than the evaluation of the rules. The task of a feed lets the other tasks run after
//! it has evaluated rules for a millisecond.

use std::io;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The handle of the running thread. When this handle is dropped, the thread ends and drops its
/// tasks.
pub(super) struct PipelineThread {
    handle: Handle,
    /// Keeps the thread running until this sender is dropped. The sender never sends a value.
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
                // `shutdown_background` does not wait for blocked threads, such as a thread that
                // looks up a host name. A drop of the runtime would wait for these threads.
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
