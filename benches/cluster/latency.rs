//! Measures the latency of an update of a subject (the object that an operation is about): the time
//! until a client receives the subject's event, and the time until a client receives the
//! operation's event.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The latencies of updates.
#[derive(Default)]
pub struct Latencies(Mutex<Times>);

#[derive(Default)]
struct Times {
    /// For each subject: the time at which the latest update was sent, and the times until the events of
    /// the subject and of its operation.
    latest: HashMap<usize, (Instant, [Option<Duration>; 2])>,
    /// The latencies of earlier updates. An update is left out if one of its two events was not received
    /// before the subject's next update.
    complete: Vec<[Duration; 2]>,
    updates: usize,
}

impl Times {
    fn close(&mut self, subject: usize) {
        if let Some((_, [Some(subject), Some(operation)])) = self.latest.remove(&subject) {
            self.complete.push([subject, operation]);
        }
    }
}

impl Latencies {
    /// Records that an update of the subject is sent now.
    pub fn sent(&self, subject: usize) {
        let mut times = self.0.lock().expect("no thread panics");
        times.close(subject);
        times.updates += 1;
        times.latest.insert(subject, (Instant::now(), [None; 2]));
    }

    /// Records the first event after an update of the subject: 0 for the subject, and 1 for its operation.
    ///
    /// If the update ends the operation, this first event shows the state `Settling`. An event with
    /// the phase `Completed` follows after the debounce period. It is ignored, because the subject
    /// may have been updated again by then. Then the event would count for the newer update.
    pub fn received(&self, which: usize, line: &[u8]) {
        let now = Instant::now();
        let is_completed = memchr::memmem::find(line, b"\"phase\":\"Completed\"").is_some();
        let subject = number_after(line, b"\"name\":\"vm-").next();
        let mut times = self.0.lock().expect("no thread panics");
        if let Some(subject) = subject.filter(|_| !is_completed)
            && let Some((sent, seen)) = times.latest.get_mut(&usize::try_from(subject).unwrap_or(0))
        {
            seen[which].get_or_insert(now - *sent);
        }
    }

    /// Prints percentiles. Returns the 99th percentile of the operations.
    pub fn print(&self) -> Duration {
        let mut times = self.0.lock().expect("no thread panics");
        for subject in times.latest.keys().copied().collect::<Vec<_>>() {
            times.close(subject);
        }
        for percent in [50, 90, 99] {
            let [subject, operation] =
                [0, 1].map(|which| percentile(times.complete.iter().map(|it| it[which]), percent));
            println!(
                "p{percent}: subject after {subject:.2?}, operation after {operation:.2?}, {:.2} times as long",
                operation.as_secs_f64() / subject.as_secs_f64()
            );
        }
        let (received, all) = (times.complete.len(), times.updates);
        println!("received on both watches: {received} of {all} updates");
        percentile(times.complete.iter().map(|it| it[1]), 99)
    }
}

/// Returns a percentile of durations. 0 percent is the minimum, and 100 percent the maximum.
pub fn percentile(durations: impl Iterator<Item = Duration>, percent: usize) -> Duration {
    let mut sorted: Vec<_> = durations.collect();
    sorted.sort_unstable();
    let index = sorted.len().saturating_sub(1) * percent / 100;
    sorted.get(index).copied().unwrap_or_default()
}

/// Returns the numbers that follow a text. For example, both `vm-17` and
/// `vm-17-migrating-3f9c2a1b5e6d7f80` give 17 after `vm-`.
pub fn number_after(data: &[u8], before: &'static [u8]) -> impl Iterator<Item = u64> {
    memchr::memmem::find_iter(data, before).map(|at| {
        let digits = data[at + before.len()..].iter();
        let digits = digits.take_while(|byte| byte.is_ascii_digit());
        digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
    })
}
