//! Runs the registry. Input: rule sets, discovery and reports of feeds. Output: rule books and
//! statuses.

use super::Report;
use super::lookups::Lookups;
use super::registry::{Feedback, LookupRequest, Publication, Registry};
use super::writes::{StatusSink, StatusWrite, StatusWrites};
use crate::clock;
use crate::observe::Resolve;
use futures::StreamExt;
use futures::stream::BoxStream;
use ifo_api::ruleset::OperationRuleSet;
use ifo_api::{Gvr, Resolution};
use ifo_engine::rules::{RuleSet, RuleSetError, RuleSetsWithoutBook, compile};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// Changes within this time are published together. Each publication makes the target's feeds
/// list again, and each status is a write.
const GATHER_PERIOD: Duration = Duration::from_millis(500);

/// Reports that feeds are up to date are collected for this time. All other reports are sent at
/// once, because operations may be missing from then on.
const REPORT_DELAY: Duration = Duration::from_millis(50);

/// Interval at which statuses are compared with [`Activity`](ifo_engine::rules::Activity), which
/// feeds change without a message. An author who tries a rule waits at most this long, or the
/// requeue interval, for its failure.
const REVIEW_INTERVAL: Duration = Duration::from_secs(5);

/// A change of the rule sets.
#[derive(Debug)]
pub enum RuleSetEvent {
    /// All rule sets follow.
    Reset,
    /// A rule set was created or changed.
    Applied(Box<OperationRuleSet>),
    /// The object cannot be decoded as a rule set. It has no rules.
    Unreadable(String),
    /// A rule set was deleted.
    Deleted(String),
    /// All rule sets have been sent. Those that were not sent since `Reset` were deleted.
    Synced,
}

/// The inputs of the controller.
pub struct Inputs {
    /// The rule sets. The stream never ends.
    pub rule_sets: BoxStream<'static, RuleSetEvent>,
    /// Reports of feeds.
    pub feedback: mpsc::Receiver<Feedback>,
}

/// The outputs of the controller.
pub struct Outputs {
    /// Rule books.
    pub publications: mpsc::Sender<Publication>,
    /// Set when every feed of the first rule sets has reported that it is up to date, or why it is
    /// not. The value has the rule sets without a feed, and changes with them.
    pub caught_up: watch::Sender<Option<Arc<RuleSetsWithoutBook>>>,
    /// Names of the rule sets whose operations may be missing.
    pub unread: watch::Sender<Arc<BTreeSet<String>>>,
    /// The state of all rule sets.
    pub report: watch::Sender<Arc<Report>>,
    /// Statuses.
    pub status: Arc<dyn StatusSink>,
}

/// The controller.
pub struct Controller {
    registry: Registry,
    resolve: Arc<dyn Resolve>,
    requeue: Duration,
    /// Rule sets that were sent since the last `Reset`.
    told: Option<HashSet<String>>,
    first: First,
    /// The next time to publish books and to write statuses.
    publish: EarliestTime,
    /// The next time to write statuses.
    review: EarliestTime,
    /// The next time to report the state of the rule sets.
    report: EarliestTime,
}

#[derive(Debug, PartialEq, Eq)]
enum First {
    /// The rule sets have not been read completely.
    Reading,
    /// The rule sets have been read, and their targets are being looked up.
    Resolving,
    /// Every target has been looked up, and the books of served targets have been published.
    Done,
}

impl Controller {
    /// Creates a controller that looks up failed targets again every `requeue`.
    pub fn new(resolve: Arc<dyn Resolve>, requeue: Duration, allow_secrets: bool) -> Self {
        Self {
            registry: Registry::new(allow_secrets, requeue),
            resolve,
            requeue,
            told: None,
            first: First::Reading,
            publish: EarliestTime::default(),
            review: EarliestTime::default(),
            report: EarliestTime::default(),
        }
    }

    /// Runs until the receiver of publications is dropped.
    pub async fn run(mut self, mut inputs: Inputs, outputs: Outputs) {
        let mut changes = self.resolve.changes();
        let mut lookups = Lookups::new(self.resolve.clone());
        let mut writes = StatusWrites::new(outputs.status.clone());
        let mut requeue = every(self.requeue);
        let mut review = every(REVIEW_INTERVAL.min(self.requeue));
        loop {
            tokio::select! {
                event = inputs.rule_sets.next() => match event {
                    Some(event) => self.rule_set(event, &mut lookups).await,
                    None => return,
                },
                Some(feedback) = inputs.feedback.recv() => self.feedback(feedback, &mut lookups),
                Some((target, resolution)) = lookups.next() => self.resolved(&target, resolution),
                Some(()) = changes.next() => lookups.ask(self.registry.to_resolve(LookupRequest::All), true),
                _ = requeue.tick() => lookups.ask(self.registry.to_resolve(LookupRequest::Doubtful), false),
                _ = review.tick() => self.review.check_within(Duration::ZERO),
                write = writes.next() => self.written(write),
                () = self.publish.rings() => {
                    if !self.publish(&outputs).await {
                        return;
                    }
                    self.write_statuses(&mut writes);
                }
                () = self.review.rings() => self.write_statuses(&mut writes),
                () = self.report.rings() => self.report.check_within(Duration::ZERO),
            }
            if self.first == First::Resolving && lookups.is_idle() {
                // The first state is sent without a delay.
                if !self.publish(&outputs).await {
                    return;
                }
                self.first = First::Done;
                self.report.check_within(Duration::ZERO);
                self.write_statuses(&mut writes);
            }
            if self.report.is_due() {
                self.report.clear();
                // Until then, the report says that the rule sets have not been read.
                if self.first == First::Done {
                    let report = Arc::new(self.registry.report());
                    outputs.report.send_replace(report);
                }
            }
            send_change(&outputs.unread, Arc::new(self.registry.unread()));
            // Before this, the published books have not reached the tracker.
            if self.first == First::Done && self.registry.caught_up() {
                let bookless = Arc::new(self.registry.bookless());
                send_change(&outputs.caught_up, Some(bookless));
            }
        }
    }

    async fn rule_set(&mut self, event: RuleSetEvent, lookups: &mut Lookups) {
        self.report.check_within(Duration::ZERO);
        match event {
            RuleSetEvent::Reset => self.told = Some(HashSet::new()),
            RuleSetEvent::Applied(object) => {
                if let (Some(told), Some(name)) = (&mut self.told, &object.metadata.name) {
                    told.insert(name.clone());
                }
                if self.registry.is_news(&object) {
                    let compiled = compiled(&object).await;
                    self.registry.apply(*object, compiled);
                    self.publish.check_within(GATHER_PERIOD);
                } else if self.registry.seen(&object) {
                    self.review.check_within(GATHER_PERIOD);
                }
            }
            RuleSetEvent::Unreadable(name) => {
                if let Some(told) = &mut self.told {
                    told.insert(name.clone());
                }
                self.registry.unreadable(name);
                self.publish.check_within(GATHER_PERIOD);
            }
            RuleSetEvent::Deleted(name) => {
                if self.registry.remove(&name) {
                    self.publish.check_within(GATHER_PERIOD);
                }
            }
            RuleSetEvent::Synced => {
                if self.first == First::Reading {
                    self.first = First::Resolving;
                }
                let told = self.told.take();
                let gone: Vec<String> = self
                    .registry
                    .names()
                    .filter(|name| told.as_ref().is_some_and(|told| !told.contains(*name)))
                    .cloned()
                    .collect();
                for name in &gone {
                    self.registry.remove(name);
                }
                self.publish.check_within(GATHER_PERIOD);
            }
        }
        lookups.ask(self.registry.to_resolve(LookupRequest::New), false);
    }

    fn feedback(&mut self, feedback: Feedback, lookups: &mut Lookups) {
        let target = feedback.source.target.clone();
        let failed = feedback.failure.is_some();
        if !self.registry.feedback(feedback) {
            return;
        }
        self.review.check_within(GATHER_PERIOD);
        self.report
            .check_within(if failed { Duration::ZERO } else { REPORT_DELAY });
        if failed {
            // The resource may no longer be served.
            lookups.ask(vec![target], true);
        }
    }

    fn resolved(&mut self, target: &Arc<Gvr>, resolution: Resolution) {
        if self.registry.resolved(target, resolution) {
            self.report.check_within(Duration::ZERO);
            self.publish.check_within(GATHER_PERIOD);
        }
    }

    /// Handles the end of a write. None means that it failed.
    fn written(&mut self, write: Option<(StatusWrite, Option<String>)>) {
        if let Some((write, version)) = write {
            self.registry.written(write, version);
        }
        // A newer status may have been waiting for this write.
        self.review.check_within(GATHER_PERIOD);
    }

    /// Publishes books. Returns false if the receiver of publications was dropped.
    async fn publish(&mut self, outputs: &Outputs) -> bool {
        if self.first == First::Reading {
            return true; // Books of half of the rule sets would be replaced at once.
        }
        self.publish.clear();
        self.report.check_within(Duration::ZERO);
        for publication in self.registry.publish() {
            if outputs.publications.send(publication).await.is_err() {
                return false;
            }
        }
        true
    }

    fn write_statuses(&mut self, writes: &mut StatusWrites) {
        self.review.clear();
        if self.first == First::Reading {
            return;
        }
        if let Some(again) = writes.take(self.registry.statuses(clock::now())) {
            self.review.at(again);
        }
    }
}

/// Compiles on a thread for blocking work, because a hostile rule set takes seconds.
async fn compiled(object: &OperationRuleSet) -> Result<RuleSet, Vec<RuleSetError>> {
    let name = object.metadata.name.clone().unwrap_or_default();
    let spec = object.spec.clone();
    tokio::task::spawn_blocking(move || compile(&name, &spec))
        .await
        .unwrap_or_else(|error| {
            // It is cancelled only when the process ends.
            if error.is_panic() {
                tracing::error!(%error, "a rule set could not be compiled");
            }
            Err(vec![RuleSetError::Spec("the compiler failed".to_owned())])
        })
}

/// Sends a value if it differs from the last one.
fn send_change<T: PartialEq>(sender: &watch::Sender<T>, value: T) {
    sender.send_if_modified(|last| {
        let is_new = *last != value;
        *last = value;
        is_new
    });
}

fn every(period: Duration) -> tokio::time::Interval {
    let mut every = interval_at(Instant::now() + period, period);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    every
}

/// The earliest of several times to wait for.
#[derive(Debug, Default)]
struct EarliestTime(Option<Instant>);

impl EarliestTime {
    fn check_within(&mut self, wait: Duration) {
        self.at(Instant::now() + wait);
    }

    fn at(&mut self, at: Instant) {
        self.0 = Some(self.0.map_or(at, |earlier| earlier.min(at)));
    }

    fn clear(&mut self) {
        self.0 = None;
    }

    fn is_due(&self) -> bool {
        self.0.is_some_and(|at| at <= Instant::now())
    }

    /// Completes once for each time that is set. Pending while none is set.
    async fn rings(&mut self) {
        match self.0 {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
        self.0 = None;
    }
}
