//! The [`Tracker`] keeps the state of all operations, such as migrations. The tracker receives
//! messages, such as the evaluation of an object or a change of the rules. It passes each message
//! to the subjects that the message is about. A subject is an object with operations.
//!
//! The tracker also knows which watches of objects are interrupted, and which timer expires next.
//! The caller passes the current time to each method that needs it, so that tests need not wait.

mod work;

pub use work::FULL_BATCH;
use work::{PendingWork, SubjectAction};

use super::books::Books;
use super::end_reason::End;
use super::last_runs::Identity;
use super::operation_limits::OperationBounds;
use super::refused_operations::RefusedOperations;
use super::retained::RetainedByComponent;
use super::shared_state::{SharedState, TrackerSettings};
use super::subject::{SubjectEventContext, TrackedSubject};
use super::{Existing, Message, Namespaces, Publication, SharedBaselines};
use crate::detect::{Evaluation, FeedEvent, MissingSubjects};
use crate::rules::{Report, RuleBook};
use crate::{ClockReading, Meter};
use ifo_api::{Source, Text};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// Tracks the operations of all subjects.
#[derive(Debug)]
pub struct Tracker {
    pub(super) books: Books,
    pub(super) feeds: HashMap<Source, FeedState>,
    // The map is sorted, so that the order of writes does not depend on hashes.
    pub(super) subjects: BTreeMap<Identity, TrackedSubject>,
    pub(super) shared: SharedState,
    /// Work that is not finished. It must be finished before the next message.
    pub(super) pending: VecDeque<PendingWork>,
    /// Reports of bounds that no longer refuse operations. While such a report exists, lists for
    /// clients count as incomplete. So the tracker drops these reports only when the index contains
    /// the operations that the bounds refused before ([`Tracker::committed`]).
    pub(super) ended_refusals: Vec<Report>,
}

/// The state of a feed. A feed is the watch of one target, in all namespaces or in one namespace.
#[derive(Debug, Default)]
pub(super) struct FeedState {
    /// The tracked subjects that the feed has reported since the current list began. None while no
    /// list runs.
    seen: Option<HashSet<Identity>>,
    /// True if the first list is complete. Operations on an object of the first list may have
    /// started long ago. Afterwards, each evaluated object counts as an object that has just
    /// changed.
    synced: bool,
    /// True while the watch is interrupted.
    is_interrupted: bool,
    /// The bounds that have refused operations on the objects of the feed.
    pub(super) refused: RefusedOperations,
}

impl Tracker {
    /// Creates a tracker without rules and operations.
    pub fn new(settings: TrackerSettings, meter: Arc<dyn Meter>) -> Self {
        Self::with_baselines(settings, meter, SharedBaselines::default())
    }

    /// Creates a tracker that compares operations with the durations of earlier runs in
    /// `baselines`. The tracker adds the durations of successful runs to `baselines`.
    pub fn with_baselines(
        settings: TrackerSettings,
        meter: Arc<dyn Meter>,
        baselines: SharedBaselines,
    ) -> Self {
        Self {
            shared: SharedState::new(settings, meter, baselines),
            books: Books::default(),
            feeds: HashMap::new(),
            subjects: BTreeMap::new(),
            pending: VecDeque::new(),
            ended_refusals: Vec::new(),
        }
    }

    /// Replaces the default bounds on operations. Only tests and benchmarks call this method.
    #[must_use]
    pub fn with_bounds(mut self, bounds: OperationBounds) -> Self {
        self.shared.limits.bounds = bounds;
        self
    }

    /// Applies one message. [`Tracker::take_batch`] and [`Tracker::take_changes`] return the
    /// resulting writes.
    pub fn advance(&mut self, message: Message, now: ClockReading) {
        self.continue_work(usize::MAX);
        self.apply(message, now);
        self.continue_work(FULL_BATCH);
    }

    fn apply(&mut self, message: Message, now: ClockReading) {
        match message {
            Message::Rules(publication) => self.apply_rules(publication, now),
            Message::Existing(Existing::Namespaces(existing)) => {
                self.set_namespaces(&existing, now.steady);
            }
            Message::Resume(state) => self.resume(*state, now),
            Message::AllRuleBooksSent(without_book) => {
                self.books.without_book = Some(without_book);
                let action = SubjectAction::RulesChanged(None, End::RuleRemoved);
                let lacking =
                    |it: &TrackedSubject| it.has_no_target() || it.lacks_rules(&self.books);
                let lacking = self.identities(lacking);
                self.step_these(now, lacking, action);
            }
            Message::BaselinesLoaded => {
                self.step_each(now, |it| !it.has_no_target(), SubjectAction::Refresh);
            }
            Message::Existing(Existing::Nodes(_)) | Message::Gaps(_) | Message::Flush(_) => {}
            Message::Feed {
                source,
                generation,
                event,
            } => {
                let book = self.books.of(&source.target).cloned();
                let Some(book) = book.filter(|book| book.generation == generation) else {
                    // The feed still uses an older rule book, or the target has no rules any more.
                    return;
                };
                match event {
                    FeedEvent::Reset => {
                        let feed = self.feed_state(&source);
                        feed.seen = Some(HashSet::new());
                        feed.refused.begin_list();
                    }
                    FeedEvent::Evaluated { evaluation, .. } => {
                        self.evaluated(&source, &book, *evaluation, now);
                    }
                    FeedEvent::Deleted {
                        subject, missing, ..
                    } => {
                        let identity = subject.identity(&source.target);
                        match missing.filter(|_| self.subjects.contains_key(&identity)) {
                            Some(missing) => {
                                // If the feed has ended, it does not receive the subject. This
                                // error is ignored, because the next feed lists all objects again.
                                let _ = missing.send(vec![subject]);
                            }
                            None => self.step(&identity, now, TrackedSubject::deleted),
                        }
                    }
                    FeedEvent::Synced { missing } => self.synced(&source, missing, now),
                    FeedEvent::Lost => self.lost(&source, now),
                }
            }
        }
    }

    /// Returns the time at which the caller must call [`Tracker::expire`]. At this time, a timer
    /// expires, or the retention of a completed operation ends. None if there is no timer and no
    /// retained operation.
    ///
    /// Records have no deadline. A record expires after a year, and the next call of
    /// [`Tracker::expire`] deletes it. `ifo-apiserver` calls this method at least once a second.
    pub fn next_deadline(&self) -> Option<Instant> {
        let timer = self.shared.timers.first().map(|(at, _)| *at);
        let retained = self.shared.retained.next_deadline();
        timer.into_iter().chain(retained).min()
    }

    /// Stores which namespaces exist. Handles the namespaces that were deleted since the last call,
    /// even if they were created again.
    ///
    /// At the first call, there is no earlier list to compare with. So the namespace of an
    /// operation or record counts as deleted if it does not exist now. This check cannot find a
    /// namespace that was deleted and created again. For restored operations, `Tracker::resume` has
    /// already handled such namespaces.
    pub(super) fn set_namespaces(&mut self, existing: &Arc<Namespaces>, now: Instant) {
        let shared = &mut self.shared;
        let before = shared.namespaces.replace(existing.clone());
        let mut earlier: BTreeSet<Text> = if let Some(before) = &before {
            before.keys().cloned().collect()
        } else {
            let subjects = self.subjects.values();
            let of_subjects = subjects.filter_map(|it| it.subject.reference.namespace.clone());
            let kept = [&shared.retained, &shared.records].into_iter();
            let kept = kept.flat_map(RetainedByComponent::namespaces);
            let all = kept.chain(of_subjects);
            all.filter(|name| !existing.contains_key(name)).collect()
        };
        let again = existing.keys();
        let again = again.filter(|name| shared.deleted_namespaces.get(name).is_some());
        earlier.extend(again.cloned());
        // The cluster namespace never counts as deleted, because it also contains the operations on
        // cluster-scoped objects.
        earlier.remove(&shared.settings.cluster_namespace);
        for name in earlier {
            let created = existing.get(&name);
            if before.as_ref().map(|before| before.get(&name)) != Some(created) {
                shared.namespace_deleted(name, created.copied(), now);
            }
        }
    }

    fn feed_state(&mut self, source: &Source) -> &mut FeedState {
        self.feeds.entry(source.clone()).or_default()
    }

    /// Runs `act` on a subject, and updates the timer of the subject. Removes the subject if it has
    /// no operations left.
    pub(super) fn step(
        &mut self,
        identity: &Identity,
        now: ClockReading,
        act: impl FnOnce(&mut TrackedSubject, &mut SubjectEventContext<'_>),
    ) {
        let Some(tracked) = self.subjects.get_mut(identity) else {
            return;
        };
        let gap = is_in_gap(&self.feeds, tracked);
        let mut step = SubjectEventContext::new(&mut self.shared, &self.books, now, gap);
        act(tracked, &mut step);
        let usage = tracked.measure();
        step.shared.limits.replace(&mut tracked.usage, usage);
        let deadline = tracked.deadline(&step);
        let before = std::mem::replace(&mut tracked.timer, deadline);
        if deadline != before {
            let timers = &mut self.shared.timers;
            if let Some(before) = before {
                timers.remove(&(before, identity.clone()));
            }
            timers.extend(deadline.map(|at| (at, identity.clone())));
        }
        if tracked.is_over() {
            self.subjects.remove(identity);
        }
    }

    pub(super) fn identities(&self, of: impl Fn(&TrackedSubject) -> bool) -> Vec<Identity> {
        let tracked = self.subjects.values().filter(|tracked| of(tracked));
        tracked.map(|tracked| tracked.identity.clone()).collect()
    }

    /// Handles the evaluation of one object.
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
            let subject = evaluation.subject.clone();
            TrackedSubject::new(identity.clone(), subject, source.target.clone())
        });
        if self.books.of(&tracked.target).is_none() {
            // This subject was restored, or the rules of its target were removed. So the subject
            // gets the target of this evaluation.
            tracked.target = source.target.clone();
            self.step(&identity, now, |it, step| it.continue_debounce(false, step));
        }
        self.step(&identity, now, |tracked, step| {
            tracked.evaluated(book, evaluation, initial, step);
        });
        let refused = self.shared.limits.take_refused();
        self.feed_state(source).refused.add(refused, book);
        // If the debounce period is 0, an operation that is no longer detected completes now.
        let deadline = self.next_deadline();
        if deadline.is_some_and(|deadline| deadline <= now.steady) {
            self.expire(now);
        }
    }

    /// Handles the end of a list, or the end of an interruption of the watch without a new list.
    ///
    /// If the list does not contain a tracked subject, the operations of the subject complete with
    /// the reason `SubjectDeleted`. But if `missing` is set, the subject may still exist with other
    /// labels. In this case, the tracker only sends the subject on the channel `missing`.
    fn synced(&mut self, source: &Source, missing: MissingSubjects, now: ClockReading) {
        let feed = self.feed_state(source);
        feed.synced = true;
        if let Some(seen) = feed.seen.take() {
            let gone =
                self.identities(|it| is_watched_by(it, source) && !seen.contains(&it.identity));
            if let Some(missing) = missing {
                let subject = |identity| Some(self.subjects.get(identity)?.subject.clone());
                let _ = missing.send(gone.iter().filter_map(subject).collect());
            } else {
                self.step_these(now, gone, SubjectAction::Delete);
            }
            let feed = self.feeds.entry(source.clone()).or_default();
            self.ended_refusals.extend(feed.refused.end_list());
        }
        self.set_interrupted(source, false, now);
    }

    fn lost(&mut self, source: &Source, now: ClockReading) {
        self.feed_state(source).seen = None;
        self.set_interrupted(source, true, now);
    }

    /// Records whether the watch of `source` is interrupted. If this changes, refreshes all
    /// subjects of `source`.
    ///
    /// At the start of an interruption, the condition `Detected` of the operations becomes
    /// `Unknown`. At the end of the interruption, operations complete if their debounce period is
    /// over. Waiting operations start if their `appearAfter` is over. (`appearAfter` is the time
    /// for which rules must detect an operation before it starts.)
    fn set_interrupted(&mut self, source: &Source, is_interrupted: bool, now: ClockReading) {
        let feed = self.feed_state(source);
        if std::mem::replace(&mut feed.is_interrupted, is_interrupted) != is_interrupted {
            self.step_each(now, |it| is_watched_by(it, source), SubjectAction::Refresh);
        }
    }

    /// Applies the new rules of a target. Completes the operations that no rule can detect any
    /// more.
    fn apply_rules(&mut self, publication: Publication, now: ClockReading) {
        let (target, book) = (&publication.target, publication.book);
        // New rules make the feeds of the target list all objects again. With the old feed states,
        // the objects in these lists would count as objects that have just changed.
        let old = self.feeds.extract_if(|source, _| source.target == *target);
        let was_interrupted = old.fold(false, |any, (_, feed)| any | feed.is_interrupted);
        // The interruption lasts until each new feed has listed its objects. Otherwise, an
        // operation whose debounce period has ended during the interruption would complete now,
        // although a rule may detect the operation in the new list.
        for source in book.iter().flat_map(|book| book.sources(target)) {
            self.feed_state(&source).is_interrupted = was_interrupted;
        }
        self.books.set(target, book);
        // A subject whose target has no rules gets a target whose rules are about the kind of the
        // subject. There are two such cases. A restored subject has no target yet. Or the rules now
        // name another version of the resource, so the feed of that version watches the subject.
        for tracked in self.subjects.values_mut() {
            let subject = &tracked.subject.reference;
            if self.books.of(&tracked.target).is_none()
                && let Some(target) = self.books.target_of(subject)
            {
                tracked.target = target.clone();
            }
        }
        let end = if publication.removed {
            End::TargetRemoved
        } else {
            End::RuleRemoved
        };
        // The filter skips restored subjects without a target, because their rules may still
        // arrive.
        let is_claimed = |it: &TrackedSubject| !it.has_no_target();
        let action = SubjectAction::RulesChanged(Some(target.clone()), end);
        self.step_each(now, is_claimed, action);
    }
}

fn is_watched_by(tracked: &TrackedSubject, source: &Source) -> bool {
    let namespace = tracked.subject.reference.namespace.as_deref();
    source.covers(&tracked.target, namespace)
}

/// Returns true if a watch of the subject is interrupted, or if the target of the subject is
/// unknown.
fn is_in_gap(feeds: &HashMap<Source, FeedState>, tracked: &TrackedSubject) -> bool {
    let has_gap = |namespace: Option<Text>| {
        let target = tracked.target.clone();
        let feed = feeds.get(&Source { target, namespace });
        feed.is_some_and(|feed| feed.is_interrupted)
    };
    let namespace = &tracked.subject.reference.namespace;
    tracked.has_no_target() || has_gap(None) || namespace.is_some() && has_gap(namespace.clone())
}
