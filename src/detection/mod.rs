//! Runs the feeds: one for each target and, where all of its rule sets name
//! namespaces, for each of those. Decodes and evaluates what they bring, inline, and
//! hands it to the tracker.

use super::unknown::UnknownObjects;
use super::{Feed, Lost, Raw, envelope, managed};
use crate::clock;
use crate::rules::{Feedback, Publication};
use crate::telemetry::Metrics;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use ifo_api::ruleset::AGGREGATE_LABEL;
use ifo_api::{Gvr, Source};
use ifo_cel::{Doc, Projection};
use ifo_engine::evaluate::{self, Allowances, Evaluation, EvaluationError, Subject};
use ifo_engine::rules::RuleBook;
use ifo_engine::track::{Event, Message};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

/// Subjects of one feed whose rules read `now` and that are therefore kept for
/// evaluating them again. One more is evaluated on its changes alone.
const TIMED: usize = 1_000;

/// Bytes of the fields of one that are kept; one with more is evaluated on its changes
/// alone. Rules read some hundred.
const TIMED_BYTES: usize = 16 << 10;

/// How long the tracker hears of a subject after the last finding: what is not detected
/// any more settles, and a later event may tell how it ended.
const FADING: Duration = Duration::from_mins(5);

/// Starts and stops feeds as books are published.
pub struct Supervisor {
    /// Where objects come from.
    pub feed: Arc<dyn Feed>,
    /// Where evaluations go.
    pub tracker: mpsc::Sender<Message>,
    /// Where the state of the feeds goes.
    pub feedback: mpsc::Sender<Feedback>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// How often what depends on the time is evaluated again.
    pub resync: Duration,
}

impl Supervisor {
    /// Runs until there are no more publications, and then ends all feeds.
    pub async fn run(self, mut publications: mpsc::Receiver<Publication>) {
        let mut running: HashMap<Arc<ifo_api::Gvr>, Vec<Ended>> = HashMap::new();
        while let Some(Publication {
            target,
            book,
            removed,
        }) = publications.recv().await
        {
            // The old feeds are gone for sure before the tracker hears of new rules, so
            // that nothing they sent comes after it.
            for mut feed in running.remove(&target).unwrap_or_default() {
                feed.0.abort();
                let _ = (&mut feed.0).await;
            }
            let message = Message::Rules {
                target: target.clone(),
                book: book.clone(),
                removed,
            };
            if self.tracker.send(message).await.is_err() {
                return;
            }
            let Some(book) = book else {
                self.metrics.feed_state(&target.to_string(), "stopped");
                continue;
            };
            let namespaces: Vec<Option<Arc<str>>> = match book.namespaces() {
                Some(namespaces) => namespaces
                    .into_iter()
                    .map(|namespace| Some(namespace.into()))
                    .collect(),
                None => vec![None],
            };
            let feeds = namespaces.into_iter().map(|namespace| {
                let source = Source {
                    target: target.clone(),
                    namespace,
                };
                let follower = Follower {
                    name: target.to_string(),
                    source,
                    book: book.clone(),
                    tracker: self.tracker.clone(),
                    feedback: self.feedback.clone(),
                    metrics: self.metrics.clone(),
                    listing: true,
                    interesting: HashMap::new(),
                    timed: HashMap::new(),
                    allowances: Allowances::default(),
                    unknown: UnknownObjects::new(book.clone()),
                };
                Ended(tokio::spawn(follower.run(self.feed.clone(), self.resync)))
            });
            let feeds = feeds.collect();
            running.insert(target, feeds);
        }
    }
}

/// A task that ends when this is dropped.
struct Ended(JoinHandle<()>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One feed, and the rules it is evaluated with.
struct Follower {
    name: String,
    source: Source,
    book: Arc<RuleBook>,
    tracker: mpsc::Sender<Message>,
    feedback: mpsc::Sender<Feedback>,
    metrics: Arc<Metrics>,
    /// Between `Reset` and `Synced`.
    listing: bool,
    /// Subjects on which something is found, and those on which something was a moment
    /// ago. Of all others, the tracker does not need to know that nothing was found again.
    interesting: HashMap<Arc<str>, Interest>,
    /// The fields, as JSON, of subjects whose evaluation read `now`.
    timed: HashMap<Arc<str>, Bytes>,
    /// What the rule sets of the book may spend.
    allowances: Allowances,
    /// Objects on which it is not known whether they show an operation.
    unknown: UnknownObjects,
}

/// What was found on a subject.
struct Interest {
    /// When nothing was found any more.
    fading: Option<Instant>,
    /// What is detected, as a hash: of what goes on, nobody asks again when it started.
    detected: u64,
}

impl Follower {
    async fn run(mut self, feed: Arc<dyn Feed>, resync: Duration) {
        let mut events = self.events(&*feed);
        let mut resync = tokio::time::interval(resync);
        resync.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let goes_on = tokio::select! {
                event = events.next() => match event {
                    Some(event) => self.event(&*feed, event).await,
                    None => false,
                },
                _ = resync.tick(), if !self.listing => {
                    let mut goes_on = true;
                    let now = clock::steady();
                    self.interesting.retain(|_, it| {
                        it.fading.is_none_or(|since| now.duration_since(since) < FADING)
                    });
                    for object in self.timed.values().cloned().collect::<Vec<_>>() {
                        goes_on = goes_on && self.again(&object, clock::steady()).await;
                    }
                    if self.unknown.wants_list(now) {
                        events = self.events(&*feed);
                    }
                    goes_on
                }
            };
            if !goes_on {
                return;
            }
        }
    }

    /// A new stream of the source, which begins with a list of all objects.
    fn events(&self, feed: &dyn Feed) -> BoxStream<'static, Raw> {
        match self.book.selector() {
            Some(selector) => feed.follow_selected(self.source.clone(), &selector.to_string()),
            None => feed.follow(self.source.clone()),
        }
    }

    /// False when nobody listens any more.
    async fn event(&mut self, feed: &dyn Feed, event: Raw) -> bool {
        let read = clock::steady();
        match event {
            Raw::Reset => {
                self.listing = true;
                self.interesting.clear();
                self.timed.clear();
                self.unknown.reset();
                self.tell(Event::Reset).await
            }
            Raw::Applied(object) => {
                self.metrics.feed_event(&self.name);
                self.applied(&object, read).await
            }
            Raw::TooLarge { object, length } => {
                self.metrics.feed_event(&self.name);
                let error = EvaluationError::TooLarge(length);
                self.undecided(&object, &error, read).await
            }
            Raw::Deleted(object) => {
                self.metrics.feed_event(&self.name);
                self.deleted(feed, object, read).await
            }
            Raw::Synced => {
                self.listing = false;
                self.unknown.synced();
                self.synced(feed, read).await && self.report(None).await
            }
            Raw::Lost(lost) => self.tell(Event::Lost).await && self.report(Some(lost)).await,
        }
    }

    /// An object is there, or has changed.
    async fn applied(&mut self, object: &Bytes, read: Instant) -> bool {
        let book = self.book.clone();
        if self.listing {
            self.ask(object, &book.initial_projection, read, None).await
        } else {
            self.ask(object, &book.projection, read, Some(object)).await
        }
    }

    /// Nothing has changed but the time.
    async fn again(&mut self, object: &Bytes, read: Instant) -> bool {
        let book = self.book.clone();
        self.ask(object, &book.projection, read, None).await
    }

    async fn ask(
        &mut self,
        object: &Bytes,
        projection: &Projection,
        read: Instant,
        change: Option<&Bytes>,
    ) -> bool {
        let book = self.book.clone();
        let evaluation = match Doc::parse(object, projection) {
            Ok(doc) => {
                let (meter, allowances) = (&*self.metrics, &mut self.allowances);
                let evaluation =
                    evaluate::evaluate_within(&book, &doc, clock::now(), meter, allowances)
                        .inspect(|evaluation| self.keep(evaluation, &doc));
                self.unknown.throttling(&self.allowances);
                evaluation
            }
            Err(error) => return self.undecided(object, &error.into(), read).await,
        };
        match evaluation {
            Ok(evaluation) => self.evaluated(evaluation, read, change).await,
            Err(error) => {
                tracing::warn!(gvr = %self.source.target, %error, "an object was left out");
                true
            }
        }
    }

    /// The rules cannot be asked, but the object is there: operations on it stay as they
    /// were, and a listing does not take it for gone.
    async fn undecided(&mut self, object: &Bytes, error: &EvaluationError, read: Instant) -> bool {
        let gvr = &self.source.target;
        let Some(subject) = identity(object) else {
            tracing::warn!(%gvr, %error, "an object could not be decoded");
            return true;
        };
        let namespace = subject.namespace.as_deref().unwrap_or_default();
        tracing::warn!(%gvr, namespace, name = &*subject.name, %error,
            "an object could not be decoded");
        // What was read of it before is not how it is any more.
        self.timed.remove(&subject.identity(&self.source.target));
        let evaluation =
            evaluate::undecided(&self.book, subject, error, clock::now(), &*self.metrics);
        self.evaluated(evaluation, read, None).await
    }

    /// Keeps the fields of a subject whose evaluation read `now`, and of no other.
    fn keep(&mut self, evaluation: &Evaluation, doc: &Doc<'_>) {
        let identity = evaluation.subject.identity(&self.source.target);
        self.timed.remove(&identity);
        if evaluation.read_now && self.timed.len() < TIMED {
            let fields = doc.to_json();
            if fields.len() <= TIMED_BYTES {
                self.timed.insert(identity, fields.into());
            }
        }
    }

    /// `change`: the object, if it is by its change that this is known.
    async fn evaluated(
        &mut self,
        mut evaluation: Evaluation,
        read: Instant,
        change: Option<&Bytes>,
    ) -> bool {
        let identity = evaluation.subject.identity(&self.source.target);
        self.unknown.evaluated(&identity, &evaluation);
        let detected = detected(&evaluation);
        let before = self.interesting.get(&identity).map(|it| it.detected);
        let differs = before.map_or(evaluation.detects(), |before| before != detected);
        if !evaluation.findings.is_empty() {
            let interest = Interest {
                fading: None,
                detected,
            };
            self.interesting.insert(identity, interest);
        } else if self.book.asks_for_outcomes() {
            match self.interesting.get_mut(&identity) {
                Some(interest) => {
                    interest.fading.get_or_insert(read);
                    interest.detected = detected;
                }
                None if !self.listing => return true,
                None => {}
            }
        } else if self.interesting.remove(&identity).is_none() && !self.listing {
            return true;
        }
        if let Some(object) = change.filter(|_| differs) {
            // What starts or ends now does so with this change.
            evaluation.subject.managed = managed::newest(object);
        }
        self.tell(Event::Evaluated {
            evaluation: Box::new(evaluation),
            read,
        })
        .await
    }

    async fn deleted(&mut self, feed: &dyn Feed, object: Bytes, read: Instant) -> bool {
        let subject = identity(&object);
        // The cluster may be asked below; other feeds need the room of a large object.
        drop(object);
        let Some(subject) = subject else {
            tracing::warn!(gvr = %self.source.target, "a deleted object could not be decoded");
            return true;
        };
        let identity = subject.identity(&self.source.target);
        let was_interesting = self.interesting.remove(&identity).is_some();
        self.timed.remove(&identity);
        self.unknown.removed(&identity);
        // One that left the selection looks the same; only of those few on which
        // something is in flight it matters.
        if was_interesting && self.book.selector().is_some() {
            return self.gone(feed, subject, read).await;
        }
        self.tell(Event::Deleted { subject, read }).await
    }

    /// The tracker knows what has to have been shown, and was not. Of a selection, it may
    /// be there all the same.
    async fn synced(&mut self, feed: &dyn Feed, read: Instant) -> bool {
        if self.book.selector().is_none() {
            return self.tell(Event::Synced { missing: None }).await;
        }
        let (missing, asked) = oneshot::channel();
        let event = Event::Synced {
            missing: Some(missing),
        };
        if !self.tell(event).await {
            return false;
        }
        // None if nothing was listed anew.
        for subject in asked.await.unwrap_or_default() {
            if !self.gone(feed, subject, read).await {
                return false;
            }
        }
        true
    }

    /// An object is not shown any more: it was deleted, or it left the selection.
    async fn gone(&self, feed: &dyn Feed, subject: Subject, read: Instant) -> bool {
        if feed.is_there(&self.source.target, &subject).await {
            let evaluation = evaluate::unselected(&self.book, subject);
            return self
                .tell(Event::Evaluated {
                    evaluation: Box::new(evaluation),
                    read,
                })
                .await;
        }
        self.tell(Event::Deleted { subject, read }).await
    }

    async fn tell(&self, event: Event) -> bool {
        let message = Message::Feed {
            source: self.source.clone(),
            generation: self.book.generation,
            event,
        };
        self.tracker.send(message).await.is_ok()
    }

    async fn report(&self, lost: Option<Lost>) -> bool {
        let feedback = Feedback {
            source: self.source.clone(),
            generation: self.book.generation,
            failure: lost.map(|lost| explained(&lost, &self.source.target)),
        };
        self.feedback.send(feedback).await.is_ok()
    }
}

/// Why a target is not watched, for the status of its rule sets: with the commands that
/// grant the right, if the server has none.
fn explained(lost: &Lost, target: &Gvr) -> String {
    if !matches!(lost, Lost::Forbidden { .. }) {
        return lost.to_string();
    }
    let resource = if target.group.is_empty() {
        target.resource.clone()
    } else {
        format!("{}.{}", target.resource, target.group)
    };
    // Discovery has found the resource, so its name has no characters of a shell.
    let role = format!("ifo-target-{resource}");
    format!(
        "{lost}; apply the ClusterRole that `kubectl ifo rules roles` prints for this rule set, \
         or run: kubectl create clusterrole {role} --verb=get,list,watch --resource={resource} && \
         kubectl label clusterrole {role} {AGGREGATE_LABEL}=true"
    )
}

/// Which operations, and which runs of them, are detected or continued; the same for the same
/// ones.
fn detected(evaluation: &Evaluation) -> u64 {
    let mut hasher = DefaultHasher::new();
    for finding in &evaluation.findings {
        if let Some(says) = &finding.says {
            let run = (&finding.operation, &finding.item, &says.instance);
            (run, says.continues).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// Reads nothing but what tells the object from others, from its beginning if all of it
/// is not JSON.
fn identity(object: &Bytes) -> Option<Subject> {
    let mut projection = Projection::default();
    for path in evaluate::IDENTITY_PATHS {
        projection.add(path);
    }
    let read = |object: &[u8]| {
        let doc = Doc::parse(object, &projection).ok()?;
        Subject::read(&doc).ok()
    };
    read(object).or_else(|| read(&envelope::identity(object)?))
}

#[cfg(test)]
#[path = "supervise_tests.rs"]
mod tests;
