//! The signals that stop the process.
//!
//! Input: SIGTERM and SIGINT. Output: the received signals, in the order of arrival.

use anyhow::Context as _;
use std::io;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Capacity of the queue of signals. The first signal stops the process. The second ends the wait
/// for its clients.
const QUEUE_CAPACITY: usize = 2;

/// A signal that stops the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM. The kubelet sends it.
    Terminate,
    /// SIGINT. A terminal sends it for Ctrl-C.
    Interrupt,
}

impl Signal {
    /// The name of the signal, such as `SIGTERM`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        }
    }
}

/// The queue of received signals.
#[derive(Debug)]
pub struct Signals(mpsc::Receiver<Signal>);

impl Signals {
    /// Installs the handlers. It must be called before the rest of the start.
    ///
    /// The kernel does not deliver a signal without a handler to PID 1, and the server is PID 1 in
    /// its container. A separate thread waits for the signals, because the process can block every
    /// thread of its runtime, for example with an exec plugin of a kubeconfig.
    ///
    /// # Errors
    ///
    /// The system has no file descriptor or thread left.
    pub fn install() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let within = runtime.enter();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        drop(within);
        let (send, arrived) = mpsc::channel(QUEUE_CAPACITY);
        let forward = async move {
            loop {
                let signal = tokio::select! {
                    Some(()) = terminate.recv() => Signal::Terminate,
                    Some(()) = interrupt.recv() => Signal::Interrupt,
                    else => return,
                };
                if send.send(signal).await.is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || runtime.block_on(forward))?;
        Ok(Self(arrived))
    }

    /// Returns the next signal when it arrives.
    pub async fn next(&mut self) -> Signal {
        match self.0.recv().await {
            Some(signal) => signal,
            // The thread has ended, so no signal can arrive any more.
            None => std::future::pending().await,
        }
    }

    /// Runs a part of the start. Returns None if a signal arrives first. The part runs in a
    /// separate task, so it may block its thread.
    pub(super) async fn unless_stopped<T: Send + 'static>(
        &mut self,
        part: impl Future<Output = anyhow::Result<T>> + Send + 'static,
    ) -> anyhow::Result<Option<T>> {
        let mut part = tokio::spawn(part);
        tokio::select! {
            biased;
            signal = self.next() => {
                part.abort();
                tracing::info!("{}: stopping before the start is complete", signal.name());
                Ok(None)
            }
            ended = &mut part => ended.context("the start failed")?.map(Some),
        }
    }
}
