//! The task of one feed. Input: the raw events of the feed. Output: the messages of the engine's
//! detector, and whether the feed is up to date.

use crate::clock;
use crate::observe::{Feed, GapReason, ObjectNames, Raw};
use crate::rules::Feedback;
use crate::telemetry::Counter;
use futures::StreamExt;
use futures::stream::BoxStream;
use ifo_api::ruleset::AGGREGATE_LABEL;
use ifo_api::{Gvr, Source};
use ifo_engine::ClockReading;
use ifo_engine::detect::{Detector, EvaluatedObject, FeedEvent, Subject};
use ifo_engine::track::Message;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

/// One feed and its detector.
pub(super) struct FeedTask {
    pub(super) feed: Arc<dyn Feed>,
    pub(super) source: Source,
    pub(super) detector: Detector,
    pub(super) tracker: mpsc::Sender<Message>,
    pub(super) feedback: mpsc::Sender<Feedback>,
    /// Counts what is read from the feed.
    pub(super) events_read: Counter,
}

impl FeedTask {
    /// Runs until the tracker or the controller has ended. Rules that depend on the time are
    /// evaluated again at the interval `resync`.
    pub(super) async fn run(mut self, resync: Duration) {
        let mut events = self.events();
        let mut resync = tokio::time::interval(resync);
        resync.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let goes_on = tokio::select! {
                event = events.next() => match event {
                    Some(event) => self.event(event).await,
                    None => false,
                },
                _ = resync.tick(), if !self.detector.is_listing() => {
                    let now = clock::reading();
                    let goes_on = self.evaluate_again(now).await;
                    if self.detector.wants_list(now) {
                        events = self.events();
                    }
                    goes_on
                }
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Starts a new stream of the source, which begins with a list of all objects.
    fn events(&self) -> BoxStream<'static, Raw> {
        let source = self.source.clone();
        match self.detector.book().selector() {
            Some(selector) => self.feed.follow_selected(source, &selector.to_string()),
            None => self.feed.follow(source),
        }
    }

    /// Handles an event. Like all functions below, it returns false if the receivers of the
    /// messages have ended.
    async fn event(&mut self, event: Raw) -> bool {
        let now = clock::reading();
        // The object is dropped before this waits, because other feeds may need the place of a
        // large one.
        match event {
            Raw::Reset => {
                let reset = self.detector.reset();
                self.send(reset).await
            }
            Raw::Applied(object) => {
                self.events_read.inc();
                let found = self.detector.applied(&object, now);
                drop(object);
                self.found(found).await
            }
            Raw::TooLarge { object, length } => {
                self.events_read.inc();
                let found = self.detector.too_large(&object, length, now);
                drop(object);
                self.found(found).await
            }
            Raw::Deleted(object) => {
                self.events_read.inc();
                let vanished = self.detector.deleted(&object);
                drop(object);
                match vanished {
                    Some(it) => self.vanished(it.subject, it.may_exist, now).await,
                    None => true,
                }
            }
            Raw::Synced => self.synced(now).await && self.report(None).await,
            Raw::Lost(lost) => {
                let event = self.detector.lost();
                self.send(event).await && self.report(Some(lost)).await
            }
        }
    }

    /// Evaluates objects again because time has passed.
    async fn evaluate_again(&mut self, now: ClockReading) -> bool {
        for fields in self.detector.resync(now) {
            let found = self.detector.reevaluate(&fields, clock::reading());
            if !self.found(found).await {
                return false;
            }
        }
        true
    }

    async fn found(&self, found: Option<EvaluatedObject>) -> bool {
        match found.and_then(EvaluatedObject::into_event) {
            Some(event) => self.send(event).await,
            None => true,
        }
    }

    /// Handles the end of a list or of a gap. If the feed has a label selector, the tracker answers
    /// with the subjects that are not in the list. The cluster is asked whether each of them still
    /// exists.
    async fn synced(&mut self, now: ClockReading) -> bool {
        let (event, missing) = self.detector.synced();
        if !self.send(event).await {
            return false;
        }
        let Some(missing) = missing else {
            return true;
        };
        // There is no answer if nothing was listed.
        for subject in missing.await.unwrap_or_default() {
            if !self.vanished(subject, true, now).await {
                return false;
            }
        }
        true
    }

    /// Handles an object that the feed no longer shows. If the object may still exist, the cluster
    /// is asked.
    async fn vanished(&self, subject: Subject, may_exist: bool, now: ClockReading) -> bool {
        let names = ObjectNames {
            namespace: subject.namespace.as_deref(),
            name: &subject.name,
            uid: subject.uid.as_deref(),
        };
        let exists = may_exist && self.feed.is_there(&self.source.target, names).await;
        self.send(self.detector.vanished(subject, exists, now))
            .await
    }

    async fn send(&self, event: FeedEvent) -> bool {
        let message = Message::Feed {
            source: self.source.clone(),
            generation: self.detector.book().generation,
            event,
        };
        self.tracker.send(message).await.is_ok()
    }

    async fn report(&self, lost: Option<GapReason>) -> bool {
        let feedback = Feedback {
            source: self.source.clone(),
            generation: self.detector.book().generation,
            failure: lost.map(|lost| explained(&lost, &self.source.target)),
        };
        self.feedback.send(feedback).await.is_ok()
    }
}

/// Why a target is not watched, for the status of its rule sets. If the server lacks a right, it
/// contains the commands that grant it.
fn explained(lost: &GapReason, target: &Gvr) -> String {
    if !matches!(lost, GapReason::Forbidden { .. }) {
        return lost.to_string();
    }
    let resource = if target.group.is_empty() {
        target.resource.clone()
    } else {
        format!("{}.{}", target.resource, target.group)
    };
    // Discovery has found the resource, so its name has no special characters of a shell.
    let role = format!("ifo-target-{resource}");
    format!(
        "{lost}; apply the ClusterRole that `kubectl ifo rules roles` prints for this rule set, \
         or run: kubectl create clusterrole {role} --verb=get,list,watch --resource={resource} && \
         kubectl label clusterrole {role} {AGGREGATE_LABEL}=true"
    )
}
