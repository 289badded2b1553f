//! What the tracker knows, and how it moves on. Time comes in with each call, so the
//! whole life of an operation can be tested without waiting.

use super::arbitrate::What;
use super::end::End;
use super::ledger::{Identity, Ledger};
use super::operation::{Detection, SubjectView};
use super::subject::Tracked;
use super::{Event, Message, Write};
use crate::Meter;
use crate::evaluate::{Evaluation, Subject};
use crate::rules::RuleBook;
use ifo_api::{Gvr, Source};
use jiff::Timestamp;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The time, as people and as timers read it.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For what is shown.
    pub wall: Timestamp,
    /// For deadlines; does not jump.
    pub steady: Instant,
}

/// What the tracker is told at the start.
#[derive(Clone, Debug)]
pub struct Settings {
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

/// All operations in flight, and the feeds that tell of them.
#[derive(Debug)]
pub struct Tracker {
    pub(super) books: HashMap<Arc<Gvr>, Arc<RuleBook>>,
    pub(super) feeds: HashMap<Source, FeedState>,
    // In order, so that the same messages give the same versions. Boxed, because up to half
    // of the places of a map are empty.
    pub(super) subjects: BTreeMap<Identity, Box<Tracked>>,
    pub(super) ledger: Ledger,
}

#[derive(Debug, Default)]
pub(super) struct FeedState {
    /// Identities told of since the last reset, of subjects that are tracked.
    seen: Option<HashSet<Identity>>,
    /// Has synced at least once: what shows up later was not there before.
    synced: bool,
    gap: bool,
}

impl Tracker {
    /// Knows nothing yet.
    pub fn new(settings: Settings, meter: Arc<dyn Meter>) -> Self {
        Self {
            ledger: Ledger::new(settings, meter),
            books: HashMap::new(),
            feeds: HashMap::new(),
            subjects: BTreeMap::new(),
        }
    }

    /// Takes in one message. What it changes waits for [`Tracker::take_changes`].
    pub fn advance(&mut self, message: Message, now: Now) {
        match message {
            Message::Rules {
                target,
                book,
                removed,
            } => self.rules(&target, book, removed, now),
            Message::NamespaceGone { name, again } => {
                self.ledger.namespace_gone(name, again, now.steady);
            }
            Message::NamespaceMade { name, created } => self.ledger.gone.made(&name, created),
            Message::Resume(state) => self.resume(*state, now),
            Message::Booked(bookless) => self.all_booked(&bookless, now),
            // Answered by whoever commits.
            Message::Flush(_) => {}
            Message::Feed {
                source,
                generation,
                event,
            } => {
                let current = self.books.get(&source.target).map(|book| book.generation);
                if current != Some(generation) {
                    return; // Evaluated under rules that are not in force any more.
                }
                match event {
                    Event::Reset => self.feed(&source).seen = Some(HashSet::new()),
                    Event::Evaluated { evaluation, .. } => {
                        self.evaluated(&source, *evaluation, now);
                    }
                    Event::Deleted { subject, .. } => {
                        self.deleted(&subject.identity(&source.target), now);
                    }
                    Event::Synced { missing } => self.synced(&source, missing, now),
                    Event::Lost => self.lost(&source, now),
                }
            }
        }
    }

    /// When [`Tracker::expire`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.ledger.next_deadline()
    }

    /// Ends what has settled long enough, and shows what has waited long enough.
    pub fn expire(&mut self, now: Now) {
        while let Some((at, (identity, what))) = self.ledger.next_due(now.steady) {
            let Some(tracked) = self.subjects.get_mut(&identity) else {
                continue;
            };
            let gap = gap(&self.feeds, tracked);
            tracked.due(&what, at, gap, &mut self.ledger, now);
            self.forget_if_over(&identity);
        }
        self.ledger.expire(now.steady);
        self.forget_gone(now.steady);
    }

    /// Forgets namespaces that are gone for long, if nothing in flight is in them.
    fn forget_gone(&mut self, now: Instant) {
        let mut over = self.ledger.gone.over(now);
        if over.is_empty() {
            return;
        }
        for tracked in self.subjects.values() {
            let namespace = tracked.view.subject.namespace.as_ref();
            let namespace = namespace.unwrap_or(&self.ledger.settings.cluster_namespace);
            if let Some((name, again)) = over.remove_entry(namespace) {
                self.ledger.gone.tell(name, again, now);
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

    pub(super) fn forget_if_over(&mut self, identity: &Identity) {
        if self.subjects.get(identity).is_some_and(|it| it.is_over()) {
            self.subjects.remove(identity);
        }
    }

    /// One object was evaluated.
    fn evaluated(&mut self, source: &Source, evaluation: Evaluation, now: Now) {
        let identity = evaluation.subject.identity(&source.target);
        let Some(book) = self.books.get(&source.target).cloned() else {
            return;
        };
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
            tracked.claim(&source.target, &book, &mut self.ledger, now);
        }
        let gap = gap(&self.feeds, tracked);
        tracked.evaluated(&book, evaluation, (initial, gap), &mut self.ledger, now);
        self.forget_if_over(&identity);
        // Without a debounce, what is not detected ends before the next event is taken.
        if self
            .ledger
            .next_deadline()
            .is_some_and(|deadline| deadline <= now.steady)
        {
            self.expire(now);
        }
    }

    fn deleted(&mut self, identity: &Identity, now: Now) {
        if let Some(mut tracked) = self.subjects.remove(identity) {
            tracked.complete_all(&End::SubjectDeleted, &mut self.ledger, now);
        }
    }

    /// The feed is up to date.
    fn synced(
        &mut self,
        source: &Source,
        missing: Option<oneshot::Sender<Vec<Subject>>>,
        now: Now,
    ) {
        let feed = self.feed(source);
        feed.synced = true;
        feed.gap = false;
        if let Some(seen) = feed.seen.take() {
            let gone: Vec<Identity> = self
                .told_by(source)
                .filter(|identity| !seen.contains(*identity))
                .cloned()
                .collect();
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

    fn lost(&mut self, source: &Source, now: Now) {
        let feed = self.feed(source);
        feed.seen = None;
        if !std::mem::replace(&mut feed.gap, true) {
            self.gap_changed(source, now);
        }
    }

    fn told_by<'a>(&'a self, source: &'a Source) -> impl Iterator<Item = &'a Identity> {
        self.subjects
            .iter()
            .filter(move |(_, tracked)| {
                source.covers(&tracked.target, tracked.view.subject.namespace.as_deref())
            })
            .map(|(identity, _)| identity)
    }

    /// Shows `Detected=Unknown`, or what is known again, on all that `source` tells of;
    /// ends and starts what only waited for it.
    fn gap_changed(&mut self, source: &Source, now: Now) {
        let identities: Vec<Identity> = self.told_by(source).cloned().collect();
        self.refresh(identities, now);
    }

    fn refresh(&mut self, identities: Vec<Identity>, now: Now) {
        for identity in identities {
            if let Some(tracked) = self.subjects.get_mut(&identity) {
                let gap = gap(&self.feeds, tracked);
                tracked.refresh(gap, &mut self.ledger, now);
            }
            self.forget_if_over(&identity);
        }
    }

    /// The rules of a target changed: operations that no rule is about any more end.
    fn rules(&mut self, target: &Arc<Gvr>, book: Option<Arc<RuleBook>>, removed: bool, now: Now) {
        // The feeds start anew, but what was in flight before has its start already,
        // and what they show first was under way before they came.
        self.feeds.retain(|source, _| source.target != *target);
        match book {
            Some(book) => self.books.insert(target.clone(), book),
            None => self.books.remove(target),
        };
        let end = if removed {
            End::TargetRemoved
        } else {
            End::RuleRemoved
        };
        let books = &self.books;
        if let Some(book) = books.get(target) {
            for tracked in self.subjects.values_mut() {
                if tracked.may_be_claimed(target, book) {
                    tracked.claim(target, book, &mut self.ledger, now);
                }
            }
        }
        // Of the others nobody can say yet whether there are rules.
        let watched = |tracked: &&mut Box<Tracked>| !tracked.is_unclaimed();
        for tracked in self.subjects.values_mut().filter(watched) {
            let namespace = tracked.view.subject.namespace.clone();
            let subject_target = tracked.target.clone();
            let keeps = |what: &What, detection: &Detection| {
                detection.target != *target
                    || books.get(target).is_some_and(|book| {
                        book.rule_sets.iter().any(|own| {
                            own.name == detection.rule_set.name
                                && own.covers(namespace.as_deref())
                                && own.has_rule(&what.operation)
                        })
                    })
            };
            let ruled = |what: &What| {
                books
                    .get(&subject_target)
                    .is_some_and(|book| book.has_rule(&what.operation, namespace.as_deref()))
            };
            tracked.rules_changed(keeps, ruled, &end, &mut self.ledger, now);
        }
        self.subjects.retain(|_, tracked| !tracked.is_over());
        // Who detects it may have changed, and with it who speaks.
        let identities = self
            .subjects
            .iter()
            .filter(|(_, tracked)| tracked.target == *target)
            .map(|(identity, _)| identity.clone())
            .collect();
        self.refresh(identities, now);
    }
}

/// Whether a feed that tells of the subject has a gap.
pub(super) fn gap(feeds: &HashMap<Source, FeedState>, tracked: &Tracked) -> bool {
    let namespace = tracked.view.subject.namespace.clone();
    let everywhere = Source {
        target: tracked.target.clone(),
        namespace: None,
    };
    let here = namespace.map(|namespace| Source {
        target: tracked.target.clone(),
        namespace: Some(namespace),
    });
    [Some(everywhere), here]
        .into_iter()
        .flatten()
        .any(|source| feeds.get(&source).is_some_and(|feed| feed.gap))
}
