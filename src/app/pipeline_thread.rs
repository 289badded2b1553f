//! The thread of the pipeline. On the leader it runs the watches of the targets, the evaluation of
//! rules, the tracker and the writer of the index. On a follower it runs the mirror. Other threads
//! serve requests.
//!
//! All tasks of the pipeline share one thread, because a subject's event passes from the task of
//! the HTTP/2 connection to the task of the feed and often to the tracker. With several threads,
//! each of these steps wakes a sleeping thread, which costs more processor time than the
//! evaluation of the rules.

use std::io;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The thread. It ends when this is dropped; tasks that still run on it are dropped then.
pub(super) struct PipelineThread {
    handle: Handle,
    /// Nothing is sent here. The thread ends when this side of the channel is dropped.
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
                // The error is the expected result: the sender was dropped.
                let _ = runtime.block_on(ended);
                // Dropping the runtime would wait for blocked threads, for example during the
                // lookup of a host name.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            handle,
            _running: running,
        })
    }

    /// The runtime on which tasks of the pipeline are spawned.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }
}
