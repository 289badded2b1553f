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
        let mut times = self.0.lock().expect("no thread panics");
        if let Some(subject) = subject_in(line).filter(|_| !is_completed)
            && let Some((sent, seen)) = times.latest.get_mut(&subject)
        {
            seen[which].get_or_insert(now - *sent);
        }
    }

    /// Prints percentiles.
    pub fn print(&self) {
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
    }
}

/// Returns a percentile of durations. 0 percent is the minimum, and 100 percent the maximum.
fn percentile(durations: impl Iterator<Item = Duration>, percent: usize) -> Duration {
    let mut sorted: Vec<_> = durations.collect();
    sorted.sort_unstable();
    let index = sorted.len().saturating_sub(1) * percent / 100;
    sorted.get(index).copied().unwrap_or_default()
}

/// Returns the number of the subject in an event: both `vm-17` and `vm-17-migrating-3f9c2a1b5e6d7f80`
/// give 17.
fn subject_in(event: &[u8]) -> Option<usize> {
    let name = b"\"name\":\"vm-";
    let at = memchr::memmem::find(event, name)? + name.len();
    let digits = event[at..].iter().take_while(|byte| byte.is_ascii_digit());
    let number = digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'));
    Some(number)
}
