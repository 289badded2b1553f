//! A simulated cluster of complete replicas and clients, which the tests of elections and of random
//! failures use.

use super::{
    ClientCopy, Invariants, Network, ObjectHashes, ReplicaEnvironment, SimulatedLeases, Subjects,
    WholeReplica,
};
use crate::clock::simulated::Skew;
use crate::index::{self, ReadVersion};
use crate::persist::fake_cluster::FakeCluster;
use crate::replicate::Term;
use ifo_api::Text;
use ifo_api::live::Phase;
use ifo_engine::track::Retention;
use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::Lease;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The time for which two replicas can lead after the Lease was restored from a backup. They must
/// never issue the same resourceVersion.
///
/// The restored Lease does not contain the latest renewals. So another replica may find that the
/// Lease has expired, and may acquire it. The first leader leads until it notices the new holder,
/// at most until its renew deadline (5 s).
const TWO_LEADERS_PERIOD: Duration = Duration::from_secs(5);

/// The time between two checks of all indexes.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The simulated cluster of one run.
pub struct SimulatedCluster {
    pub environment: ReplicaEnvironment,
    pub replicas: Vec<WholeReplica>,
    pub clients: Vec<ClientCopy>,
    pub random: fastrand::Rng,
    begun: Instant,
    pub trace: Vec<String>,
    /// The number of Pods so far.
    pods: usize,
    /// The number of containers of all Pods so far.
    containers: usize,
    /// The largest difference between the wall clock of a machine and the simulated time.
    skew: Duration,
    /// True if the run may delete the Lease and restore older versions of the Lease.
    pub restores: bool,
    /// The backup of the Lease, and its time.
    pub backup: Option<(Lease, Instant)>,
    /// The time of the last restore of the Lease.
    pub restored: Option<Instant>,
}

impl SimulatedCluster {
    pub fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let retention = Retention {
            age: Duration::from_secs(random.u64(5..120)),
            max_count: random.usize(1..6),
        };
        let store = random.bool().then(FakeCluster::default);
        let environment = ReplicaEnvironment {
            leases: SimulatedLeases::new(seed),
            network: Network::new(),
            subjects: Subjects::default(),
            invariants: Invariants::default(),
            retention: random.bool().then_some(retention),
            store,
        };
        let hour = Duration::from_hours(1);
        let skew = if random.bool() { hour } else { Duration::ZERO };
        // If the Lease was deleted or restored, a new leader may not know which resourceVersions
        // the last leader has reserved. Then the new leader computes its first resourceVersion from
        // its own clock. If this clock were behind the clock of the last leader, both leaders could
        // issue the same resourceVersion. So a run deletes or restores the Lease only if all clocks
        // agree.
        let restores = skew.is_zero() && random.bool();
        if restores {
            environment.invariants.lose_reservations();
        }
        Self {
            environment,
            replicas: Vec::new(),
            clients: Vec::new(),
            skew,
            restores,
            backup: None,
            restored: None,
            random,
            begun: Instant::now(),
            trace: Vec::new(),
            pods: 0,
            containers: 0,
        }
    }

    /// Creates a cluster with this number of replicas, in which nothing fails by itself.
    pub fn calm(replicas: usize) -> Self {
        let mut cluster = Self::new(1);
        cluster.environment.retention = None;
        cluster.environment.store = None;
        cluster.environment.invariants = Invariants::default();
        cluster.skew = Duration::ZERO;
        for _ in 0..replicas {
            cluster.start(None);
        }
        cluster
    }

    /// Waits until a replica leads, at most for `limit`. Returns the time that this took.
    pub async fn until_leader(&mut self, limit: Duration) -> Duration {
        self.until_other_term(None, limit).await
    }

    /// Waits until a replica leads in another term than `term`.
    pub async fn until_other_term(&mut self, term: Option<&Term>, limit: Duration) -> Duration {
        let begun = Instant::now();
        let leads = |it: &WholeReplica| it.leads() && it.term().as_ref() != term;
        while !self.replicas.iter().any(leads) {
            assert!(begun.elapsed() < limit, "no replica leads");
            self.run_for(CHECK_INTERVAL).await;
        }
        begun.elapsed()
    }

    /// Kills all replicas, and fails if an invariant was violated.
    pub fn end(mut self) {
        self.replicas.drain(..).for_each(WholeReplica::kill);
        assert_eq!(self.environment.invariants.violations(), [""; 0]);
    }

    /// Starts a replica in the next container of `pod`. If `pod` is None, starts it in a new Pod.
    pub fn start(&mut self, pod: Option<String>) {
        let pod = pod.unwrap_or_else(|| {
            self.pods += 1;
            format!("pod-{}", self.pods)
        });
        self.containers += 1;
        let wall = i64::try_from(self.skew.as_millis()).expect("an hour fits into 64 bits");
        let skew = Skew {
            wall: SignedDuration::from_millis(self.random.i64(-wall..=wall)),
            boot: Duration::from_secs(self.random.u64(0..1_000_000)),
        };
        let container = (&*pod, self.containers);
        let replica = WholeReplica::start(&self.environment, container, skew, &mut self.random);
        self.replicas.push(replica);
    }

    pub fn add_to_trace(&mut self, what: &str) {
        let (terms, versions) = self.environment.invariants.counts();
        let at = self.begun.elapsed();
        let line = format!("{at:?}: {what}; {terms} terms, {versions} versions");
        self.trace.push(line);
    }

    /// Lets `time` pass. Meanwhile, checks the indexes of all replicas, and checks that at most one
    /// replica leads.
    pub async fn run_for(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            let leaders = self.replicas.iter().filter(|it| it.leads());
            let leaders: Vec<_> = leaders.map(|it| it.pod.as_str()).collect();
            let may_have_two_leaders = self
                .restored
                .is_some_and(|at| at.elapsed() < TWO_LEADERS_PERIOD);
            if leaders.len() > 1 && !may_have_two_leaders {
                let at = self.begun.elapsed();
                let violation = format!("{at:?}: {leaders:?} lead at the same time");
                self.environment.invariants.violation(violation);
            }
            for replica in &mut self.replicas {
                replica.observer.observe();
            }
            sleep(CHECK_INTERVAL).await;
        }
    }

    pub fn leader(&self) -> Option<usize> {
        self.replicas.iter().position(WholeReplica::leads)
    }

    /// Compares the leader's operations with the operations of the other replicas, the subjects,
    /// the copies of the clients, and the custom resources. Returns the first difference. Returns
    /// None if there is no difference.
    pub fn difference(&self) -> Option<String> {
        let Some(leader) = self.leader() else {
            return Some("no replica leads".to_owned());
        };
        let list = |replica: &WholeReplica| {
            let list = replica.reader.list(&index::OPERATIONS, ReadVersion::Latest);
            list.expect("the newest state is always available").1
        };
        let entries = list(&self.replicas[leader]);
        let expected = ObjectHashes::of(&entries);
        for replica in &self.replicas {
            let there = ObjectHashes::of(&list(replica));
            if there != expected {
                let (pod, leader) = (&replica.pod, &self.replicas[leader].pod);
                return Some(format!(
                    "{pod} has {there:?}, but the leader {leader} has {expected:?}"
                ));
            }
        }
        let mut subjects = Vec::new();
        let mut live = Vec::new();
        for entry in &entries {
            let operation = entry.object().operation();
            let operation = operation.expect("the index contains operations");
            if operation.status.phase == Phase::Active {
                subjects.push(operation.spec.subject.name.to_string());
                live.push(operation.metadata.uid.clone());
            }
        }
        subjects.sort_unstable();
        let wanted = self.environment.subjects.in_flight();
        if subjects != wanted {
            return Some(format!(
                "operations must be in flight on {wanted:?}, but the leader has them on {subjects:?}"
            ));
        }
        if let Some(client) = self.clients.iter().position(|it| !it.equals(&expected)) {
            return Some(format!(
                "client {client} does not have the state of the leader"
            ));
        }
        let store = self.environment.store.as_ref()?;
        let stored = store.lock();
        let statuses = stored.objects.values().filter_map(|cr| cr.status.as_ref());
        let active = statuses.filter(|status| status.live.phase == Phase::Active);
        let mut stored_uids: Vec<Text> = active.map(|it| it.live_uid.clone()).collect();
        stored_uids.sort_unstable();
        live.sort_unstable();
        (stored_uids != live).then(|| {
            format!(
                "the live operations are {live:?}, but the custom resources are {stored_uids:?}"
            )
        })
    }
}
