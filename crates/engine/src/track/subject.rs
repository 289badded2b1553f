//! One subject: its operations in flight, and those that wait to appear.

mod answers;
mod restored;

use super::arbitrate::{self, Contender, What};
use super::end::End;
use super::ledger::{Identity, Ledger};
use super::operation::{Detection, Detections, Observed, Operation, Start, SubjectView, Yielded};
use super::tracker::Now;
use crate::evaluate::{Evaluation, Outcome, Subject};
use crate::rules::{Rule, RuleBook, Supersedes};
use answers::Answers;
use ifo_api::Gvr;
use ifo_api::live::StartTimeSource;
use jiff::{SignedDuration, Timestamp};
use litemap::LiteMap;
pub(super) use restored::back_at;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How old the change may be that an event tells of, for what it is first detected by to
/// have started with it. Events take less. One that comes later was held up, as in a gap,
/// or tells of what no `managedFields` tell of, as a deletion: then it starts now.
const FRESH: SignedDuration = SignedDuration::from_secs(10);

/// A subject on which something is detected, or was a moment ago.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) identity: Identity,
    pub(super) view: SubjectView,
    pub(super) target: Arc<Gvr>,
    // Most subjects have one operation; a vector grows by four, so boxed.
    operations: LiteMap<What, Box<InFlight>>,
    waiting: LiteMap<What, Waiting>,
    memory: Memory,
}

/// What of a subject is from before a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Memory {
    /// It has not been seen since: what is not known to be detected may be all the same.
    unseen: bool,
    /// Rule sets are known by name only.
    unclaimed: bool,
}

#[derive(Debug)]
struct InFlight {
    operation: Operation,
    settling: Option<Settling>,
    /// It is not detected because the subject left the selection.
    left: bool,
}

impl InFlight {
    /// When the ledger wakes the tracker for it.
    fn deadlines(&self) -> impl Iterator<Item = Instant> {
        let settled = match self.settling {
            Some(Settling::Until(at)) => Some(at),
            Some(Settling::AwaitingFeed) | None => None,
        };
        settled.into_iter().chain(self.operation.state_due())
    }
}

/// An operation that is not detected any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settling {
    Until(Instant),
    /// The debounce ran out while the feed had a gap.
    AwaitingFeed,
}

/// An operation that is detected but not shown: it has not been detected for long
/// enough, or another one keeps it from starting.
#[derive(Debug)]
struct Waiting {
    detections: Detections,
    /// The state that its rule yields, which lasts from before it appears.
    yielded: Yielded,
    start: Start,
    /// When it may appear.
    ready: Instant,
    /// It has to be detected for some time first.
    delayed: bool,
}

impl Tracked {
    pub(super) fn new(identity: Identity, view: SubjectView, target: Arc<Gvr>) -> Self {
        Self {
            identity,
            view,
            target,
            operations: LiteMap::with_capacity(1),
            waiting: LiteMap::new(),
            memory: Memory::default(),
        }
    }

    /// Whether nothing is in flight and nothing waits.
    pub(super) fn is_over(&self) -> bool {
        self.operations.is_empty() && self.waiting.is_empty()
    }

    /// Compares what is detected with what is in flight. `initial`: it was so before its
    /// feed was there.
    pub(super) fn evaluated(
        &mut self,
        book: &RuleBook,
        evaluation: Evaluation,
        (initial, gap): (bool, bool),
        ledger: &mut Ledger,
        now: Now,
    ) {
        let first_seen = std::mem::take(&mut self.memory.unseen);
        let changed = evaluation.subject.managed;
        let start = first_start(&evaluation.subject, initial, now.wall);
        let observed = match changed.filter(|_| initial) {
            Some(changed) => restored::observed_since(changed, now),
            None => Observed::now(now.steady),
        };
        // managedFields are only read for the start.
        self.view.subject = Subject {
            managed: None,
            ..evaluation.subject
        };
        let mut answers = Answers::new(&self.target, evaluation.findings);
        for (what, waiting) in &mut self.waiting {
            answers.apply(book, what, &mut waiting.detections);
            if let Some(first) = waiting.detections.values().next() {
                waiting.yielded.update(first, observed);
            }
        }
        for (what, in_flight) in &mut self.operations {
            answers.apply(book, what, &mut in_flight.operation.detections);
        }
        self.drop_undetected(ledger);
        // What starts anew or ends does so with the change, too, for all who saw it.
        let again = if initial {
            Start::detected(now.wall)
        } else {
            start
        };
        let seen = Now {
            wall: again.at,
            ..now
        };
        // One run is over when the next one starts, whenever that is seen.
        let replaced = Now {
            wall: start.at,
            ..now
        };
        self.end_other_runs((start, observed), ledger, replaced);
        self.end_with_outcome(&evaluation.outcomes, ledger, seen);
        for (_, in_flight) in &mut self.operations {
            in_flight.left = in_flight.operation.detections.is_empty()
                && evaluation
                    .unselected
                    .iter()
                    .any(|rule_set| in_flight.operation.is_spoken_for_by(&rule_set.name));
        }
        if let Some(changed) = changed.filter(|_| first_seen && initial && !gap) {
            self.settle_since(changed, ledger, now);
        }
        for (what, found) in answers.found {
            // Collected it would have room for four.
            let mut detections = Detections::with_capacity(found.len());
            let detecting = found.into_iter();
            // What only continues an operation does not start one.
            detections.extend(detecting.filter_map(|(name, detection)| {
                let detection = detection.filter(|detection| !detection.says.continues)?;
                Some((name, detection))
            }));
            self.wait(what, detections, (start, observed), ledger);
        }
        self.refresh_since((again, observed), gap, ledger, now);
    }

    /// Settles what is not detected any more, takes back what is again, writes what
    /// changed visibly, and starts what may start.
    pub(super) fn refresh(&mut self, gap: bool, ledger: &mut Ledger, now: Now) {
        let nothing_new = (Start::detected(now.wall), Observed::now(now.steady));
        self.refresh_since(nothing_new, gap, ledger, now);
    }

    /// The same. `again`: what starts anew does so then, and what is not detected any more
    /// or superseded is not since then.
    fn refresh_since(
        &mut self,
        (again, observed): (Start, Observed),
        gap: bool,
        ledger: &mut Ledger,
        now: Now,
    ) {
        if self.memory.unseen {
            self.show_gap(gap, ledger, now);
            return;
        }
        let mut over = Vec::new();
        for (what, in_flight) in &mut self.operations {
            let id = || (self.identity.clone(), what.clone());
            match (
                in_flight.operation.detections.is_empty(),
                in_flight.settling,
            ) {
                (true, None) => {
                    let rule = in_flight.operation.rule();
                    let debounce = rule.and_then(|rule| rule.debounce);
                    let until = now.steady + debounce.unwrap_or(ledger.settings.debounce);
                    ledger.due(until, id());
                    in_flight.settling = Some(Settling::Until(until));
                }
                (true, Some(Settling::AwaitingFeed)) if !gap => {
                    over.push(what.clone());
                }
                (false, Some(settling)) => {
                    if let Settling::Until(at) = settling {
                        ledger.not_due(at, id());
                    }
                    in_flight.settling = None;
                }
                (true, Some(_)) | (false, None) => {}
            }
        }
        for what in over {
            self.complete(&what, None, ledger, now);
        }
        // Before anything is shown: what gives way is not seen to settle first.
        self.arbitrate(again, gap, ledger, now);
        for (what, in_flight) in &mut self.operations {
            let operation = &mut in_flight.operation;
            let was_due = operation.state_due();
            if operation.redetected(again.at, gap, observed) {
                ledger.show(operation, &self.view);
            }
            let is_due = operation.state_due();
            if was_due != is_due {
                let id = (self.identity.clone(), what.clone());
                if let Some(at) = was_due {
                    ledger.not_due(at, id.clone());
                }
                if let Some(at) = is_due {
                    ledger.due(at, id);
                }
            }
        }
    }

    /// Something of `what` was due at `at`.
    pub(super) fn due(
        &mut self,
        what: &What,
        at: Instant,
        gap: bool,
        ledger: &mut Ledger,
        now: Now,
    ) {
        if let Some(in_flight) = self.operations.get_mut(what)
            && in_flight.settling == Some(Settling::Until(at))
        {
            if gap || self.memory.unseen {
                in_flight.settling = Some(Settling::AwaitingFeed);
                return;
            }
            self.complete(what, None, ledger, now);
        }
        self.refresh(gap, ledger, now);
    }

    /// Keeps only detections that `keeps` wants, and ends what no rule is about any more.
    pub(super) fn rules_changed(
        &mut self,
        keeps: impl Fn(&What, &Detection) -> bool,
        ruled: impl Fn(&What) -> bool,
        end: &End,
        ledger: &mut Ledger,
        now: Now,
    ) {
        let mut over = Vec::new();
        for (what, in_flight) in &mut self.operations {
            let detections = &mut in_flight.operation.detections;
            detections.retain(|_, detection| keeps(what, detection));
            if detections.is_empty() && !ruled(what) {
                over.push(what.clone());
            }
        }
        for (what, waiting) in &mut self.waiting {
            waiting
                .detections
                .retain(|_, detection| keeps(what, detection));
        }
        self.drop_undetected(ledger);
        for what in over {
            self.complete(&what, Some(end.clone()), ledger, now);
        }
    }

    /// Ends everything.
    pub(super) fn complete_all(&mut self, end: &End, ledger: &mut Ledger, now: Now) {
        for (what, waiting) in std::mem::take(&mut self.waiting) {
            ledger.not_due(waiting.ready, (self.identity.clone(), what));
        }
        let all: Vec<What> = self.operations.keys().cloned().collect();
        for what in all {
            self.complete(&what, Some(end.clone()), ledger, now);
        }
    }

    /// Ends one operation; with no other reason, because it is not detected any more.
    fn complete(
        &mut self,
        what: &What,
        end: Option<End>,
        ledger: &mut Ledger,
        now: Now,
    ) -> Option<Operation> {
        let in_flight = self.operations.remove(what)?;
        for at in in_flight.deadlines() {
            ledger.not_due(at, (self.identity.clone(), what.clone()));
        }
        let end = end.unwrap_or(if in_flight.left {
            End::SelectorLeft
        } else {
            End::NotDetected
        });
        ledger.complete(&self.identity, &in_flight.operation, &self.view, &end, now);
        Some(in_flight.operation)
    }

    /// Another run of an operation ends the one before, and starts anew.
    fn end_other_runs(&mut self, start: (Start, Observed), ledger: &mut Ledger, now: Now) {
        let others: Vec<What> = self
            .operations
            .iter()
            .filter(|(_, in_flight)| in_flight.operation.is_another_run())
            .map(|(what, _)| what.clone())
            .collect();
        for what in others {
            if let Some(ended) = self.complete(&what, Some(End::Replaced), ledger, now) {
                self.wait(what, ended.detections, start, ledger);
            }
        }
    }

    /// Ends what is not detected any more and of which the object tells how it ended.
    fn end_with_outcome(&mut self, outcomes: &[Outcome], ledger: &mut Ledger, now: Now) {
        for outcome in outcomes {
            let what = What {
                operation: outcome.operation.clone(),
                item: outcome.item.clone(),
            };
            let speaks = self.operations.get(&what).is_some_and(|in_flight| {
                in_flight.operation.detections.is_empty()
                    && in_flight.operation.is_spoken_for_by(&outcome.rule_set.name)
            });
            if speaks {
                let end = End::Outcome(outcome.state, outcome.message.clone());
                self.complete(&what, Some(end), ledger, now);
            }
        }
    }

    /// Takes up an operation that is detected and not in flight.
    fn wait(
        &mut self,
        what: What,
        detections: Detections,
        (start, observed): (Start, Observed),
        ledger: &mut Ledger,
    ) {
        let Some(first) = detections.values().next() else {
            return;
        };
        let rule = first.rule();
        let after = rule.map_or(Duration::ZERO, |rule| rule.appear_after);
        // An object that is listed has shown the operation since its last change.
        let since = if rule.is_some_and(Rule::detection_reads_now) {
            observed.now
        } else {
            observed.unchanged
        };
        let ready = since + after;
        if !after.is_zero() {
            ledger.due(ready, (self.identity.clone(), what.clone()));
        }
        self.waiting.insert(
            what,
            Waiting {
                yielded: Yielded::first(first, observed),
                detections,
                start,
                ready,
                delayed: !after.is_zero(),
            },
        );
    }

    /// Forgets what waits and is not detected any more.
    fn drop_undetected(&mut self, ledger: &mut Ledger) {
        let identity = &self.identity;
        self.waiting.retain(|what, waiting| {
            let stays = !waiting.detections.is_empty();
            if !stays {
                ledger.not_due(waiting.ready, (identity.clone(), what.clone()));
            }
            stays
        });
    }

    /// Ends what another operation supersedes, and starts what may start. What is
    /// superseded and still detected waits, to start `again`.
    fn arbitrate(&mut self, again: Start, gap: bool, ledger: &mut Ledger, now: Now) {
        // What waits for its time must have been detected all the while, which in a gap
        // is not known.
        let is_ready = |waiting: &Waiting| waiting.ready <= now.steady && !(gap && waiting.delayed);
        if self.operations.len() < 2 && self.waiting.is_empty() {
            return;
        }
        let active = self.operations.iter().map(|(what, in_flight)| {
            let operation = &in_flight.operation;
            contender(
                what,
                !operation.detections.is_empty(),
                operation.order(),
                operation.rule(),
            )
        });
        let ready = self
            .waiting
            .iter()
            .filter(|(_, waiting)| is_ready(waiting))
            .filter_map(|(what, waiting)| {
                let first = waiting.detections.values().next()?;
                let order = (&*first.rule_set.name, first.says.order);
                Some(contender(what, true, order, first.rule()))
            });
        let contenders: Vec<Contender<'_>> = active.chain(ready).collect();
        let lost = arbitrate::losers(&contenders);
        let verdict: Vec<(What, Option<Arc<str>>)> = contenders
            .iter()
            .zip(lost)
            .map(|(contender, winner)| {
                let by = winner.map(|winner| contenders[winner].what.operation.clone());
                (contender.what.clone(), by)
            })
            .collect();
        for (what, by) in verdict {
            match by {
                Some(by) => self.supersede(what, by, again, ledger, now),
                None => self.start(what, gap, ledger, now),
            }
        }
    }

    /// Ends an operation for another; if it is detected still, it waits.
    fn supersede(&mut self, what: What, by: Arc<str>, again: Start, ledger: &mut Ledger, now: Now) {
        let end = Some(End::Superseded(by));
        let seen = Now {
            wall: again.at,
            ..now
        };
        let Some(ended) = self.complete(&what, end, ledger, seen) else {
            return;
        };
        if !ended.detections.is_empty() {
            let waiting = Waiting {
                yielded: ended.yielded(),
                detections: ended.detections,
                start: again,
                ready: now.steady,
                delayed: false,
            };
            self.waiting.insert(what, waiting);
        }
    }

    /// Starts an operation that waits.
    fn start(&mut self, what: What, gap: bool, ledger: &mut Ledger, now: Now) {
        let Some(waiting) = self.waiting.remove(&what) else {
            return;
        };
        if self.waiting.is_empty() {
            self.waiting = LiteMap::new(); // Nothing waits for long, and most never again.
        }
        let id = (self.identity.clone(), what.clone());
        ledger.not_due(waiting.ready, id.clone());
        let said = waiting
            .detections
            .values()
            .next()
            .and_then(|first| first.says.started)
            .filter(|said| *said <= now.wall);
        let start = match said {
            Some(at) => Start {
                at,
                source: StartTimeSource::Expression,
            },
            None => waiting.start,
        };
        let operation = Operation::start(
            &self.identity,
            &self.view,
            &ledger.settings.cluster_namespace,
            (waiting.detections, waiting.yielded),
            what.clone(),
            ledger.after_predecessor(&id, start),
            now.wall,
        );
        let Some(mut operation) = operation else {
            return;
        };
        operation.update_state(now.steady, gap);
        if let Some(at) = operation.state_due() {
            ledger.due(at, id);
        }
        ledger.start(&operation, &self.view);
        let in_flight = InFlight {
            operation,
            settling: None,
            left: false,
        };
        self.operations.insert(what, Box::new(in_flight));
    }
}

fn contender<'a>(
    what: &'a What,
    detected: bool,
    order: (&'a str, usize),
    rule: Option<&'a Rule>,
) -> Contender<'a> {
    Contender {
        what,
        detected,
        order,
        supersedes: rule.map_or(&Supersedes::Nothing, |rule| &rule.supersedes),
    }
}

/// When an operation that is seen for the first time has started: with the change that it
/// is seen by, so that all who see the event give it the same name, or now.
fn first_start(subject: &Subject, initial: bool, now: Timestamp) -> Start {
    match subject.managed {
        Some(managed) if initial => Start {
            at: managed.min(now),
            source: StartTimeSource::ManagedFields,
        },
        Some(managed) if managed <= now && now.duration_since(managed) <= FRESH => {
            Start::detected(managed)
        }
        _ => Start::detected(now),
    }
}
