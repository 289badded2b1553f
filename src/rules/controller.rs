//! Runs the registry: takes in rule sets, discovery and feedback, and gives out books
//! and statuses.

use super::registry::{Ask, Feedback, Publication, Registry};
use crate::api::ruleset::{OperationRuleSet, OperationRuleSetStatus};
use crate::api::{Gvr, Resolution};
use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered};
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};

/// Changes of rule sets within this time are published together, since each
/// publication makes the target's feeds list anew.
const GATHER: Duration = Duration::from_millis(500);

/// Status writes and look-ups under way at once.
const CONCURRENCY: usize = 8;

/// A change of the rule sets.
#[derive(Debug)]
pub enum RuleSetEvent {
    /// The whole state follows.
    Reset,
    /// A rule set appeared or changed.
    Applied(Box<OperationRuleSet>),
    /// One is gone.
    Deleted(String),
    /// The whole state has been told; what was not told since `Reset` is gone.
    Synced,
}

/// Finds out whether targets are served. Goes with what their feeds read from.
pub trait Resolve: Send + Sync + 'static {
    /// Asks discovery. Takes as long as a few unary calls may take.
    fn resolve<'a>(&'a self, target: &'a Gvr) -> BoxFuture<'a, Resolution>;

    /// Fires when an earlier answer may have changed. It works only while it is polled,
    /// never ends, and sums up changes that come close together.
    fn changes(&self) -> BoxStream<'static, ()>;
}

/// A status to write.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusWrite {
    /// Name of the rule set.
    pub name: String,
    /// Its status.
    pub status: OperationRuleSetStatus,
}

/// Where statuses go.
pub trait StatusSink: Send + Sync + 'static {
    /// Writes one; false if it has to be tried again.
    fn write<'a>(&'a self, write: &'a StatusWrite) -> BoxFuture<'a, bool>;
}

/// What the controller reads.
pub struct Inputs {
    /// The rule sets. Never ends.
    pub rule_sets: BoxStream<'static, RuleSetEvent>,
    /// What feeds report.
    pub feedback: mpsc::Receiver<Feedback>,
}

/// What the controller writes to.
pub struct Outputs {
    /// Books.
    pub publications: mpsc::Sender<Publication>,
    /// True once every feed of the first rule sets has reported: that it is up to
    /// date, or why it is not.
    pub caught_up: watch::Sender<bool>,
    /// Statuses.
    pub status: Arc<dyn StatusSink>,
}

/// The controller.
pub struct Controller {
    registry: Registry,
    resolve: Arc<dyn Resolve>,
    requeue: Duration,
    /// Rule sets told of since the last `Reset`.
    told: Option<HashSet<String>>,
    first: First,
}

#[derive(Debug, PartialEq, Eq)]
enum First {
    /// The rule sets have not been read to the end yet.
    Reading,
    /// They have, and their targets are being looked up.
    Resolving,
    Done,
}

impl Controller {
    /// A controller that looks failed targets up again every `requeue`.
    pub fn new(resolve: Arc<dyn Resolve>, requeue: Duration, allow_secrets: bool) -> Self {
        Self {
            registry: Registry::new(allow_secrets, requeue),
            resolve,
            requeue,
            told: None,
            first: First::Reading,
        }
    }

    /// Runs until the publications are not wanted any more.
    pub async fn run(mut self, mut inputs: Inputs, outputs: Outputs) {
        let mut changes = self.resolve.changes();
        let mut requeue = tokio::time::interval(self.requeue);
        requeue.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut lookups: FuturesUnordered<BoxFuture<'static, (Arc<Gvr>, Resolution)>> =
            FuturesUnordered::new();
        let mut looking_up: HashMap<Arc<Gvr>, bool> = HashMap::new();
        let mut waiting: Vec<Arc<Gvr>> = Vec::new();
        let mut status_writes: FuturesUnordered<BoxFuture<'static, (StatusWrite, bool)>> =
            FuturesUnordered::new();
        let mut writing: HashSet<String> = HashSet::new();
        let mut publish_at: Option<Instant> = None;
        loop {
            while lookups.len() < CONCURRENCY
                && let Some(target) = waiting.pop()
            {
                let resolve = self.resolve.clone();
                lookups.push(
                    async move {
                        let resolution = resolve.resolve(&target).await;
                        (target, resolution)
                    }
                    .boxed(),
                );
            }
            let mut ask = Vec::new();
            // Whether an answer that is already under way would be too old.
            let mut anew = false;
            let mut changed = false;
            tokio::select! {
                event = inputs.rule_sets.next() => match event {
                    Some(event) => { changed = self.rule_set(event); ask = self.registry.to_resolve(Ask::New); }
                    None => return,
                },
                Some(()) = changes.next() => {
                    ask = self.registry.to_resolve(Ask::All);
                    anew = true;
                }
                Some(feedback) = inputs.feedback.recv() => {
                    let target = feedback.source.target.clone();
                    let failed = feedback.failure.is_some();
                    if self.registry.feedback(feedback) {
                        publish_at.get_or_insert(Instant::now() + GATHER);
                        if failed {
                            ask = vec![target];
                            anew = true;
                        }
                    }
                }
                Some((target, resolution)) = lookups.next() => {
                    if looking_up.remove(&target) == Some(true) { ask = vec![target.clone()]; }
                    changed = self.registry.resolved(&target, resolution);
                }
                Some((write, written)) = status_writes.next() => {
                    writing.remove(&write.name);
                    if written {
                        self.registry.written(&write.name, write.status);
                    }
                    // A newer status may have been held back; a failed one waits longer.
                    let wait = if written { GATHER } else { GATHER * 10 };
                    publish_at.get_or_insert(Instant::now() + wait);
                }
                _ = requeue.tick() => {
                    ask = self.registry.to_resolve(Ask::Unserved);
                    publish_at.get_or_insert(Instant::now());
                }
                () = sleep_until(publish_at) => {
                    publish_at = None;
                    if self.first == First::Reading || (self.first == First::Resolving && !looking_up.is_empty()) {
                        continue;
                    }
                    if !self.publish(&outputs).await { return; }
                    for write in self.registry.statuses(Timestamp::now()) {
                        if writing.len() >= CONCURRENCY || !writing.insert(write.name.clone()) { continue; }
                        let status = outputs.status.clone();
                        status_writes.push(async move { let written = status.write(&write).await; (write, written) }.boxed());
                    }
                }
            }
            if self.first == First::Done
                && !*outputs.caught_up.borrow()
                && self.registry.caught_up()
            {
                outputs.caught_up.send_replace(true);
            }
            for target in ask {
                // One look-up of a target at a time; a further wish is served after it.
                if let Some(again) = looking_up.get_mut(&target) {
                    *again |= anew;
                } else {
                    looking_up.insert(target.clone(), false);
                    waiting.push(target);
                }
            }
            if self.first == First::Resolving && looking_up.is_empty() {
                // The first picture does not wait for a gathering.
                publish_at = Some(Instant::now());
            } else if changed {
                publish_at.get_or_insert(Instant::now() + GATHER);
            }
        }
    }

    fn rule_set(&mut self, event: RuleSetEvent) -> bool {
        match event {
            RuleSetEvent::Reset => {
                self.told = Some(HashSet::new());
                false
            }
            RuleSetEvent::Applied(object) => {
                if let (Some(told), Some(name)) = (&mut self.told, &object.metadata.name) {
                    told.insert(name.clone());
                }
                self.registry.apply(*object)
            }
            RuleSetEvent::Deleted(name) => self.registry.remove(&name),
            RuleSetEvent::Synced => {
                if self.first == First::Reading {
                    self.first = First::Resolving;
                }
                let Some(told) = self.told.take() else {
                    return true;
                };
                let gone: Vec<String> = self
                    .registry
                    .names()
                    .filter(|name| !told.contains(*name))
                    .cloned()
                    .collect();
                for name in &gone {
                    self.registry.remove(name);
                }
                true
            }
        }
    }

    /// False when nobody wants publications any more.
    async fn publish(&mut self, outputs: &Outputs) -> bool {
        for publication in self.registry.publish() {
            if outputs.publications.send(publication).await.is_err() {
                return false;
            }
        }
        self.first = First::Done;
        true
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
