//! Receives the signals that stop the process, SIGTERM and SIGINT, in the order of arrival.

use anyhow::Context as _;
use std::io;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Capacity of the queue of signals. The first signal starts the shutdown. The second signal ends
/// the delay after SIGTERM, or the wait for open requests. Further signals have no effect.
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
    /// Returns the name of the signal, such as `SIGTERM`.
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
    /// Installs the signal handlers. `main` calls this function before it starts anything else.
    ///
    /// The server is PID 1 in its container. Without a handler for a signal, the kernel ignores
    /// this signal to PID 1, so the server would not stop.
    ///
    /// A separate thread waits for the signals, because all threads of the server's runtime can be
    /// blocked, for example by an exec plugin of a kubeconfig.
    ///
    /// # Errors
    ///
    /// The system has no file descriptor or thread left.
    pub fn install() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let entered = runtime.enter();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        drop(entered);
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

    /// Returns the next signal when it arrives. If the thread that waits for signals has ended,
    /// returns SIGTERM, because the process could not be stopped any more.
    pub async fn next(&mut self) -> Signal {
        let signal = self.0.recv().await;
        signal.unwrap_or_else(|| {
            tracing::error!("the thread that waits for signals has ended, so the server stops");
            Signal::Terminate
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_the_thread_that_waits_for_signals_stops_the_server() {
        let (thread, queue) = mpsc::channel(QUEUE_CAPACITY);
        let mut signals = Signals(queue);
        thread.send(Signal::Interrupt).await.unwrap();
        drop(thread);
        assert_eq!(signals.next().await, Signal::Interrupt);
        assert_eq!(signals.next().await, Signal::Terminate);
    }
}
