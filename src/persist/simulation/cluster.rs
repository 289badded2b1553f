//! A kube-apiserver in memory that keeps custom resources. Its answers take a while, some
//! never come, and what was asked for may have been done all the same.

use super::Trace;
use crate::clock;
use crate::persist::{Failure, NamespacePage, Page, Store};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use ifo_api::live::Phase;
use ifo_api::persisted::InFlightOperation;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use uuid::Uuid;

/// The namespace that all subjects are in.
pub const NAMESPACE: &str = "ns";

/// Custom resources in a page.
const PAGE: usize = 7;

type Objects = BTreeMap<String, InFlightOperation>;

/// What became of one custom resource.
#[derive(Debug)]
pub struct Life {
    /// As it was last.
    pub last: InFlightOperation,
    /// As it was when it was said to be over the latest.
    pub longest: InFlightOperation,
    /// Writes that changed it, its deletion left aside.
    pub changes: usize,
    /// When it was deleted, if it is not there.
    pub deleted: Option<Timestamp>,
}

#[derive(Default)]
struct State {
    objects: Objects,
    version: u64,
    /// What was listed, by version: pages of one list are of one state.
    listed: BTreeMap<u64, Arc<Objects>>,
    /// By live UID.
    lives: BTreeMap<String, Life>,
    writes: usize,
    away_until: Option<Instant>,
    /// Parts in a hundred of calls that fail.
    failing: u8,
    slow: bool,
}

/// See above.
pub struct Cluster {
    state: Mutex<State>,
    trace: Arc<Trace>,
}

/// How one process reaches it.
pub struct Client {
    cluster: Arc<Cluster>,
    rng: Mutex<fastrand::Rng>,
    pub process: usize,
}

/// What becomes of a call.
enum Course {
    /// It arrives, and so does the answer.
    Good,
    /// It does not arrive.
    Lost,
    /// It arrives, and the answer does not.
    Unanswered,
    Throttled,
}

impl Cluster {
    pub fn new(failing: u8, slow: bool, trace: Arc<Trace>) -> Arc<Self> {
        let state = State {
            failing,
            slow,
            ..State::default()
        };
        Arc::new(Self {
            state: Mutex::new(state),
            trace,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics that holds it")
    }

    /// From now on all is well.
    pub fn calm(&self) {
        let mut state = self.state();
        state.failing = 0;
        state.slow = false;
        state.away_until = None;
    }

    /// Nobody is answered for so long.
    pub fn leave_for(&self, time: Duration) {
        self.trace.add(|| format!("cluster: away for {time:?}"));
        self.state().away_until = Some(Instant::now() + time);
    }

    pub fn all(&self) -> Vec<InFlightOperation> {
        self.state().objects.values().cloned().collect()
    }

    /// Writes that have changed something, so far.
    pub fn writes(&self) -> usize {
        self.state().writes
    }

    /// Looks at what became of all that ever was there.
    pub fn lives<T>(&self, look: impl FnOnce(&BTreeMap<String, Life>) -> T) -> T {
        look(&self.state().lives)
    }

    fn snapshot(&self, version: Option<u64>) -> Option<(u64, Arc<Objects>)> {
        let mut state = self.state();
        let version = version.unwrap_or(state.version);
        if version == state.version && !state.listed.contains_key(&version) {
            let objects = Arc::new(state.objects.clone());
            state.listed.insert(version, objects);
        }
        let objects = state.listed.get(&version)?.clone();
        Some((version, objects))
    }

    /// The version that a token tells, or the one now.
    pub fn version_of(&self, token: Option<&str>) -> u64 {
        let version = token.and_then(|it| it.split_once('/'));
        let told = version.and_then(|(version, _)| version.parse().ok());
        told.unwrap_or(self.state().version)
    }

    /// A part of the state as of the version that the token tells, or as of now.
    pub fn page(&self, token: Option<&str>, which: impl Fn(&InFlightOperation) -> bool) -> Page {
        let (version, after) = token.and_then(|it| it.split_once('/')).unzip();
        let version = version.and_then(|it| it.parse().ok());
        let (version, objects) = self.snapshot(version).expect("nothing is ever forgotten");
        let mut rest = objects
            .iter()
            .filter(|(name, cr)| after < Some(name.as_str()) && which(cr));
        let items: Vec<_> = rest.by_ref().take(PAGE).collect();
        let last = items.last().map(|(name, _)| format!("{version}/{name}"));
        Page {
            next: rest.next().and(last),
            items: items.into_iter().map(|(_, cr)| cr.clone()).collect(),
        }
    }

    pub fn client(self: &Arc<Self>, process: usize, rng: fastrand::Rng) -> Client {
        Client {
            cluster: self.clone(),
            rng: Mutex::new(rng),
            process,
        }
    }
}

impl State {
    fn apply(&mut self, cr: &InFlightOperation) -> Result<Option<Uuid>, Failure> {
        // What goes over the wire has whole seconds.
        let wire = serde_json::to_value(cr).expect("it has the form of one");
        let mut cr: InFlightOperation = serde_json::from_value(wire).expect("as above");
        let name = cr.metadata.name.clone().expect("it has a name");
        let there = self.objects.get(&name);
        let of = |cr: &InFlightOperation| cr.metadata.uid.clone();
        if cr.metadata.uid.is_some() && of(&cr) != there.and_then(of) {
            return Err(Failure::Conflict("uid".into()));
        }
        let version = there.and_then(|there| there.metadata.resource_version.clone());
        if cr.metadata.resource_version.is_some() && cr.metadata.resource_version != version {
            return Err(Failure::Conflict("resourceVersion".into()));
        }
        let number = u128::from(self.version);
        let made = || Some(Uuid::from_u128(1 << 100 | number).to_string());
        cr.metadata.uid = there.and_then(of).or_else(made);
        cr.metadata.resource_version = version;
        let uid = cr.metadata.uid.as_ref().and_then(|uid| uid.parse().ok());
        if there != Some(&cr) {
            self.version += 1;
            self.writes += 1;
            cr.metadata.resource_version = Some(self.version.to_string());
            let live_uid = &cr.status.as_ref().expect("it has a status").live_uid;
            let life = self.lives.entry(live_uid.clone()).or_insert_with(|| Life {
                last: cr.clone(),
                longest: cr.clone(),
                changes: 0,
                deleted: None,
            });
            let end = |cr: &InFlightOperation| {
                let status = cr.status.as_ref().and_then(|it| it.completed.as_ref());
                status.map(|time| time.0)
            };
            if end(&cr) > end(&life.longest) {
                life.longest = cr.clone();
            }
            life.last = cr.clone();
            life.changes += 1;
            life.deleted = None;
            self.objects.insert(name, cr);
        }
        Ok(uid)
    }

    fn delete(&mut self, name: &str, uid: Option<Uuid>) -> Result<(), Failure> {
        let there = self
            .objects
            .get(name)
            .and_then(|cr| cr.metadata.uid.clone());
        if uid.is_some_and(|uid| there.is_some_and(|there| there != uid.to_string())) {
            return Err(Failure::Conflict("uid".into()));
        }
        if let Some(cr) = self.objects.remove(name) {
            self.version += 1;
            self.writes += 1;
            let live_uid = &cr.status.as_ref().expect("it has a status").live_uid;
            let life = self.lives.get_mut(live_uid).expect("it was written");
            life.deleted = Some(clock::now());
        }
        Ok(())
    }
}

impl Client {
    fn rng(&self) -> MutexGuard<'_, fastrand::Rng> {
        self.rng.lock().expect("nothing panics that holds it")
    }

    fn latency(&self) -> Duration {
        let slow = self.cluster.state().slow;
        let mut rng = self.rng();
        let millis = match rng.u8(..100) {
            0..3 if slow => rng.u64(2_000..10_000),
            3..40 if slow => rng.u64(50..2_000),
            _ => rng.u64(1..50),
        };
        Duration::from_millis(millis)
    }

    fn course(&self) -> Course {
        let failing = self.cluster.state().failing;
        let mut rng = self.rng();
        if rng.u8(..100) >= failing {
            return Course::Good;
        }
        match rng.u8(..4) {
            0 => Course::Lost,
            1 => Course::Throttled,
            _ => Course::Unanswered,
        }
    }

    /// Does it, as the kube-apiserver does: also if whoever asked is gone by then.
    pub async fn call<T: Send + 'static>(
        &self,
        what: impl FnOnce(&Cluster) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let (there, back) = (self.latency(), self.latency());
        let lost = || Failure::Unreachable("no answer".into(), None);
        let away = self.cluster.state().away_until;
        let course = match away {
            Some(until) if Instant::now() < until => Course::Lost,
            _ => self.course(),
        };
        match course {
            Course::Lost => {
                tokio::time::sleep(there).await;
                return Err(lost());
            }
            Course::Throttled => {
                tokio::time::sleep(there).await;
                let seconds = self.rng().u64(1..5);
                return Err(Failure::Throttled(Duration::from_secs(seconds)));
            }
            Course::Good | Course::Unanswered => {}
        }
        let (done, answer) = oneshot::channel();
        let cluster = self.cluster.clone();
        tokio::spawn(async move {
            tokio::time::sleep(there).await;
            // Nobody listens if the process was killed.
            let _ = done.send(what(&cluster));
        });
        let answer = answer.await.map_err(|_| lost())?;
        tokio::time::sleep(back).await;
        match course {
            Course::Unanswered => Err(lost()),
            _ => answer,
        }
    }
}

impl Store for Client {
    fn apply<'a>(
        &'a self,
        cr: &'a InFlightOperation,
    ) -> BoxFuture<'a, Result<Option<Uuid>, Failure>> {
        let (cr, process) = (cr.clone(), self.process);
        let apply = move |cluster: &Cluster| {
            let shown = |cr: &InFlightOperation| {
                let status = cr.status.clone().expect("it has a status");
                let over = status.completed.map(|time| time.0);
                let phase = if status.phase == Phase::Active {
                    "+"
                } else {
                    "-"
                };
                let name = cr.metadata.name.clone().unwrap_or_default();
                let of = (&cr.spec.subject.uid, &cr.spec.item, status.started.0);
                format!(
                    "{phase}{name} {:?} {over:?} {} {of:?}",
                    status.state, status.reason
                )
            };
            let what = shown(&cr);
            let done = cluster.state().apply(&cr);
            cluster
                .trace
                .add(|| format!("server {process}: applies {what}: {done:?}"));
            done
        };
        self.call(apply).boxed()
    }

    fn delete<'a>(
        &'a self,
        name: &'a str,
        uid: Option<Uuid>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let (name, process) = (name.to_owned(), self.process);
        let delete = move |cluster: &Cluster| {
            let done = cluster.state().delete(&name, uid);
            cluster
                .trace
                .add(|| format!("server {process}: deletes {name}: {done:?}"));
            done
        };
        self.call(delete).boxed()
    }

    fn get<'a>(
        &'a self,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<InFlightOperation>, Failure>> {
        let name = name.to_owned();
        self.call(move |cluster| Ok(cluster.state().objects.get(&name).cloned()))
            .boxed()
    }

    fn page<'a>(&'a self, token: Option<&'a str>) -> BoxFuture<'a, Result<Page, Failure>> {
        let token = token.map(str::to_owned);
        self.call(move |cluster| Ok(cluster.page(token.as_deref(), |_| true)))
            .boxed()
    }

    fn namespaces<'a>(
        &'a self,
        _: Option<&'a str>,
    ) -> BoxFuture<'a, Result<NamespacePage, Failure>> {
        let page = || NamespacePage {
            items: vec![(NAMESPACE.to_owned(), Timestamp::UNIX_EPOCH)],
            next: None,
        };
        self.call(move |_| Ok(page())).boxed()
    }
}
