//! A simulated process, which runs one future with the clocks of a simulated machine. A test can
//! pause and kill the process.

use crate::clock::simulated::Skew;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Pauses and kills a simulated process, like SIGSTOP and SIGKILL. Clones control the same process.
#[derive(Clone, Debug)]
pub struct SimulatedProcess(Arc<Mutex<ProcessState>>);

#[derive(Debug)]
struct ProcessState {
    skew: Skew,
    /// The number of polls after which the process pauses. `Some(0)` means that the process is
    /// paused. None means that no pause is planned.
    polls_left: Option<u32>,
    is_killed: bool,
    waker: Option<Waker>,
}

impl SimulatedProcess {
    /// Creates a process on a machine whose clocks differ by `skew` from the simulated clocks.
    pub fn new(skew: Skew) -> Self {
        Self(Arc::new(Mutex::new(ProcessState {
            skew,
            polls_left: None,
            is_killed: false,
            waker: None,
        })))
    }

    /// Returns a future that runs `root` in the process. `root` must not spawn tasks, because a
    /// spawned task would continue during a pause.
    pub fn run<F: Future<Output = ()> + Send + 'static>(&self, root: F) -> Pausable {
        Pausable {
            process: self.clone(),
            root: Some(Box::pin(root)),
        }
    }

    /// Pauses the process after `polls` further polls of its future.
    pub fn pause_after(&self, polls: u32) {
        self.lock().polls_left = Some(polls);
    }

    /// Simulates that the machine is suspended for `time`. The boot clock, which also runs while a
    /// machine is suspended, advances. Timers do not advance.
    pub fn pause_machine_for(&self, time: Duration) {
        self.lock().skew.boot += time;
    }

    /// Continues a paused process.
    pub fn resume(&self) {
        self.change(|state| state.polls_left = None);
    }

    /// Ends the process at once. Requests that the process has already sent still arrive.
    pub fn kill(&self) {
        self.change(|state| state.is_killed = true);
    }

    /// Returns true if the process is paused.
    pub fn is_paused(&self) -> bool {
        self.lock().polls_left == Some(0)
    }

    /// Returns true if the process was killed.
    pub fn is_killed(&self) -> bool {
        self.lock().is_killed
    }

    /// Polls `future` with the clocks of the process. A pause of the process does not affect it.
    pub async fn poll_within<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|context| self.within(|| future.as_mut().poll(context))).await
    }

    /// Calls `body` with the clocks of the process.
    pub fn within<T>(&self, body: impl FnOnce() -> T) -> T {
        let skew = self.lock().skew;
        skew.within(body)
    }

    /// Changes the state, and wakes the task that runs the process.
    fn change(&self, change: impl FnOnce(&mut ProcessState)) {
        let mut state = self.lock();
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ProcessState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The future of a process. It completes when `root` completes or the process is killed.
pub struct Pausable {
    process: SimulatedProcess,
    root: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Future for Pausable {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let process = self.process.clone();
        let mut state = process.lock();
        state.waker = Some(context.waker().clone());
        if state.is_killed {
            drop(state);
            self.root = None;
            return Poll::Ready(());
        }
        match &mut state.polls_left {
            None => {}
            Some(0) => return Poll::Pending,
            Some(left) => *left -= 1,
        }
        drop(state);
        match &mut self.root {
            Some(root) => process.within(|| root.as_mut().poll(context)),
            None => Poll::Ready(()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_process_makes_no_progress_and_a_killed_process_ends() {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    let process = SimulatedProcess::new(Skew::NONE);
    let steps = Arc::new(AtomicU32::new(0));
    let counted = steps.clone();
    let task = tokio::spawn(process.run(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            counted.fetch_add(1, Relaxed);
        }
    }));
    let just_after = |seconds: u64| tokio::time::sleep(Duration::from_millis(1000 * seconds + 1));
    just_after(3).await;
    assert_eq!(steps.load(Relaxed), 3);
    process.pause_after(1);
    just_after(10).await;
    assert_eq!(steps.load(Relaxed), 4);
    process.resume();
    just_after(1).await;
    assert!(steps.load(Relaxed) > 4);
    process.kill();
    task.await.unwrap();
}
