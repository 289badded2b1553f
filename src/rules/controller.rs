//! The event loop of the rule-set controller, which turns rule sets into rule books, and writes the
//! status of each rule set. A rule book contains the compiled rule sets of one target. A target is
//! the resource that a rule set watches. A feed is the watch of one target, or of one namespace of
//! it.
//!
//! The loop passes rule sets, results of discovery and reports of feeds to the [`Registry`]. The
//! registry returns rule books, which the loop publishes, and statuses, which the loop writes.

use super::Report;
use super::compilations::{Compilations, Compile, CompiledSpec};
use super::registry::Registry;
use super::status_writes::{StatusSink, StatusWrite, StatusWrites};
use super::target_discovery::Lookups;
use super::tracked_target::{Feedback, LookupRequest, Publication};
use crate::clock;
use crate::observe::Resolve;
use futures::StreamExt;
use futures::stream::BoxStream;
use ifo_api::ruleset::OperationRuleSet;
use ifo_api::{Gvr, Resolution};
use ifo_engine::rules::RuleSetsWithoutBook;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// Changes within this time are published together. A publication is expensive: the feeds of the
/// target list all objects again, and each changed status is written to the cluster.
const GATHER_PERIOD: Duration = Duration::from_millis(500);

/// Maximum time after the list of rule sets for which the start waits for the compiler. After that
/// time, the rule sets that are still being compiled are reported as rule sets that may miss
/// operations. All shipped rule sets together take less than a second.
const START_COMPILE_WAIT: Duration = Duration::from_secs(5);

/// When a feed becomes up to date, the controller sends a new [`Report`] after this delay. So the
/// report also contains the other feeds that become up to date during the delay. After any other
/// change, the controller sends the report at once, because lists of operations may have become
/// incomplete.
const REPORT_DELAY: Duration = Duration::from_millis(50);

/// Interval at which the controller computes the statuses again. If the requeue interval (see
/// [`Controller::new`]) is shorter, the controller uses the requeue interval instead.
///
/// Feeds record evaluations and failed evaluations only in
/// [`Activity`](ifo_engine::rules::Activity), and send no message to the controller. So a status
/// shows a failed evaluation with a delay of up to this interval.
const REVIEW_INTERVAL: Duration = Duration::from_secs(5);

/// A change of the rule sets, in the cluster or in a folder.
#[derive(Debug)]
pub enum RuleSetEvent {
    /// A list of all rule sets follows, up to `Synced`.
    Reset,
    /// A rule set was created or changed.
    Applied(Box<OperationRuleSet>),
    /// An object cannot be decoded as a rule set, so it has no rules. The value is its name.
    Unreadable(String),
    /// A rule set was deleted. The value is its name.
    Deleted(String),
    /// The fields of a rule set that this server does not know and therefore ignores. A newer
    /// release may know them.
    UnknownFields {
        /// Name of the rule set.
        rule_set: String,
        /// Paths of the fields, such as `spec.rules[0].newField`. Empty if all fields are known.
        fields: Vec<String>,
    },
    /// The fields of this release that the installed CRD does not have, such as
    /// `spec.rules[].operation`. The kube-apiserver removes these fields from rule sets. Empty if
    /// the CRD has all fields.
    OutdatedDefinition(Vec<String>),
    /// The list is complete. Rule sets that are missing in the list were deleted.
    Synced,
}

/// The inputs of the controller.
pub struct Inputs {
    /// The rule sets. The stream never ends.
    pub rule_sets: BoxStream<'static, RuleSetEvent>,
    /// The reports in which each feed says that it is up to date, or why it is not.
    pub feedback: mpsc::Receiver<Feedback>,
}

/// The outputs of the controller.
pub struct Outputs {
    /// Receives the rule books.
    pub publications: mpsc::Sender<Publication>,
    /// The rule sets that are in no rule book. `None` until each feed has sent its first report to
    /// [`Inputs::feedback`].
    pub rule_sets_without_book: watch::Sender<Option<Arc<RuleSetsWithoutBook>>>,
    /// Names of the rule sets that may miss operations, because their targets are not up to date.
    pub unsynced_rule_sets: watch::Sender<Arc<BTreeSet<String>>>,
    /// The state of all rule sets, for warnings and metrics.
    pub report: watch::Sender<Arc<Report>>,
    /// Receives the statuses.
    pub status: Arc<dyn StatusSink>,
}

/// The rule-set controller.
pub struct Controller {
    registry: Registry,
    resolve: Arc<dyn Resolve>,
    compiler: Arc<dyn Compile>,
    requeue: Duration,
    /// While a list of rule sets is being received, the names in it. Otherwise `None`.
    listed: Option<HashSet<String>>,
    start: StartPhase,
    /// The end of [`START_COMPILE_WAIT`].
    compile_wait: EarliestTime,
    /// The next time at which rule books are published and statuses are written.
    publish: EarliestTime,
    /// The next time at which only statuses are written.
    review: EarliestTime,
    /// The next time at which a [`Report`] is sent.
    report: EarliestTime,
}

/// The progress of the start.
#[derive(Debug, PartialEq, Eq)]
enum StartPhase {
    /// The rule sets have not been read completely.
    Reading,
    /// The rule sets have been read. They are being compiled, and their targets are being looked up.
    Resolving,
    /// Every target has been looked up, and the rule books of the served targets have been
    /// published. All rule sets have been compiled, or [`START_COMPILE_WAIT`] is over.
    Done,
}

impl Controller {
    /// Creates a controller. At the interval `requeue`, the controller looks up a target again if
    /// the target is not served, if its last look-up failed, or if its feeds fail. If
    /// `allow_secrets` is true, rule sets may watch secrets.
    pub fn new(
        resolve: Arc<dyn Resolve>,
        compiler: Arc<dyn Compile>,
        requeue: Duration,
        allow_secrets: bool,
    ) -> Self {
        Self {
            registry: Registry::new(allow_secrets, requeue),
            resolve,
            compiler,
            requeue,
            listed: None,
            start: StartPhase::Reading,
            compile_wait: EarliestTime::default(),
            publish: EarliestTime::default(),
            review: EarliestTime::default(),
            report: EarliestTime::default(),
        }
    }

    /// Runs until the receiver of rule books is dropped.
    pub async fn run(mut self, mut inputs: Inputs, outputs: Outputs) {
        let mut changes = self.resolve.resolution_changes();
        let mut lookups = Lookups::new(self.resolve.clone());
        let mut compilations = Compilations::new(self.compiler.clone());
        let mut writes = StatusWrites::new(outputs.status.clone());
        let mut requeue = every(self.requeue);
        let mut review = every(REVIEW_INTERVAL.min(self.requeue));
        loop {
            tokio::select! {
                event = inputs.rule_sets.next() => match event {
                    Some(event) => self.handle_rule_set(event, &mut lookups),
                    None => return,
                },
                Some(feedback) = inputs.feedback.recv() => self.handle_feedback(feedback, &mut lookups),
                Some(compiled) = compilations.next() => self.handle_compiled(compiled),
                Some((target, resolution)) = lookups.next() => self.handle_resolution(&target, resolution),
                Some(()) = changes.next() => lookups.request(self.registry.to_resolve(LookupRequest::All), true),
                _ = requeue.tick() => lookups.request(self.registry.to_resolve(LookupRequest::Doubtful), false),
                _ = review.tick() => self.review.schedule_within(Duration::ZERO),
                write = writes.next() => self.handle_write(write),
                () = self.publish.elapsed() => {
                    if !self.publish(&outputs).await {
                        return;
                    }
                    self.write_statuses(&mut writes);
                }
                () = self.compile_wait.elapsed() => {}
                () = self.review.elapsed() => self.write_statuses(&mut writes),
                () = self.report.elapsed() => self.report.schedule_within(Duration::ZERO),
            }
            // After the list is complete, the smallest rule set is compiled first. If a compilation
            // started earlier, the first rule set of the list could delay all others.
            if self.listed.is_none()
                && compilations.is_idle()
                && let Some((name, spec)) = self.registry.begin_next_compilation()
            {
                compilations.start(name, spec);
            }
            let has_compiled = !self.registry.is_compiling() || !self.compile_wait.is_scheduled();
            if self.start == StartPhase::Resolving && lookups.is_idle() && has_compiled {
                // The first rule books and statuses are sent without a delay.
                if !self.publish(&outputs).await {
                    return;
                }
                self.start = StartPhase::Done;
                self.report.schedule_within(Duration::ZERO);
                self.write_statuses(&mut writes);
            }
            if self.report.is_due() {
                self.report.clear();
                // No report is sent until the start is done. Until then, the receivers have the
                // default report, which says that the rule sets have not been read.
                if self.start == StartPhase::Done {
                    let report = Arc::new(self.registry.report());
                    outputs.report.send_replace(report);
                }
            }
            let unsynced = Arc::new(self.registry.unsynced_rule_sets());
            send_change(&outputs.unsynced_rule_sets, unsynced);
            // Before `rule_sets_without_book` is sent, the tracker, which turns detections into
            // operations, must have received all published rule books. The tracker receives each
            // rule book before the feeds of this rule book start. So when all feeds have reported,
            // the tracker has received all rule books.
            if self.start == StartPhase::Done && self.registry.caught_up() {
                let rule_sets_without_book = Arc::new(self.registry.rule_sets_without_book());
                send_change(
                    &outputs.rule_sets_without_book,
                    Some(rule_sets_without_book),
                );
            }
        }
    }

    /// Records an event of a rule set, and looks up new targets.
    fn handle_rule_set(&mut self, event: RuleSetEvent, lookups: &mut Lookups) {
        self.report.schedule_within(Duration::ZERO);
        match event {
            RuleSetEvent::Reset => self.listed = Some(HashSet::new()),
            RuleSetEvent::Applied(object) => {
                if let (Some(listed), Some(name)) = (&mut self.listed, &object.metadata.name) {
                    listed.insert(name.clone());
                }
                if self.registry.is_new_or_changed(&object) {
                    self.registry.apply(*object);
                    self.publish.schedule_within(GATHER_PERIOD);
                } else if self.registry.observe(&object) {
                    self.review.schedule_within(GATHER_PERIOD);
                }
            }
            RuleSetEvent::Unreadable(name) => {
                if let Some(listed) = &mut self.listed {
                    listed.insert(name.clone());
                }
                self.registry.unreadable(name);
                self.publish.schedule_within(GATHER_PERIOD);
            }
            RuleSetEvent::Deleted(name) => {
                if self.registry.remove(&name) {
                    self.publish.schedule_within(GATHER_PERIOD);
                }
            }
            RuleSetEvent::UnknownFields { rule_set, fields } => {
                self.registry.set_unknown_fields(rule_set, fields);
                self.review.schedule_within(GATHER_PERIOD);
            }
            RuleSetEvent::OutdatedDefinition(fields) => {
                self.registry.set_missing_fields(fields);
                self.review.schedule_within(GATHER_PERIOD);
            }
            RuleSetEvent::Synced => {
                if self.start == StartPhase::Reading {
                    self.start = StartPhase::Resolving;
                    self.compile_wait.schedule_within(START_COMPILE_WAIT);
                }
                let listed = self.listed.take();
                let gone: Vec<String> = self
                    .registry
                    .names()
                    .filter(|name| {
                        listed
                            .as_ref()
                            .is_some_and(|listed| !listed.contains(*name))
                    })
                    .cloned()
                    .collect();
                for name in &gone {
                    self.registry.remove(name);
                }
                self.publish.schedule_within(GATHER_PERIOD);
            }
        }
        lookups.request(self.registry.to_resolve(LookupRequest::New), false);
    }

    fn handle_compiled(&mut self, compiled: CompiledSpec) {
        if self.registry.compiled(compiled) {
            self.report.schedule_within(Duration::ZERO);
            self.publish.schedule_within(GATHER_PERIOD);
        }
    }

    fn handle_feedback(&mut self, feedback: Feedback, lookups: &mut Lookups) {
        let target = feedback.source.target.clone();
        let failed = feedback.failure.is_some();
        if !self.registry.feedback(feedback) {
            return;
        }
        self.review.schedule_within(GATHER_PERIOD);
        self.report
            .schedule_within(if failed { Duration::ZERO } else { REPORT_DELAY });
        if failed {
            // The feed may have failed because its target is no longer served.
            lookups.request(vec![target], true);
        }
    }

    fn handle_resolution(&mut self, target: &Arc<Gvr>, resolution: Resolution) {
        if self.registry.resolved(target, resolution) {
            self.report.schedule_within(Duration::ZERO);
            self.publish.schedule_within(GATHER_PERIOD);
        }
    }

    /// Handles the end of a write. `write` is `None` if the write has failed.
    fn handle_write(&mut self, write: Option<(StatusWrite, Option<String>)>) {
        if let Some((write, version)) = write {
            self.registry.written(write, version);
        }
        // The status may have changed during this write. The controller then writes the newer
        // status.
        self.review.schedule_within(GATHER_PERIOD);
    }

    /// Publishes rule books. Returns false if their receiver was dropped.
    async fn publish(&mut self, outputs: &Outputs) -> bool {
        if self.start == StartPhase::Reading {
            return true; // Not all rule sets are known, so the rule books would be incomplete.
        }
        self.publish.clear();
        self.report.schedule_within(Duration::ZERO);
        for publication in self.registry.publish() {
            if outputs.publications.send(publication).await.is_err() {
                return false;
            }
        }
        true
    }

    fn write_statuses(&mut self, writes: &mut StatusWrites) {
        self.review.clear();
        if self.start == StartPhase::Reading {
            return;
        }
        if let Some(again) = writes.replace_waiting(self.registry.statuses(clock::now())) {
            self.review.schedule_at(again);
        }
    }
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

/// A timer. If several times are scheduled, the timer elapses at the earliest of them.
#[derive(Debug, Default)]
struct EarliestTime(Option<Instant>);

impl EarliestTime {
    fn schedule_within(&mut self, wait: Duration) {
        self.schedule_at(Instant::now() + wait);
    }

    fn schedule_at(&mut self, at: Instant) {
        self.0 = Some(self.0.map_or(at, |earlier| earlier.min(at)));
    }

    fn clear(&mut self) {
        self.0 = None;
    }

    fn is_scheduled(&self) -> bool {
        self.0.is_some()
    }

    fn is_due(&self) -> bool {
        self.0.is_some_and(|at| at <= Instant::now())
    }

    /// Waits for the scheduled time and clears it. Waits forever if no time is scheduled.
    async fn elapsed(&mut self) {
        match self.0 {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
        self.0 = None;
    }
}
