//! The tracker with its subjects. Each call has the time as an argument, so tests need no waits.

use super::end_reason::End;
use super::operation::SubjectView;
use super::shared_state::{DELETED_TTL, Identity, MAX_DELETED, SharedState};
use super::subject::{SubjectStep, Tracked};
use super::{Message, Write};
use crate::detect::{Evaluation, FeedEvent, Subject};
use crate::rules::RuleBook;
use crate::{ClockReading, Meter};
use ifo_api::{Gvr, Source};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::iter;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Settings of the tracker.
#[derive(Clone, Debug)]
pub struct TrackerSettings {
    /// The debounce period.
    pub debounce: Duration,
    /// Retention of completed operations. None if they are not retained.
    pub retain: Option<Retention>,
    /// Namespace of operations on cluster-scoped subjects.
    pub cluster_namespace: Arc<str>,
}

/// The retention of completed operations. The oldest are dropped first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Time after their end.
    pub age: Duration,
    /// Largest number.
    pub most: usize,
}

/// The rules of each target.
pub(super) type Books = HashMap<Arc<Gvr>, Arc<RuleBook>>;

/// All subjects with operations, and the feeds that report them.
#[derive(Debug)]
pub struct Tracker {
    books: Books,
    feeds: HashMap<Source, FeedState>,
    // Sorted, so that the same messages give the same versions. Boxed, because up to half of the
    // slots of a map are empty.
    pub(super) subjects: BTreeMap<Identity, Box<Tracked>>,
    pub(super) ledger: SharedState,
}

#[derive(Debug, Default)]
struct FeedState {
    /// The tracked subjects that the feed has reported since its last reset.
    seen: Option<HashSet<Identity>>,
    /// True after the first sync. Objects that appear later are new.
    synced: bool,
    gap: bool,
}

impl Tracker {
    /// Creates a tracker without rules and operations.
    pub fn new(settings: TrackerSettings, meter: Arc<dyn Meter>) -> Self {
        Self {
            ledger: SharedState::new(settings, meter),
            books: HashMap::new(),
            feeds: HashMap::new(),
            subjects: BTreeMap::new(),
        }
    }

    /// Applies one message. [`Tracker::take_changes`] returns the changes.
    pub fn advance(&mut self, message: Message, now: ClockReading) {
        match message {
            Message::Rules {
                target,
                book,
                removed,
            } => self.rules(&target, book, removed, now),
            Message::NamespaceGone { name, again } => {
                self.ledger.namespace_gone(name, again, now.steady);
            }
            Message::NamespaceMade { name, created } => {
                self.ledger.namespace_made(&name, created);
            }
            Message::Resume(state) => self.resume(*state, now),
            Message::Booked(bookless) => self.all_booked(&bookless, now),
            // The caller answers it after the commit.
            Message::Flush(_) => {}
            Message::Feed {
                source,
                generation,
                event,
            } => {
                let book = self.books.get(&source.target).cloned();
                let Some(book) = book.filter(|book| book.generation == generation) else {
                    return; // Evaluated under rules that are not in force any more.
                };
                match event {
                    FeedEvent::Reset => self.feed(&source).seen = Some(HashSet::new()),
                    FeedEvent::Evaluated { evaluation, .. } => {
                        self.evaluated(&source, &book, *evaluation, now);
                    }
                    FeedEvent::Deleted { subject, .. } => {
                        self.deleted(&subject.identity(&source.target), now);
                    }
                    FeedEvent::Synced { missing } => self.synced(&source, missing, now),
                    FeedEvent::Lost => self.lost(&source, now),
                }
            }
        }
    }

    /// The next time at which [`Tracker::expire`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.ledger.next_deadline()
    }

    /// Completes and shows operations whose waiting time is over.
    pub fn expire(&mut self, now: ClockReading) {
        let due = |ledger: &mut SharedState| ledger.deadlines.pop(usize::MAX, now.steady);
        while let Some((identity, ())) = due(&mut self.ledger) {
            self.step(&identity, now, Tracked::refresh);
        }
        self.ledger.expire(now.steady);
        self.forget_gone(now.steady);
    }

    /// Forgets old deleted namespaces without operations in flight.
    fn forget_gone(&mut self, now: Instant) {
        let gone = &mut self.ledger.gone;
        let mut over: HashMap<_, _> = iter::from_fn(|| gone.pop(MAX_DELETED, now)).collect();
        if over.is_empty() {
            return;
        }
        for tracked in self.subjects.values() {
            let namespace = tracked.view.subject.namespace.as_ref();
            let namespace = namespace.unwrap_or(&self.ledger.settings.cluster_namespace);
            if let Some((name, again)) = over.remove_entry(namespace) {
                self.ledger.gone.keep(name, again, now + DELETED_TTL);
            }
        }
    }

    /// Returns the changes since the last call, in their order.
    pub fn take_changes(&mut self) -> Vec<Write> {
        self.ledger.take_writes()
    }

    fn feed(&mut self, source: &Source) -> &mut FeedState {
        self.feeds.entry(source.clone()).or_default()
    }

    /// Runs one step of a subject, and removes the subject if it has no operations after it.
    fn step(
        &mut self,
        identity: &Identity,
        now: ClockReading,
        act: impl FnOnce(&mut Tracked, &mut SubjectStep<'_>),
    ) {
        let Some(tracked) = self.subjects.get_mut(identity) else {
            return;
        };
        let gap = gap(&self.feeds, tracked);
        let mut step = SubjectStep::new(&mut self.ledger, &self.books, now, gap);
        act(tracked, &mut step);
        let deadline = tracked.deadline(&step);
        let deadlines = &mut self.ledger.deadlines;
        if deadline != deadlines.until(identity) {
            match deadline {
                Some(at) => deadlines.keep(identity.clone(), (), at),
                None => {
                    deadlines.remove(identity);
                }
            }
        }
        if tracked.is_over() {
            self.subjects.remove(identity);
        }
    }

    /// Runs one step of each subject that `of` selects.
    pub(super) fn each(
        &mut self,
        now: ClockReading,
        of: impl Fn(&Tracked) -> bool,
        act: impl Fn(&mut Tracked, &mut SubjectStep<'_>),
    ) {
        for identity in self.identities(of) {
            self.step(&identity, now, &act);
        }
    }

    fn identities(&self, of: impl Fn(&Tracked) -> bool) -> Vec<Identity> {
        let tracked = self.subjects.values().filter(|tracked| of(tracked));
        tracked.map(|tracked| tracked.identity.clone()).collect()
    }

    /// Applies the evaluation of one object.
    fn evaluated(
        &mut self,
        source: &Source,
        book: &RuleBook,
        evaluation: Evaluation,
        now: ClockReading,
    ) {
        let identity = evaluation.subject.identity(&source.target);
        let detects = evaluation.detects();
        let known = self.subjects.contains_key(&identity);
        let feed = self.feeds.entry(source.clone()).or_default();
        let initial = !feed.synced;
        if let Some(seen) = &mut feed.seen
            && (detects || known)
        {
            seen.insert(identity.clone());
        }
        if !known && !detects {
            return;
        }
        let tracked = self.subjects.entry(identity.clone()).or_insert_with(|| {
            let view = SubjectView {
                subject: evaluation.subject.clone(),
                api_version: book.target.api_version().into(),
                kind: book.kind.as_str().into(),
            };
            Box::new(Tracked::new(identity.clone(), view, source.target.clone()))
        });
        if tracked.is_unclaimed() {
            // The target's version may differ from the one before the restart.
            tracked.claim(&source.target, book, self.ledger.settings.debounce, now);
        }
        self.step(&identity, now, |tracked, step| {
            tracked.evaluated(book, evaluation, initial, step);
        });
        // Without a debounce period, an undetected operation ends before the next event.
        let deadline = self.next_deadline();
        if deadline.is_some_and(|deadline| deadline <= now.steady) {
            self.expire(now);
        }
    }

    fn deleted(&mut self, identity: &Identity, now: ClockReading) {
        self.step(identity, now, |tracked, step| {
            tracked.complete_all(&End::SubjectDeleted, step);
        });
    }

    /// Called when a feed is up to date.
    fn synced(
        &mut self,
        source: &Source,
        missing: Option<oneshot::Sender<Vec<Subject>>>,
        now: ClockReading,
    ) {
        let feed = self.feed(source);
        feed.synced = true;
        feed.gap = false;
        if let Some(seen) = feed.seen.take() {
            let gone = self.identities(|it| is_told_by(it, source) && !seen.contains(&it.identity));
            if let Some(missing) = missing {
                let subject = |identity| Some(self.subjects.get(identity)?.view.subject.clone());
                // A feed that has stopped listening starts again, and asks again.
                let _ = missing.send(gone.iter().filter_map(subject).collect());
            } else {
                for identity in gone {
                    self.deleted(&identity, now);
                }
            }
        }
        // This is needed not only after a gap. A debounce period may have ended during a gap that
        // ended with a restart of the feed.
        self.gap_changed(source, now);
    }

    fn lost(&mut self, source: &Source, now: ClockReading) {
        let feed = self.feed(source);
        feed.seen = None;
        if !std::mem::replace(&mut feed.gap, true) {
            self.gap_changed(source, now);
        }
    }

    /// Sets or clears `Detected=Unknown` on all subjects of `source`. Then completes and starts
    /// operations that were only waiting for it.
    fn gap_changed(&mut self, source: &Source, now: ClockReading) {
        self.each(now, |it| is_told_by(it, source), Tracked::refresh);
    }

    /// Applies new rules of a target. Operations without a rule complete.
    fn rules(
        &mut self,
        target: &Arc<Gvr>,
        book: Option<Arc<RuleBook>>,
        removed: bool,
        now: ClockReading,
    ) {
        // The feeds start again. Operations in flight keep their start, and objects of the first
        // lists are not new.
        self.feeds.retain(|source, _| source.target != *target);
        if let Some(book) = &book {
            let debounce = self.ledger.settings.debounce;
            let subjects = self.subjects.values_mut();
            for tracked in subjects.filter(|it| it.may_be_claimed(target, book)) {
                tracked.claim(target, book, debounce, now);
            }
        }
        match book {
            Some(book) => self.books.insert(target.clone(), book),
            None => self.books.remove(target),
        };
        let end = if removed {
            End::TargetRemoved
        } else {
            End::RuleRemoved
        };
        // It is not known yet whether there are rules for subjects without a book.
        let is_claimed = |it: &Tracked| !it.is_unclaimed();
        self.each(now, is_claimed, |it, step| {
            it.rules_changed(target, &end, step);
        });
    }
}

fn is_told_by(tracked: &Tracked, source: &Source) -> bool {
    source.covers(&tracked.target, tracked.view.subject.namespace.as_deref())
}

/// True if a feed that watches the subject has a gap, or no feed watches it.
fn gap(feeds: &HashMap<Source, FeedState>, tracked: &Tracked) -> bool {
    let has_gap = |namespace: Option<Arc<str>>| {
        let target = tracked.target.clone();
        let feed = feeds.get(&Source { target, namespace });
        feed.is_some_and(|feed| feed.gap)
    };
    let namespace = &tracked.view.subject.namespace;
    tracked.is_unclaimed() || has_gap(None) || namespace.is_some() && has_gap(namespace.clone())
}
