//! Measures the latency of an update of a subject (the object that an operation is about): the time
//! until a client receives the subject's event, and the time until a client receives the
//! operation's event.

use crate::api_client::{Api, LIVE_API_PATH, MACHINES};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// The latencies of updates.
#[derive(Default)]
pub struct Latencies(Mutex<Times>);

#[derive(Default)]
struct Times {
    /// The time at which the latest update was sent, by subject.
    sent: HashMap<usize, Instant>,
    /// The time from the latest update until the subject's event, by subject.
    subjects: HashMap<usize, Duration>,
    /// The time from the latest update until the operation's event, by subject.
    operations: HashMap<usize, Duration>,
    /// The latencies of earlier updates: the time until the subject's event, and the time until the
    /// operation's event. An update is left out if one of its two events was not received before
    /// the subject's next update.
    complete: Vec<(Duration, Duration)>,
}

impl Latencies {
    fn times(&self) -> MutexGuard<'_, Times> {
        self.0
            .lock()
            .expect("no thread panics while it holds the lock")
    }

    /// Starts a watch of the subjects and a watch of their operations.
    pub async fn watch(self: &Arc<Self>, api: &Api) -> anyhow::Result<[JoinHandle<()>; 2]> {
        let (subjects, operations) = (self.clone(), self.clone());
        Ok([
            api.watch(MACHINES, move |line| subjects.subject(line))
                .await?,
            api.watch(
                &format!("{LIVE_API_PATH}/inflightoperations"),
                move |line| {
                    operations.operation(line);
                },
            )
            .await?,
        ])
    }

    /// Drops everything that was recorded.
    pub fn reset(&self) {
        *self.times() = Times::default();
    }

    /// Records that an update of the subject is sent now.
    pub fn sent(&self, subject: usize) {
        let mut times = self.times();
        times.close(subject);
        times.sent.insert(subject, Instant::now());
    }

    /// Records the first event of a subject after its update.
    fn subject(&self, line: &[u8]) {
        let now = Instant::now();
        let Some(subject) = subject_number(line) else {
            return;
        };
        let mut times = self.times();
        if let Some(sent) = times.sent.get(&subject).copied() {
            times.subjects.entry(subject).or_insert(now - sent);
        }
    }

    /// Records the first event of an operation after the update of its subject.
    ///
    /// If the update ends the operation, this first event shows the state `Settling`. An event with
    /// the phase `Completed` follows after the debounce period. It is ignored, because the subject
    /// may have been updated again by then. Then the event would count for the newer update.
    fn operation(&self, line: &[u8]) {
        let now = Instant::now();
        let is_completed = memchr::memmem::find(line, b"\"phase\":\"Completed\"").is_some();
        let Some(subject) = subject_number(line).filter(|_| !is_completed) else {
            return;
        };
        let mut times = self.times();
        if let Some(sent) = times.sent.get(&subject).copied() {
            times.operations.entry(subject).or_insert(now - sent);
        }
    }

    /// Returns a percentile of the operations' latencies.
    pub fn of_operations(&self, percent: usize) -> Duration {
        let mut times = self.times();
        times.close_all();
        percentile(times.complete.iter().map(|pair| pair.1), percent)
    }

    /// Returns a percentile of the subjects' latencies.
    pub fn of_subjects(&self, percent: usize) -> Duration {
        let mut times = self.times();
        times.close_all();
        percentile(times.complete.iter().map(|pair| pair.0), percent)
    }

    pub fn print(&self) {
        // This total does not contain all updates: it contains the latest update of each subject,
        // and those earlier updates whose two events were received.
        let updates = {
            let times = self.times();
            times.complete.len() + times.sent.len()
        };
        for percent in [50, 90, 99] {
            let (subject, operation) = (self.of_subjects(percent), self.of_operations(percent));
            println!(
                "p{percent}: subject after {subject:.2?}, operation after {operation:.2?}, {:.2} times as long",
                operation.as_secs_f64() / subject.as_secs_f64()
            );
        }
        println!(
            "received on both watches: {} of {updates} updates",
            self.times().complete.len()
        );
    }
}

impl Times {
    /// Completes the measurement of the subject's latest update.
    fn close(&mut self, subject: usize) {
        self.sent.remove(&subject);
        let both = (
            self.subjects.remove(&subject),
            self.operations.remove(&subject),
        );
        if let (Some(subject), Some(operation)) = both {
            self.complete.push((subject, operation));
        }
    }

    fn close_all(&mut self) {
        for subject in self.sent.keys().copied().collect::<Vec<_>>() {
            self.close(subject);
        }
    }
}

/// Returns a percentile of durations. 0 percent is the minimum, and 100 percent the maximum.
pub fn percentile(durations: impl Iterator<Item = Duration>, percent: usize) -> Duration {
    let mut sorted: Vec<_> = durations.collect();
    sorted.sort_unstable();
    sorted
        .get(sorted.len().saturating_sub(1) * percent / 100)
        .copied()
        .unwrap_or_default()
}

/// Returns the number of the subject in a line of a watch. The line contains the name of a subject,
/// such as `vm-17`, or the name of its operation, such as `vm-17-migrating-3f9c2a1b5e6d7f80`. Both
/// names give 17. Returns None if no name in the line begins with `vm-`.
fn subject_number(line: &[u8]) -> Option<usize> {
    const BEFORE: &[u8] = b"\"name\":\"vm-";
    let at = memchr::memmem::find(line, BEFORE)? + BEFORE.len();
    let digits = line[at..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}
