//! Receives the signals that stop the process: SIGTERM and SIGINT.

use anyhow::Context as _;
use std::io;
use tokio::signal::unix::{self, SignalKind, signal};

/// A signal that stops the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM. The kubelet sends it.
    Terminate,
    /// SIGINT. A terminal sends it for Ctrl-C.
    Interrupt,
}

impl Signal {
    /// Returns the name of the signal, such as `SIGTERM`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        }
    }
}

/// The received signals.
#[derive(Debug)]
pub struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
}

impl Signals {
    /// Installs the signal handlers. The caller must run in a tokio runtime. `main` calls this
    /// function before it starts anything else.
    ///
    /// The server is PID 1 in its container. Without a handler for a signal, the kernel ignores
    /// this signal to PID 1, so the server would not stop.
    ///
    /// # Errors
    ///
    /// The system has no file descriptor left.
    pub fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal, and returns the signal. Cancel-safe.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::Terminate,
            _ = self.interrupt.recv() => Signal::Interrupt,
        }
    }

    /// Runs `step`, which is one step of the server's start, and returns its result. If a signal
    /// arrives before the step is complete, aborts the step and returns `None`. The step runs in a
    /// separate task, so this function can return even while the step blocks a thread.
    pub(super) async fn unless_stopped<T: Send + 'static>(
        &mut self,
        step: impl Future<Output = anyhow::Result<T>> + Send + 'static,
    ) -> anyhow::Result<Option<T>> {
        let mut step = tokio::spawn(step);
        tokio::select! {
            biased;
            signal = self.next() => {
                step.abort();
                tracing::info!("{}: stopping before the start is complete", signal.name());
                Ok(None)
            }
            ended = &mut step => ended.context("the start failed")?.map(Some),
        }
    }
}
