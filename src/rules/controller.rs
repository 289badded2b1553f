//! The event loop of the rule-set controller, which turns rule sets into rule books, and writes the
//! status of each rule set. A rule book contains the compiled rule sets of one target. A target is
//! the resource that a rule set watches. A feed is the watch of one target, or of one namespace of
//! it.
//!
//! The loop passes rule sets, results of discovery and reports of feeds to the [`Registry`]. The
//! registry returns rule books, which the loop publishes, and statuses, which the loop writes.

use super::Report;
use super::compilations::{CompiledSpec, Compiler};
use super::registry::Registry;
use super::status_writes::{StatusSink, StatusWrites};
use super::tracked_target::{Feedback, TrackedTarget};
use crate::clock;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered};
use futures::{FutureExt as _, StreamExt as _};
use ifo_api::ruleset::OperationRuleSet;
use ifo_engine::track::Publication;
use ifo_observe::{Resolve, ResolvedTarget};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

/// Changes within this time are published together. A publication is expensive: the feeds of the
/// target list all objects again, and each changed status is written to the cluster.
const GATHER_PERIOD: Duration = Duration::from_millis(500);

/// Maximum time for which the start waits for the compiler. The time counts from the end of the
/// list of rule sets. After this time, the controller publishes the rule books without the rule
/// sets that are still being compiled. It reports that these rule sets may miss operations. The
/// compiler needs less than a second for all shipped rule sets together.
const START_COMPILE_WAIT: Duration = Duration::from_secs(5);

/// Time after which the controller computes the statuses again, although nothing has changed. If the
/// requeue interval (see [`Controller::new`]) is shorter, the controller uses the requeue interval
/// instead.
///
/// Feeds record evaluations and failed evaluations in [`Activity`](ifo_engine::rules::Activity),
/// and send no message to the controller. So a status shows a failed evaluation with a delay of up
/// to this interval.
const REVIEW_INTERVAL: Duration = Duration::from_secs(5);

/// A change of the rule sets, in the cluster or in a folder.
#[derive(Debug)]
pub enum RuleSetEvent {
    /// A list of all rule sets follows, up to `Synced`.
    Reset,
    /// A rule set was created or changed.
    Applied {
        /// The rule set.
        rule_set: Box<OperationRuleSet>,
        /// Paths of the fields that this server does not know and therefore ignores, such as
        /// `spec.rules[0].newField`. A newer release may know them.
        unknown_fields: Vec<String>,
    },
    /// An object cannot be decoded as a rule set, so it has no rules. The value is its name.
    Unreadable(String),
    /// A rule set was deleted. The value is its name.
    Deleted(String),
    /// The fields of this release that the installed CRD does not have, such as
    /// `spec.rules[].operation`. The kube-apiserver removes these fields from rule sets. Empty if
    /// the CRD has all fields.
    OutdatedDefinition(Vec<String>),
    /// The list is complete. Rule sets that are missing in the list were deleted.
    Synced,
}

/// The outputs of the controller.
pub struct Outputs {
    /// Receives the rule books.
    pub publications: mpsc::Sender<Publication>,
    /// The state of all rule sets.
    pub report: watch::Sender<Arc<Report>>,
    /// Receives the statuses.
    pub status: Arc<dyn StatusSink>,
}

/// The rule-set controller.
pub struct Controller {
    registry: Registry,
    resolve: Arc<dyn Resolve>,
    compiler: Compiler,
    requeue: Duration,
    /// While a list of rule sets is being received, the names in it. Otherwise `None`.
    listed: Option<HashSet<String>>,
    start: StartPhase,
    /// True if the controller must look up all targets again. A running look-up does not suffice,
    /// because its result may be outdated. So the next look-up starts when the running one ends.
    is_look_up_due: bool,
    /// The end of [`START_COMPILE_WAIT`].
    compile_deadline: Instant,
    /// The next time at which changed rule books are published and changed statuses are written.
    settle_at: Instant,
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
    /// Creates a controller. At the interval `requeue`, the controller looks up all targets again
    /// if at least one of them is not served, could not be looked up, or has a failing feed. If
    /// `allow_secrets` is true, rule sets may watch secrets.
    pub fn new(
        resolve: Arc<dyn Resolve>,
        compiler: Compiler,
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
            is_look_up_due: false,
            compile_deadline: Instant::now(),
            settle_at: Instant::now(),
        }
    }

    /// Runs until the receiver of rule books is dropped, or until the stream `rule_sets` ends. In
    /// `feedback`, each feed reports that it is up to date, or why it is not.
    pub async fn run(
        mut self,
        mut rule_sets: BoxStream<'static, RuleSetEvent>,
        mut feedback: mpsc::Receiver<Feedback>,
        outputs: Outputs,
    ) {
        let mut changes = self.resolve.resolution_changes();
        // Each of these two contains at most one future: one look-up of all targets, and the
        // compilation of one rule set. The registry decides which rule set is compiled next.
        let mut lookups = FuturesUnordered::<BoxFuture<'static, Vec<ResolvedTarget>>>::new();
        let mut compilations = FuturesUnordered::<BoxFuture<'static, CompiledSpec>>::new();
        let mut writes = StatusWrites::new(outputs.status.clone());
        let mut requeue = interval_at(Instant::now() + self.requeue, self.requeue);
        requeue.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_waiting = Instant::now() < self.compile_deadline;
            let mut is_due = false;
            tokio::select! {
                event = rule_sets.next() => {
                    let Some(event) = event else {
                        return;
                    };
                    self.handle_rule_set(event);
                    self.is_look_up_due |= self.registry.any_target(TrackedTarget::is_new);
                }
                Some(feedback) = feedback.recv() => {
                    // A feed may have failed because its target is no longer served.
                    let has_failed = feedback.failure.is_some();
                    self.is_look_up_due |= self.registry.feedback(feedback) && has_failed;
                }
                Some(compiled) = compilations.next() => self.registry.compiled(compiled),
                Some(results) = lookups.next() => self.registry.resolved(results),
                Some(()) = changes.next() => self.is_look_up_due = true,
                _ = requeue.tick() => {
                    self.is_look_up_due |= self.registry.any_target(TrackedTarget::is_doubtful);
                }
                // If the status has changed during this write, the controller writes the newer
                // status after `settle_at`.
                written = writes.next() => if let Some((write, version)) = written {
                    self.registry.written(write, version);
                },
                () = sleep_until(self.compile_deadline), if is_waiting => {}
                () = sleep_until(self.settle_at) => is_due = true,
            }
            let pause = if is_due {
                REVIEW_INTERVAL.min(self.requeue)
            } else {
                GATHER_PERIOD
            };
            let settle_at = Instant::now() + pause;
            if is_due || settle_at < self.settle_at {
                self.settle_at = settle_at;
            }
            if self.start != StartPhase::Reading
                && lookups.is_empty()
                && std::mem::take(&mut self.is_look_up_due)
            {
                lookups.push(self.resolve.resolve(self.registry.targets()));
            }
            // A compilation starts only after the list is complete, so that the smallest rule set
            // is compiled first. During the list, a large rule set could start first and delay all
            // others.
            if self.listed.is_none()
                && compilations.is_empty()
                && let Some((name, spec)) = self.registry.begin_next_compilation()
            {
                let compiling = (self.compiler)(name.clone(), spec.clone());
                compilations.push(compiling.map(|result| (name, spec, result)).boxed());
            }
            let has_compiled =
                Instant::now() >= self.compile_deadline || !self.registry.is_compiling();
            let is_resolved =
                self.start == StartPhase::Resolving && lookups.is_empty() && has_compiled;
            // While the rule sets are being read, nothing is published, because the rule books
            // would be incomplete. The first rule books and statuses are sent without a delay.
            if is_resolved || is_due && self.start != StartPhase::Reading {
                for publication in self.registry.publish() {
                    if outputs.publications.send(publication).await.is_err() {
                        return;
                    }
                }
                writes.start_all(self.registry.statuses(clock::now()));
            }
            if is_resolved {
                self.start = StartPhase::Done;
            }
            // Until the start is done, the receivers have the default report, which says that the rule
            // sets have not been read.
            if self.start == StartPhase::Done {
                let report = self.registry.report();
                outputs.report.send_replace(Arc::new(report));
            }
        }
    }

    fn handle_rule_set(&mut self, event: RuleSetEvent) {
        match event {
            RuleSetEvent::Reset => self.listed = Some(HashSet::new()),
            RuleSetEvent::Applied {
                rule_set,
                unknown_fields,
            } => {
                if let Some(listed) = &mut self.listed {
                    listed.extend(rule_set.metadata.name.clone());
                }
                self.registry.apply(*rule_set, unknown_fields);
            }
            RuleSetEvent::Unreadable(name) => {
                if let Some(listed) = &mut self.listed {
                    listed.insert(name.clone());
                }
                self.registry.unreadable(name);
            }
            RuleSetEvent::Deleted(name) => self.registry.remove(&name),
            RuleSetEvent::OutdatedDefinition(fields) => self.registry.set_missing_fields(fields),
            RuleSetEvent::Synced => {
                if self.start == StartPhase::Reading {
                    self.start = StartPhase::Resolving;
                    self.compile_deadline = Instant::now() + START_COMPILE_WAIT;
                }
                if let Some(listed) = self.listed.take() {
                    self.registry.retain(&listed);
                }
            }
        }
    }
}
