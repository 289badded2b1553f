//! What the tracker knows, and how it moves on. Time comes in with each call, so the
//! whole life of an operation can be tested without waiting.

use super::end::End;
use super::ledger::{GONE, GONE_FOR, Identity, Ledger};
use super::operation::SubjectView;
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

/// What the tracker is told at the start.
#[derive(Clone, Debug)]
pub struct TrackerSettings {
    /// How long an operation must not be detected before it is over.
    pub debounce: Duration,
    /// How completed operations stay; None: not at all.
    pub retain: Option<Retention>,
    /// Where operations on cluster-scoped subjects are shown.
    pub cluster_namespace: Arc<str>,
}

/// How long completed operations stay, oldest out first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// After their end.
    pub age: Duration,
    /// How many at once.
    pub most: usize,
}

/// The rules of each target.
pub(super) type Books = HashMap<Arc<Gvr>, Arc<RuleBook>>;

/// All operations in flight, and the feeds that tell of them.
#[derive(Debug)]
pub struct Tracker {
    books: Books,
    feeds: HashMap<Source, FeedState>,
    // In order, so that the same messages give the same versions. Boxed, because up to half
    // of the places of a map are empty.
    pub(super) subjects: BTreeMap<Identity, Box<Tracked>>,
    pub(super) ledger: Ledger,
}

#[derive(Debug, Default)]
struct FeedState {
    /// Identities told of since the last reset, of subjects that are tracked.
    seen: Option<HashSet<Identity>>,
    /// Has synced at least once: what shows up later was not there before.
    synced: bool,
    gap: bool,
}

impl Tracker {
    /// Knows nothing yet.
    pub fn new(settings: TrackerSettings, meter: Arc<dyn Meter>) -> Self {
        Self {
            ledger: Ledger::new(settings, meter),
            books: HashMap::new(),
            feeds: HashMap::new(),
            subjects: BTreeMap::new(),
        }
    }

    /// Takes in one message. What it changes waits for [`Tracker::take_changes`].
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
            // Answered by whoever commits.
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

    /// When [`Tracker::expire`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.ledger.next_deadline()
    }

    /// Ends what has settled long enough, and shows what has waited long enough.
    pub fn expire(&mut self, now: ClockReading) {
        let due = |ledger: &mut Ledger| ledger.deadlines.pop(usize::MAX, now.steady);
        while let Some((identity, ())) = due(&mut self.ledger) {
            self.step(&identity, now, Tracked::refresh);
        }
        self.ledger.expire(now.steady);
        self.forget_gone(now.steady);
    }

    /// Forgets namespaces that are gone for long, if nothing in flight is in them.
    fn forget_gone(&mut self, now: Instant) {
        let gone = &mut self.ledger.gone;
        let mut over: HashMap<_, _> = iter::from_fn(|| gone.pop(GONE, now)).collect();
        if over.is_empty() {
            return;
        }
        for tracked in self.subjects.values() {
            let namespace = tracked.view.subject.namespace.as_ref();
            let namespace = namespace.unwrap_or(&self.ledger.settings.cluster_namespace);
            if let Some((name, again)) = over.remove_entry(namespace) {
                self.ledger.gone.keep(name, again, now + GONE_FOR);
            }
        }
    }

    /// What has changed since the last call, in order.
    pub fn take_changes(&mut self) -> Vec<Write> {
        self.ledger.take_writes()
    }

    fn feed(&mut self, source: &Source) -> &mut FeedState {
        self.feeds.entry(source.clone()).or_default()
    }

    /// Runs one step of a subject, and forgets the subject if it is over then.
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

    /// One object was evaluated.
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
            // The target's version may be another one than before the restart.
            tracked.claim(&source.target, book, self.ledger.settings.debounce, now);
        }
        self.step(&identity, now, |tracked, step| {
            tracked.evaluated(book, evaluation, initial, step);
        });
        // Without a debounce, what is not detected ends before the next event is taken.
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

    /// The feed is up to date.
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
                // A feed that does not listen any more starts anew, and asks again.
                let _ = missing.send(gone.iter().filter_map(subject).collect());
            } else {
                for identity in gone {
                    self.deleted(&identity, now);
                }
            }
        }
        // Not only after a gap: a debounce may have run out in one that ended with the
        // feed's own restart.
        self.gap_changed(source, now);
    }

    fn lost(&mut self, source: &Source, now: ClockReading) {
        let feed = self.feed(source);
        feed.seen = None;
        if !std::mem::replace(&mut feed.gap, true) {
            self.gap_changed(source, now);
        }
    }

    /// Shows `Detected=Unknown`, or what is known again, on all that `source` tells of;
    /// ends and starts what only waited for it.
    fn gap_changed(&mut self, source: &Source, now: ClockReading) {
        self.each(now, |it| is_told_by(it, source), Tracked::refresh);
    }

    /// The rules of a target changed: operations that no rule is about any more end.
    fn rules(
        &mut self,
        target: &Arc<Gvr>,
        book: Option<Arc<RuleBook>>,
        removed: bool,
        now: ClockReading,
    ) {
        // The feeds start anew, but what was in flight before has its start already,
        // and what they show first was under way before they came.
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
        // Whether there are rules for unclaimed subjects is not known yet.
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
