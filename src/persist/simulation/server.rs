//! One server process: the real tracker, index, persistence and restoring, joined as the
//! application joins them, and a feed of its own that is behind the world.

use super::Trace;
use super::checks::{self, Operation};
use super::cluster::{Cluster, NAMESPACE};
use super::sources::{FromCluster, FromServer, Heard};
use super::world::{OPERATIONS, Object, Told, What, World};
use crate::clock;
use crate::index::{self, At, Bounds, Reader, Scope};
use crate::persist::{Persist, Settings, Unread, Verdict};
use crate::restore;
use crate::serve::resource::LIVE_LAYOUT;
use crate::telemetry::Metrics;
use crate::tracking;
use ifo_api::live;
use ifo_api::ruleset::{OperationRuleSetSpec, Rule, Target};
use ifo_api::{Gvr, Source};
use ifo_engine::evaluate::{Evaluation, Finding, Says, Subject};
use ifo_engine::rules::{Bookless, RuleBook, RuleSet, compile};
use ifo_engine::track::{self, Event, Message, Retention, Tracker};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const RULES: &str = "rules";

/// How long a server that stops goes on before it begins to: as in the application.
const UNREADY: Duration = Duration::from_secs(5);

/// What all servers of a run have in common.
#[derive(Clone)]
pub struct Site {
    pub world: Arc<World>,
    pub cluster: Arc<Cluster>,
    pub trace: Arc<Trace>,
    pub debounce: Duration,
    pub resync: Duration,
    pub retain: bool,
    /// Bytes of the ring.
    pub ring: usize,
    /// Whether feeds have gaps.
    pub gaps: bool,
    /// What servers did wrong while they started.
    pub wrong: Arc<Mutex<Vec<String>>>,
    /// When servers were made.
    pub born: Arc<Mutex<Vec<Timestamp>>>,
}

/// See above.
pub struct Server {
    pub number: usize,
    pub reader: Reader,
    pub ready: watch::Receiver<bool>,
    lives: Arc<AtomicBool>,
    stop: CancellationToken,
    persist: JoinHandle<()>,
    tasks: Vec<JoinHandle<()>>,
    trace: Arc<Trace>,
}

impl Server {
    /// Starts one, which asks `other` first what goes on.
    pub fn start(site: &Site, other: Option<&Server>, rng: &mut fastrand::Rng) -> Self {
        let number = {
            let mut born = site.born.lock().expect("nothing panics that holds it");
            born.push(clock::now());
            born.len()
        };
        site.trace.add(|| format!("server {number}: starts"));
        let metrics = Arc::new(Metrics::new());
        let bounds = Bounds {
            bytes: site.ring,
            age: Duration::from_mins(5),
        };
        let (writer, reader) = index::index(&LIVE_LAYOUT, bounds);
        let retention = Retention {
            age: Duration::from_hours(24),
            most: 10_000,
        };
        let settings = track::Settings {
            debounce: site.debounce,
            retain: site.retain.then_some(retention),
            cluster_namespace: "ifo-system".into(),
        };
        let (tracker, messages) = mpsc::channel(tracking::QUEUE);
        let owned = Tracker::new(settings, metrics.clone());
        let tracking = tokio::spawn(tracking::run(owned, writer, messages, metrics.clone()));
        let settled = watch::Sender::new(None);
        let stop = CancellationToken::new();
        let persist = Persist {
            reader: reader.clone(),
            store: Arc::new(site.cluster.client(number, rng.fork())),
            settings: Settings {
                resync: site.resync,
                settling: site.debounce + Duration::from_secs(30),
                requeue: Duration::from_mins(1),
                retain: site.retain,
                retain_for: retention.age,
                retain_max: retention.most,
            },
            metrics: metrics.persistence(),
            settled: settled.subscribe(),
            stop: stop.clone(),
            verdict: watch::Sender::new(Verdict::Unknown),
        };
        let heard = Heard::default();
        let mut sources: Vec<Box<dyn restore::Source>> = Vec::new();
        if let Some(other) = other {
            sources.push(Box::new(FromServer {
                reader: other.reader.clone(),
                lives: other.lives.clone(),
                rng: Mutex::new(rng.fork()),
                heard: heard.clone(),
            }));
        }
        sources.push(Box::new(FromCluster {
            client: site.cluster.client(number, rng.fork()),
            heard: heard.clone(),
        }));
        let (told, ready) = watch::channel(false);
        let feed = Feed {
            number,
            site: site.clone(),
            tracker,
            reader: reader.clone(),
            settled,
            heard,
            ready: told,
            rng: rng.fork(),
            interesting: BTreeMap::new(),
        };
        let tasks = vec![tracking, tokio::spawn(feed.run(sources))];
        Self {
            number,
            reader,
            ready,
            lives: Arc::new(AtomicBool::new(true)),
            stop,
            persist: tokio::spawn(persist.run()),
            tasks,
            trace: site.trace.clone(),
        }
    }

    /// Ends it as SIGKILL does.
    pub fn kill(self) {
        let number = self.number;
        self.trace.add(|| format!("server {number}: is killed"));
        self.end();
    }

    fn end(self) {
        self.lives.store(false, Ordering::Relaxed);
        self.persist.abort();
        for task in &self.tasks {
            task.abort();
        }
    }

    /// Ends it as SIGTERM does.
    pub async fn stop(mut self) {
        let number = self.number;
        self.trace.add(|| format!("server {number}: has SIGTERM"));
        tokio::time::sleep(UNREADY).await;
        self.stop.cancel();
        let ended = (&mut self.persist).await;
        assert!(ended.is_ok(), "{ended:?}");
        self.trace.add(|| format!("server {number}: has ended"));
        self.end();
    }

    /// What it shows.
    pub fn shown(&self) -> Vec<live::InFlightOperation> {
        shown(&self.reader)
    }
}

fn shown(reader: &Reader) -> Vec<live::InFlightOperation> {
    let list = reader.list(&Scope::All, At::Latest);
    let (_, entries) = list.expect("the newest is always there");
    let read = |entry: &Arc<index::Entry>| serde_json::from_slice(entry.open().json());
    let shown: Result<_, _> = entries.iter().map(read).collect();
    shown.expect("the index holds operations")
}

/// What tells the tracker of the world.
struct Feed {
    number: usize,
    site: Site,
    tracker: mpsc::Sender<Message>,
    reader: Reader,
    settled: watch::Sender<Option<Arc<Unread>>>,
    heard: Heard,
    ready: watch::Sender<bool>,
    rng: fastrand::Rng,
    /// What was last detected, where anything was.
    interesting: BTreeMap<Arc<str>, BTreeMap<What, Option<Arc<str>>>>,
}

impl Feed {
    async fn run(mut self, sources: Vec<Box<dyn restore::Source>>) {
        self.pause(1_000).await;
        let namespaces = [(NAMESPACE.to_owned(), Timestamp::UNIX_EPOCH)].into();
        restore::restore(sources, Some(&namespaces), &self.tracker).await;
        self.site
            .trace
            .add(|| format!("server {}: has restored", self.number));
        self.pause(2_000).await;
        let book = book();
        self.send(Message::Rules {
            target: Arc::new(book.target.clone()),
            book: Some(book.clone()),
            removed: false,
        })
        .await;
        loop {
            self.follow(&book).await;
            self.pause(40_000).await;
        }
    }

    /// Lists and watches, until there is a gap.
    async fn follow(&mut self, book: &Arc<RuleBook>) {
        let (objects, mut events) = self.site.world.watch();
        let listed = clock::now();
        self.pause(2_000).await;
        self.event(book, Event::Reset).await;
        for object in objects {
            let (uid, detected) = (object.uid.clone(), object.detected.clone());
            self.interesting.insert(uid, detected);
            self.evaluated(book, &object, Some(object.managed)).await;
        }
        self.event(book, Event::Synced { missing: None }).await;
        self.flush(&[]).await;
        if !self.ready.send_replace(true) {
            self.check_continuity(listed);
        }
        let gap_at =
            tokio::time::Instant::now() + Duration::from_millis(self.rng.u64(5_000..300_000));
        let gap_at = (self.site.gaps && self.rng.u8(..3) == 0).then_some(gap_at);
        let gap = async {
            match gap_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(gap);
        loop {
            let (at, told) = tokio::select! {
                biased;
                () = &mut gap => break,
                Some(event) = events.recv() => event,
            };
            let behind = match self.rng.u8(..60) {
                0 => self.rng.u64(2_000..12_000),
                1..6 => self.rng.u64(200..1_500),
                _ => self.rng.u64(1..100),
            };
            tokio::time::sleep_until(at + Duration::from_millis(behind)).await;
            self.tell(book, told).await;
        }
        self.site
            .trace
            .add(|| format!("server {}: feed has a gap", self.number));
        self.event(book, Event::Lost).await;
        self.flush(&[RULES]).await;
    }

    /// As the supervisor does: nothing of what nothing is detected on, and the time of the
    /// change only where something starts or ends with it.
    async fn tell(&mut self, book: &Arc<RuleBook>, told: Told) {
        match told {
            Told::Deleted(object) => {
                self.interesting.remove(&object.uid);
                let subject = subject(&object, None);
                let read = clock::steady();
                self.event(book, Event::Deleted { subject, read }).await;
            }
            Told::Applied(object) => {
                let before = self.interesting.remove(&object.uid);
                let differs = match &before {
                    Some(before) => *before != object.detected,
                    None => !object.detected.is_empty(),
                };
                if !object.detected.is_empty() {
                    let detected = object.detected.clone();
                    self.interesting.insert(object.uid.clone(), detected);
                } else if before.is_none() {
                    return;
                }
                let managed = differs.then_some(object.managed);
                self.evaluated(book, &object, managed).await;
            }
        }
    }

    async fn evaluated(&self, book: &Arc<RuleBook>, object: &Object, managed: Option<Timestamp>) {
        let rule_set = &book.rule_sets[0];
        let finding = |((operation, item), run): (&What, &Option<Arc<str>>)| Finding {
            rule_set: rule_set.clone(),
            operation: (*operation).into(),
            item: item.map(Into::into),
            says: Some(Says {
                order: order(rule_set, operation),
                instance: run.clone(),
                ..Says::default()
            }),
        };
        let evaluation = Evaluation {
            subject: subject(object, managed),
            findings: object.detected.iter().map(finding).collect(),
            outcomes: Vec::new(),
            unselected: Vec::new(),
            failures: Vec::new(),
            unknown: Vec::new(),
            read_now: false,
        };
        let evaluation = Box::new(evaluation);
        let read = clock::steady();
        self.event(book, Event::Evaluated { evaluation, read })
            .await;
    }

    async fn event(&self, book: &Arc<RuleBook>, event: Event) {
        self.send(Message::Feed {
            source: Source {
                target: Arc::new(book.target.clone()),
                namespace: None,
            },
            generation: book.generation,
            event,
        })
        .await;
    }

    /// Tells persistence, once the index holds what was told, which rule sets have a gap.
    async fn flush(&self, unread: &[&str]) {
        let (done, flushed) = oneshot::channel();
        self.send(Message::Booked(Arc::new(Bookless::default())))
            .await;
        self.send(Message::Flush(done)).await;
        // The process is stopping.
        let _ = flushed.await;
        let unread: Unread = unread.iter().map(|name| (*name).to_owned()).collect();
        self.settled.send_replace(Some(Arc::new(unread)));
    }

    async fn send(&self, message: Message) {
        // The process is stopping.
        let _ = self.tracker.send(message).await;
    }

    /// Waits up to so many milliseconds, most often much less.
    async fn pause(&mut self, most: u64) {
        let most = if self.rng.u8(..4) == 0 {
            most
        } else {
            most / 10
        };
        tokio::time::sleep(Duration::from_millis(self.rng.u64(..most))).await;
    }

    /// What was in flight when the server started, and has gone on since, is the same: its
    /// UID is made of its name and its start.
    fn check_continuity(&self, listed: Timestamp) {
        let heard = self.heard.lock().expect("nothing panics that holds it");
        let told: Vec<(Operation, bool)> = heard
            .iter()
            .map(|(it, is_shown)| (Operation::of_live(it), *is_shown))
            .collect();
        let shown = shown(&self.reader);
        let shown: BTreeSet<String> = shown
            .iter()
            .map(Operation::of_live)
            .filter(|it| it.completed.is_none())
            .map(|it| it.uid)
            .collect();
        let undisturbed = self.site.world.undisturbed();
        let lost = checks::discontinued(&undisturbed, listed, &told, &shown);
        let lost = lost
            .into_iter()
            .map(|lost| format!("server {}: {lost}", self.number));
        let mut wrong = self
            .site
            .wrong
            .lock()
            .expect("nothing panics that holds it");
        wrong.extend(lost);
    }
}

fn subject(object: &Object, managed: Option<Timestamp>) -> Subject {
    Subject {
        uid: Some(object.uid.clone()),
        name: object.name.as_str().into(),
        namespace: Some(NAMESPACE.into()),
        managed,
        ..Subject::default()
    }
}

fn order(rule_set: &RuleSet, operation: &str) -> usize {
    let place = rule_set
        .rules
        .iter()
        .position(|it| *it.operation == *operation);
    place.expect("there is a rule for it")
}

fn book() -> Arc<RuleBook> {
    let target = Gvr {
        group: "kubevirt.io".into(),
        version: "v1".into(),
        resource: "virtualmachines".into(),
    };
    let rule = |operation: &str| Rule {
        operation: operation.into(),
        expression: "true".into(),
        supersedes: if operation == "Stopping" {
            vec!["Migrating".into()]
        } else {
            Vec::new()
        },
        ..Rule::default()
    };
    let spec = OperationRuleSetSpec {
        component: "kubevirt".into(),
        target: Target {
            group: target.group.clone(),
            version: target.version.clone(),
            resource: target.resource.clone(),
        },
        rules: OPERATIONS.iter().map(|it| rule(it)).collect(),
        label_selector: None,
        variables: Vec::new(),
        namespaces: Vec::new(),
        labels: BTreeMap::new(),
        label_expressions: Vec::new(),
    };
    let rule_set = Arc::new(compile(RULES, &spec).expect("valid rules"));
    let sets = vec![rule_set];
    Arc::new(RuleBook::new(
        1,
        target,
        "VirtualMachine".into(),
        true,
        sets,
    ))
}
