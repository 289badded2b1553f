//! Measures the time from an update until a client receives its subject and its operation.

use crate::api::{Api, LIVE, MACHINES};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// The times of updates, and the delays until they were received.
#[derive(Default)]
pub struct Seen(Mutex<Times>);

#[derive(Default)]
struct Times {
    sent: HashMap<usize, Instant>,
    subjects: HashMap<usize, Duration>,
    operations: HashMap<usize, Duration>,
    done: Vec<(Duration, Duration)>,
}

impl Seen {
    fn times(&self) -> MutexGuard<'_, Times> {
        self.0.lock().expect("nothing panics that holds it")
    }

    /// Starts two watches, of the subjects and of their operations.
    pub async fn watch(self: &Arc<Self>, api: &Api) -> anyhow::Result<[JoinHandle<()>; 2]> {
        let (subjects, operations) = (self.clone(), self.clone());
        Ok([
            api.watch(MACHINES, move |line| subjects.subject(line))
                .await?,
            api.watch(&format!("{LIVE}/inflightoperations"), move |line| {
                operations.operation(line);
            })
            .await?,
        ])
    }

    pub fn forget(&self) {
        *self.times() = Times::default();
    }

    pub fn sent(&self, subject: usize) {
        let mut times = self.times();
        times.close(subject);
        times.sent.insert(subject, Instant::now());
    }

    /// Records the event of the subject.
    fn subject(&self, line: &[u8]) {
        let now = Instant::now();
        let Some(subject) = machine(line) else {
            return;
        };
        let mut times = self.times();
        if let Some(sent) = times.sent.get(&subject).copied() {
            times.subjects.entry(subject).or_insert(now - sent);
        }
    }

    /// Records the event of the operation: the first one after the update. Ends do not count,
    /// because they come at the end of the debounce period.
    fn operation(&self, line: &[u8]) {
        let now = Instant::now();
        let over = memchr::memmem::find(line, b"\"phase\":\"Completed\"").is_some();
        let Some(subject) = machine(line).filter(|_| !over) else {
            return;
        };
        let mut times = self.times();
        if let Some(sent) = times.sent.get(&subject).copied() {
            times.operations.entry(subject).or_insert(now - sent);
        }
    }

    /// Returns the percentile of the operations.
    pub fn operations_within(&self, percent: usize) -> Duration {
        let mut times = self.times();
        times.close_all();
        at(times.done.iter().map(|pair| pair.1), percent)
    }

    /// Returns the percentile of the subjects.
    pub fn subjects_within(&self, percent: usize) -> Duration {
        let mut times = self.times();
        times.close_all();
        at(times.done.iter().map(|pair| pair.0), percent)
    }

    pub fn report(&self) {
        let updates = {
            let times = self.times();
            times.done.len() + times.sent.len()
        };
        for percent in [50, 90, 99] {
            let (bare, live) = (
                self.subjects_within(percent),
                self.operations_within(percent),
            );
            println!(
                "p{percent}: subject after {bare:.2?}, operation after {live:.2?}, {:.2} times as long",
                live.as_secs_f64() / bare.as_secs_f64()
            );
        }
        println!(
            "seen on both watches: {} of {updates} updates",
            self.times().done.len()
        );
    }
}

impl Times {
    fn close(&mut self, subject: usize) {
        self.sent.remove(&subject);
        let both = (
            self.subjects.remove(&subject),
            self.operations.remove(&subject),
        );
        if let (Some(bare), Some(live)) = both {
            self.done.push((bare, live));
        }
    }

    fn close_all(&mut self) {
        for subject in self.sent.keys().copied().collect::<Vec<_>>() {
            self.close(subject);
        }
    }
}

/// Returns the smallest value that at least this percentage of the values do not exceed.
pub fn at(of: impl Iterator<Item = Duration>, percent: usize) -> Duration {
    let mut of: Vec<_> = of.collect();
    of.sort_unstable();
    of.get(of.len().saturating_sub(1) * percent / 100)
        .copied()
        .unwrap_or_default()
}

/// Returns the number of the machine in a line. The first such name is the machine itself, or the
/// owner in an operation.
fn machine(line: &[u8]) -> Option<usize> {
    const BEFORE: &[u8] = b"\"name\":\"vm-";
    let at = memchr::memmem::find(line, BEFORE)? + BEFORE.len();
    let digits = line[at..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}
