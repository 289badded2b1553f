//! What the tracker knows, and how it moves on. Time comes in with each call, so the
//! whole life of an operation can be tested without waiting.

use super::operation::{Detection, End, Operation, Start, SubjectView};
use super::{Event, Message};
use crate::api::live::StartTimeSource;
use crate::api::{Gvr, Source};
use crate::evaluate::{Evaluation, Finding, Subject};
use crate::index::{Key, Stamp, Write, Writer};
use crate::rules::RuleBook;
use crate::telemetry::Metrics;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time, as people and as timers read it.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For what is shown.
    pub wall: Timestamp,
    /// For deadlines; does not jump.
    pub steady: Instant,
}

impl Now {
    /// The time now.
    pub fn read() -> Self {
        // tokio's clock, so that paused tests move it.
        Self {
            wall: Timestamp::now(),
            steady: tokio::time::Instant::now().into_std(),
        }
    }
}

/// What the tracker is told at the start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long an operation must not be detected before it is over.
    pub debounce: Duration,
    /// Whether completed operations stay (bounded by age and count).
    pub retain: bool,
    /// Where operations on cluster-scoped subjects are shown.
    pub cluster_namespace: Arc<str>,
}

/// Retained operations: at most this many …
const RETAINED: usize = 1_000;
/// … and no older than this.
const RETAINED_FOR: Duration = Duration::from_hours(24);

/// How long the start second of an ended operation is remembered, so that a successor
/// within the same second gets another name.
const REMEMBER_START: Duration = Duration::from_secs(2);

type Identity = Arc<str>;
type OperationId = (Identity, Arc<str>);

/// All operations in flight, and the feeds that tell of them.
#[derive(Debug)]
pub struct Tracker {
    settings: Settings,
    metrics: Arc<Metrics>,
    books: HashMap<Arc<Gvr>, Arc<RuleBook>>,
    feeds: HashMap<Source, FeedState>,
    subjects: HashMap<Identity, Tracked>,
    /// Ends of debounces, soonest first.
    deadlines: BTreeSet<(Instant, OperationId)>,
    /// Start seconds of operations that just ended, oldest first.
    ended: VecDeque<(Instant, OperationId, i64)>,
    /// Completed operations that are still shown, oldest first.
    retained: VecDeque<(Instant, Key)>,
    writes: Vec<Write>,
}

/// A subject with operations in flight.
#[derive(Debug)]
struct Tracked {
    view: SubjectView,
    target: Arc<Gvr>,
    operations: BTreeMap<Arc<str>, InFlight>,
}

#[derive(Debug)]
struct InFlight {
    operation: Operation,
    settling: Option<Settling>,
}

/// An operation that is not detected any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settling {
    Until(Instant),
    /// The debounce ran out while the feed had a gap.
    AwaitingFeed,
}

#[derive(Debug, Default)]
struct FeedState {
    /// Identities told of since the last reset, of subjects with operations in flight.
    seen: Option<HashSet<Identity>>,
    /// Has synced at least once: what shows up later was not there before.
    synced: bool,
    gap: bool,
}

impl Tracker {
    /// Knows nothing yet.
    pub fn new(settings: Settings, metrics: Arc<Metrics>) -> Self {
        Self {
            settings,
            metrics,
            books: HashMap::new(),
            feeds: HashMap::new(),
            subjects: HashMap::new(),
            deadlines: BTreeSet::new(),
            ended: VecDeque::new(),
            retained: VecDeque::new(),
            writes: Vec::new(),
        }
    }

    /// Takes in one message. What it changes waits for [`Tracker::commit`].
    pub fn advance(&mut self, message: Message, now: Now) {
        match message {
            Message::Rules {
                target,
                book,
                removed,
            } => self.rules(&target, book, removed, now),
            Message::NamespaceGone(namespace) => self.forget_namespace(&namespace),
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
                    Event::Evaluated { evaluation, .. } => self.evaluated(&source, evaluation, now),
                    Event::Deleted { subject, .. } => {
                        self.deleted(&subject.identity(&source.target), now);
                    }
                    Event::Synced => self.synced(&source, now),
                    Event::Lost => self.lost(&source, now),
                }
            }
        }
    }

    /// When [`Tracker::expire`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        let debounce = self.deadlines.first().map(|(at, _)| *at);
        let retained = self
            .retained
            .front()
            .map(|(since, _)| *since + RETAINED_FOR);
        debounce.into_iter().chain(retained).min()
    }

    /// Ends what has settled long enough.
    pub fn expire(&mut self, now: Now) {
        while let Some((at, id)) = self.deadlines.first().cloned() {
            if at > now.steady {
                break;
            }
            self.deadlines.pop_first();
            if self.has_gap(&id.0) {
                if let Some(in_flight) = self.in_flight(&id) {
                    in_flight.settling = Some(Settling::AwaitingFeed);
                }
            } else {
                self.complete(&id, End::NotDetected, now);
            }
        }
        while self.retained.len() > RETAINED
            || self
                .retained
                .front()
                .is_some_and(|(since, _)| *since + RETAINED_FOR <= now.steady)
        {
            if let Some((_, key)) = self.retained.pop_front() {
                self.writes.push(Write::Delete { key });
            }
        }
        while self
            .ended
            .front()
            .is_some_and(|(at, ..)| *at + REMEMBER_START <= now.steady)
        {
            self.ended.pop_front();
        }
    }

    /// Writes what has changed since the last call. `reads` are the moments at which
    /// the events behind it were read.
    pub fn commit(&mut self, writer: &mut Writer, stamp: Stamp, reads: &[Instant]) {
        if self.writes.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.writes);
        match writer.commit(batch, stamp) {
            Ok(_) => reads
                .iter()
                .for_each(|read| self.metrics.event_visible(read.elapsed())),
            Err(error) => tracing::error!(%error, "operations could not be written to the index"),
        }
    }

    fn feed(&mut self, source: &Source) -> &mut FeedState {
        self.feeds.entry(source.clone()).or_default()
    }

    fn in_flight(&mut self, (identity, operation): &OperationId) -> Option<&mut InFlight> {
        self.subjects
            .get_mut(identity)?
            .operations
            .get_mut(operation)
    }

    fn has_gap(&self, identity: &Identity) -> bool {
        self.subjects
            .get(identity)
            .is_some_and(|tracked| gap(&self.feeds, tracked))
    }

    /// One object was evaluated.
    fn evaluated(&mut self, source: &Source, evaluation: Evaluation, now: Now) {
        let Evaluation {
            subject, findings, ..
        } = evaluation;
        let identity = subject.identity(&source.target);
        let Some(book) = self.books.get(&source.target).cloned() else {
            return;
        };
        let detects = findings.iter().any(|finding| finding.says.is_some());
        let feed = self.feeds.entry(source.clone()).or_default();
        let initial = !feed.synced;
        if let Some(seen) = &mut feed.seen
            && (detects || self.subjects.contains_key(&identity))
        {
            seen.insert(identity.clone());
        }
        if !self.subjects.contains_key(&identity) {
            if !detects {
                return;
            }
            let view = SubjectView {
                subject: subject.clone(),
                api_version: book.target.api_version().into(),
                kind: book.kind.as_str().into(),
            };
            let tracked = Tracked {
                view,
                target: source.target.clone(),
                operations: BTreeMap::new(),
            };
            self.subjects.insert(identity.clone(), tracked);
        }
        let start = first_start(&subject, initial, now.wall);
        self.detect(
            &identity,
            &source.target,
            &book,
            subject,
            findings,
            start,
            now,
        );
    }

    /// Compares what is detected with what is in flight.
    #[allow(clippy::too_many_arguments)] // the parts of one evaluation, taken apart once
    fn detect(
        &mut self,
        identity: &Identity,
        target: &Arc<Gvr>,
        book: &RuleBook,
        subject: Subject,
        findings: Vec<Finding>,
        start: Start,
        now: Now,
    ) {
        let Some(tracked) = self.subjects.get_mut(identity) else {
            return;
        };
        // A listed object's managedFields are only read for its start.
        tracked.view.subject = Subject {
            managed: None,
            ..subject
        };
        let gap = gap(&self.feeds, tracked);
        let mut found: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Option<Detection>>> = BTreeMap::new();
        for Finding {
            rule_set,
            operation,
            says,
        } in findings
        {
            let detection = says.map(|says| Detection {
                target: target.clone(),
                rule_set: rule_set.clone(),
                says,
            });
            found
                .entry(operation)
                .or_default()
                .insert(rule_set.name.clone(), detection);
        }
        for (name, in_flight) in &mut tracked.operations {
            let answers = found.remove(name).unwrap_or_default();
            let detections = &mut in_flight.operation.detections;
            // No answer from a rule of this book is "not detected"; a failed one keeps
            // what was; other targets' rules were not asked.
            detections.retain(|rule_set, detection| {
                *detection.target != book.target || answers.contains_key(rule_set)
            });
            for (rule_set, detection) in answers {
                if let Some(detection) = detection {
                    detections.insert(rule_set, detection);
                }
            }
            let id = (identity.clone(), name.clone());
            update(
                in_flight,
                &tracked.view,
                id,
                gap,
                &self.settings,
                &mut self.deadlines,
                &mut self.writes,
                now,
            );
        }
        for (name, answers) in found {
            let detections: BTreeMap<_, _> = answers
                .into_iter()
                .filter_map(|(name, detection)| Some((name, detection?)))
                .collect();
            let id = (identity.clone(), name.clone());
            let start = after_ended(&self.ended, &id, start);
            let operation = Operation::start(
                identity,
                &tracked.view,
                &self.settings.cluster_namespace,
                detections,
                name.clone(),
                start,
                now.wall,
            );
            let Some(operation) = operation else { continue };
            self.metrics.operation_started(operation.component(), &name);
            tracing::info!(gvr = %target, namespace = %operation.key.namespace, name = %operation.key.name,
                operation = %name, "operation started");
            self.writes.push(Write::Put {
                key: operation.key.clone(),
                json: operation.active(&tracked.view),
            });
            tracked.operations.insert(
                name,
                InFlight {
                    operation,
                    settling: None,
                },
            );
        }
        self.finish_settled(identity, now);
    }

    /// Without a debounce, what is not detected ends at once.
    fn finish_settled(&mut self, identity: &Identity, now: Now) {
        if self.settings.debounce.is_zero() {
            self.expire(now);
        }
        if self
            .subjects
            .get(identity)
            .is_some_and(|tracked| tracked.operations.is_empty())
        {
            self.subjects.remove(identity);
        }
    }

    fn deleted(&mut self, identity: &Identity, now: Now) {
        self.complete_all(identity, End::SubjectDeleted, now);
    }

    fn complete_all(&mut self, identity: &Identity, end: End, now: Now) {
        let Some(tracked) = self.subjects.get(identity) else {
            return;
        };
        let names: Vec<_> = tracked.operations.keys().cloned().collect();
        for name in names {
            self.complete(&(identity.clone(), name), end, now);
        }
    }

    /// Ends one operation.
    fn complete(&mut self, id: &OperationId, end: End, now: Now) {
        let Some(tracked) = self.subjects.get_mut(&id.0) else {
            return;
        };
        let Some(InFlight {
            operation,
            settling,
        }) = tracked.operations.remove(&id.1)
        else {
            return;
        };
        if let Some(Settling::Until(at)) = settling {
            self.deadlines.remove(&(at, id.clone()));
        }
        let json = operation.completed(&tracked.view, end, now.wall);
        self.writes.push(Write::Put {
            key: operation.key.clone(),
            json,
        });
        if self.settings.retain {
            self.retained.push_back((now.steady, operation.key.clone()));
        } else {
            self.writes.push(Write::Delete {
                key: operation.key.clone(),
            });
        }
        self.ended
            .push_back((now.steady, id.clone(), operation.start_second()));
        self.metrics.operation_completed(
            operation.component(),
            &operation.name,
            "Ended",
            end.reason(),
            operation.duration(now.wall),
        );
        tracing::info!(namespace = %operation.key.namespace, name = %operation.key.name,
            operation = %operation.name, reason = end.reason(), "operation completed");
        if tracked.operations.is_empty() {
            self.subjects.remove(&id.0);
        }
    }

    /// The feed is up to date.
    fn synced(&mut self, source: &Source, now: Now) {
        let feed = self.feed(source);
        feed.synced = true;
        let seen = feed.seen.take();
        feed.gap = false;
        if let Some(seen) = seen {
            let gone: Vec<Identity> = self
                .told_by(source)
                .filter(|(identity, _)| !seen.contains(*identity))
                .map(|(identity, _)| identity.clone())
                .collect();
            for identity in gone {
                self.complete_all(&identity, End::SubjectDeleted, now);
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

    fn told_by<'a>(
        &'a self,
        source: &'a Source,
    ) -> impl Iterator<Item = (&'a Identity, &'a Tracked)> {
        self.subjects.iter().filter(move |(_, tracked)| {
            source.covers(&tracked.target, tracked.view.subject.namespace.as_deref())
        })
    }

    /// Shows `Detected=Unknown`, or what is known again, on all that `source` tells of;
    /// ends what only waited for it.
    fn gap_changed(&mut self, source: &Source, now: Now) {
        let identities: Vec<Identity> = self
            .told_by(source)
            .map(|(identity, _)| identity.clone())
            .collect();
        for identity in identities {
            let Some(tracked) = self.subjects.get_mut(&identity) else {
                continue;
            };
            let gap = gap(&self.feeds, tracked);
            let mut waited = Vec::new();
            for (name, in_flight) in &mut tracked.operations {
                if !gap && in_flight.settling == Some(Settling::AwaitingFeed) {
                    waited.push(name.clone());
                } else {
                    let id = (identity.clone(), name.clone());
                    let settings = &self.settings;
                    update(
                        in_flight,
                        &tracked.view,
                        id,
                        gap,
                        settings,
                        &mut self.deadlines,
                        &mut self.writes,
                        now,
                    );
                }
            }
            for name in waited {
                self.complete(&(identity.clone(), name), End::NotDetected, now);
            }
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
        let mut over = Vec::new();
        for (identity, tracked) in &mut self.subjects {
            let namespace = tracked.view.subject.namespace.clone();
            for (name, in_flight) in &mut tracked.operations {
                let book = self.books.get(target);
                let keeps = |rule_set: &Arc<str>| {
                    book.is_some_and(|book| {
                        book.rule_sets.iter().any(|own| {
                            own.name == *rule_set
                                && own.covers(namespace.as_deref())
                                && own.has_rule(name)
                        })
                    })
                };
                in_flight
                    .operation
                    .detections
                    .retain(|rule_set, detection| detection.target != *target || keeps(rule_set));
                let ruled = self.books.values().any(|book| {
                    book.target == *tracked.target && book.has_rule(name, namespace.as_deref())
                });
                if in_flight.operation.detections.is_empty() && !ruled {
                    over.push((identity.clone(), name.clone()));
                }
            }
        }
        for id in over {
            self.complete(&id, end, now);
        }
        // Who detects it may have changed, and with it who speaks.
        let identities: Vec<Identity> = self.subjects.keys().cloned().collect();
        for identity in identities {
            let Some(tracked) = self.subjects.get_mut(&identity) else {
                continue;
            };
            if tracked.target != *target {
                continue;
            }
            let gap = gap(&self.feeds, tracked);
            for (name, in_flight) in &mut tracked.operations {
                let id = (identity.clone(), name.clone());
                let settings = &self.settings;
                update(
                    in_flight,
                    &tracked.view,
                    id,
                    gap,
                    settings,
                    &mut self.deadlines,
                    &mut self.writes,
                    now,
                );
            }
        }
    }

    fn forget_namespace(&mut self, namespace: &str) {
        self.retained.retain(|(_, key)| {
            let stays = *key.namespace != *namespace;
            if !stays {
                self.writes.push(Write::Delete { key: key.clone() });
            }
            stays
        });
    }
}

/// Whether a feed that tells of the subject has a gap.
fn gap(feeds: &HashMap<Source, FeedState>, tracked: &Tracked) -> bool {
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

/// Settles an operation that is not detected any more, or takes it back; writes it if
/// anything visible changed.
#[allow(clippy::too_many_arguments)] // borrows of disjoint fields of the tracker
fn update(
    in_flight: &mut InFlight,
    view: &SubjectView,
    id: OperationId,
    gap: bool,
    settings: &Settings,
    deadlines: &mut BTreeSet<(Instant, OperationId)>,
    writes: &mut Vec<Write>,
    now: Now,
) {
    let operation = &mut in_flight.operation;
    match (operation.detections.is_empty(), in_flight.settling) {
        (true, None) => {
            let until = now.steady + settings.debounce;
            deadlines.insert((until, id));
            in_flight.settling = Some(Settling::Until(until));
        }
        (false, Some(settling)) => {
            if let Settling::Until(at) = settling {
                deadlines.remove(&(at, id));
            }
            in_flight.settling = None;
        }
        (true, Some(_)) | (false, None) => {}
    }
    if operation.redetected(now.wall, gap) {
        writes.push(Write::Put {
            key: operation.key.clone(),
            json: operation.active(view),
        });
    }
}

/// When an operation that is seen for the first time has started.
fn first_start(subject: &Subject, initial: bool, now: Timestamp) -> Start {
    match subject.managed {
        Some(managed) if initial => Start {
            at: managed.min(now),
            source: StartTimeSource::ManagedFields,
        },
        _ => Start {
            at: now,
            source: StartTimeSource::Detected,
        },
    }
}

/// `start`, or a second after the start of the predecessor if it was the same second.
fn after_ended(
    ended: &VecDeque<(Instant, OperationId, i64)>,
    id: &OperationId,
    start: Start,
) -> Start {
    let last = ended
        .iter()
        .filter(|(_, other, _)| other == id)
        .map(|(.., second)| *second)
        .max();
    match last {
        Some(last) if start.at.as_second() <= last => {
            let at = Timestamp::from_second(last + 1).unwrap_or(start.at);
            Start { at, ..start }
        }
        _ => start,
    }
}
