//! Namespaces that are gone: an operation that was in one may end later than it, since
//! each is told of by another watch, and is nobody's business then.

use jiff::Timestamp;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long one is remembered at least: longer than watches are apart from each other,
/// unless one has a gap. Whoever asks remembers those longer in which something is in flight.
pub(super) const GONE_FOR: Duration = Duration::from_hours(1);

/// How many are remembered, the latest: some 2 MB of names.
const GONE: usize = 10_000;

/// See above.
#[derive(Debug, Default)]
pub(super) struct Gone {
    namespaces: HashMap<Arc<str>, Namespace>,
    /// In the order of their time. One that was told of again is in it more than once.
    order: VecDeque<(Instant, Arc<str>)>,
}

#[derive(Debug)]
struct Namespace {
    until: Instant,
    /// When the one was made that has its name now.
    again: Option<Timestamp>,
}

impl Gone {
    /// One is gone; there may be another one of its name, made at `again`.
    pub(super) fn tell(&mut self, name: Arc<str>, again: Option<Timestamp>, now: Instant) {
        let until = now + GONE_FOR;
        self.order.push_back((until, name.clone()));
        self.namespaces.insert(name, Namespace { until, again });
        while self.order.len() > GONE {
            self.pop();
        }
    }

    /// There is one of this name, made at `created`.
    pub(super) fn made(&mut self, name: &str, created: Timestamp) {
        if let Some(gone) = self.namespaces.get_mut(name) {
            gone.again = Some(created);
        }
    }

    /// Whether what started in `namespace` at `start` was in one that is gone.
    pub(super) fn had(&self, namespace: &str, start: Timestamp) -> bool {
        let gone = self.namespaces.get(namespace);
        gone.is_some_and(|gone| gone.again.is_none_or(|again| start < again))
    }

    /// Forgets those whose time is over, and says which.
    pub(super) fn over(&mut self, now: Instant) -> HashMap<Arc<str>, Option<Timestamp>> {
        let mut over = HashMap::new();
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            over.extend(self.pop());
        }
        over
    }

    fn pop(&mut self) -> Option<(Arc<str>, Option<Timestamp>)> {
        let (until, name) = self.order.pop_front()?;
        // Else it was told of again since, and comes again.
        let is_last = self.namespaces.get(&name)?.until == until;
        let gone = is_last.then(|| self.namespaces.remove(&name)).flatten()?;
        Some((name, gone.again))
    }
}
