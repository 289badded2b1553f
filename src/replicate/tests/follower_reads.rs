//! Tests of reads from a follower. A follower is a replica that copies the leader's index, which
//! has the operations in memory. In these tests, a scripted leader answers the follower. The tests
//! check:
//!
//! - how long a read waits until the copy is current
//! - the age of the copy that the follower reports
//! - the readiness of the replica

use crate::index::{
    self, Bounds, IndexEntry, IndexReader, Key, ReadVersion, Rv, VersionAssignment, Write, Writer,
    index_from,
};
use crate::replicate::link::{LeaderChanges, Link, LinkError, LinkFactory, ObjectPage, PeerAnswer};
use crate::replicate::{
    ClusterContact, CopyStart, Leader, Leadership, Mirror, ReplicaRole, ReplicaStatus, Term,
};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use ifo_api::example;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

const BOUNDS: Bounds = Bounds {
    bytes: 1 << 20,
    age: Duration::from_mins(5),
};

/// A scripted leader with an index. Its answers and its stream of changes can be delayed.
struct FakeLeader {
    term: Term,
    reader: IndexReader,
    /// The number of state queries that the leader has received. With a state query, a follower
    /// asks the leader for its newest resourceVersion.
    queries: AtomicUsize,
    latency: Mutex<Duration>,
    /// The last time at which the kube-apiserver answered the leader. None means that the last
    /// answer is always new: whenever the follower asks, the leader reports an age of zero.
    cluster_answered: Mutex<Option<tokio::time::Instant>>,
    /// The number of events that the stream of changes may still send. Each event takes one permit.
    event_permits: Arc<tokio::sync::Semaphore>,
}

impl FakeLeader {
    fn set_latency(&self, latency: Duration) {
        *self.latency.lock().unwrap() = latency;
    }
}

struct FakeLink(Arc<FakeLeader>);

impl Link for FakeLink {
    fn ask(&self) -> BoxFuture<'_, Result<PeerAnswer, LinkError>> {
        async {
            self.0.queries.fetch_add(1, Ordering::Relaxed);
            let head = self.0.reader.head();
            let latency = *self.0.latency.lock().unwrap();
            tokio::time::sleep(latency).await;
            let answered = *self.0.cluster_answered.lock().unwrap();
            let answered = answered.map_or(Duration::ZERO, |at| at.elapsed());
            Ok(PeerAnswer {
                cluster_answered: u64::try_from(answered.as_millis()).ok(),
                term: self.0.term.to_string(),
                leading: true,
                head,
                oldest: self.0.reader.oldest(),
            })
        }
        .boxed()
    }

    fn page<'a>(
        &'a self,
        at: Rv,
        _: Option<&'a str>,
    ) -> BoxFuture<'a, Result<ObjectPage, LinkError>> {
        let listed = self
            .0
            .reader
            .list(&index::OPERATIONS, ReadVersion::Exact(at));
        let page = listed.map_err(|_| LinkError::Gone).map(|(_, entries)| {
            let object = |it: &Arc<IndexEntry>| (it.key().clone(), it.rv(), it.object().clone());
            ObjectPage {
                objects: entries.iter().map(object).collect(),
                next: None,
            }
        });
        std::future::ready(page).boxed()
    }

    fn watch(&self, after: Rv) -> BoxFuture<'_, Result<LeaderChanges, LinkError>> {
        let followed = self.0.reader.follow(after, index::OPERATIONS);
        let permits = self.0.event_permits.clone();
        let events = followed.map_err(|_| LinkError::Gone).map(|cursor| {
            let changes = futures::stream::unfold(cursor, |mut cursor| async move {
                let changes = cursor.next().await;
                Some((changes, cursor))
            })
            .flat_map(|changes| {
                let changes = changes.expect("the leader keeps all changes");
                let events = changes.iter().map(|change| {
                    let write = change.key().cloned().map(|key| match &change.after {
                        None => Write::Delete { key },
                        Some(after) => Write::Put {
                            key,
                            object: after.object().clone(),
                        },
                    });
                    Ok((change.rv, write))
                });
                futures::stream::iter(events.collect::<Vec<_>>())
            })
            .then(move |event| {
                let permits = permits.clone();
                async move {
                    permits
                        .acquire()
                        .await
                        .expect("the semaphore is never closed")
                        .forget();
                    event
                }
            });
            let first = futures::stream::iter([Ok((after, None))]);
            first.chain(changes).boxed()
        });
        std::future::ready(events).boxed()
    }
}

impl LinkFactory for Arc<FakeLeader> {
    fn connect<'a>(&'a self, _: &'a Leader) -> BoxFuture<'a, Result<Box<dyn Link>, LinkError>> {
        let link: Box<dyn Link> = Box::new(FakeLink(Arc::clone(self)));
        std::future::ready(Ok(link)).boxed()
    }
}

/// A scripted leader, and a follower that copies its index.
struct LeaderAndFollower {
    leader: Arc<FakeLeader>,
    leader_writer: Writer,
    follower_reader: IndexReader,
    replica_status: ReplicaStatus,
    in_sync: watch::Receiver<Option<Term>>,
    role: watch::Sender<ReplicaRole>,
}

fn mirror(
    links: Arc<dyn LinkFactory>,
    in_sync: watch::Sender<Option<Term>>,
    status: ReplicaStatus,
) -> Mirror {
    Mirror {
        links,
        in_sync,
        wake: Arc::default(),
        status,
        next_start: CopyStart::default(),
    }
}

fn put(name: &str, number: u64) -> Write {
    Write::Put {
        key: Key::new("n", name),
        object: example::object(&json!({"metadata": {"name": name}, "status": {"new": number}})),
    }
}

impl LeaderAndFollower {
    /// Starts the follower, and waits until it has copied the leader's three objects.
    async fn start_in_sync() -> Self {
        let mut pair = Self::start();
        let mut in_sync = pair.in_sync.clone();
        in_sync.wait_for(Option::is_some).await.unwrap();
        assert_eq!(pair.follower_reader.head(), pair.leader_writer.head());
        pair.in_sync.mark_unchanged();
        pair
    }

    /// Starts the follower with an empty index.
    fn start() -> Self {
        let (mut follower, reader) = index_from(BOUNDS, Rv(0));
        let term = Term::from("pod_1");
        let (mut writer, leader_reader) = index_from(BOUNDS, Rv(0));
        writer.begin(Rv(1_000)).unwrap();
        for (rv, name) in [(1_001, "a"), (1_002, "b"), (1_003, "c")] {
            let put = vec![put(name, rv)];
            writer
                .commit(put, VersionAssignment::Exact(Rv(rv)))
                .unwrap();
        }
        let leader = Arc::new(FakeLeader {
            term: term.clone(),
            reader: leader_reader,
            queries: AtomicUsize::new(0),
            latency: Mutex::default(),
            cluster_answered: Mutex::default(),
            event_permits: Arc::new(tokio::sync::Semaphore::new(1_000)),
        });
        let named = Leader {
            term,
            address: "leader:1".to_owned(),
        };
        let role = watch::Sender::new(ReplicaRole::Following(named.clone()));
        let replica_status = ReplicaStatus::new(reader.clone(), role.subscribe());
        let (synced, in_sync) = watch::channel(None);
        let links = Arc::new(leader.clone());
        let mut mirror = mirror(links, synced, replica_status.clone());
        tokio::spawn(async move { mirror.follow(&mut follower, &named).await });
        Self {
            leader,
            leader_writer: writer,
            follower_reader: reader,
            replica_status,
            in_sync,
            role,
        }
    }

    fn commit(&mut self, rv: u64) {
        let put = vec![put("a", rv)];
        self.leader_writer
            .commit(put, VersionAssignment::Exact(Rv(rv)))
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_waits_for_the_version_that_the_leader_has_when_the_read_arrives() {
    let mut pair = LeaderAndFollower::start_in_sync().await;
    pair.leader.event_permits.forget_permits(1_000);
    pair.commit(1_004);
    let replica_status = pair.replica_status.clone();
    let read = tokio::spawn(async move { replica_status.wait_until_current().await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(
        !read.is_finished(),
        "the read must wait, because the follower does not have the change yet"
    );
    pair.leader.event_permits.add_permits(1);
    read.await.unwrap();
    assert_eq!(pair.follower_reader.head(), Rv(1_004));
}

#[tokio::test(start_paused = true)]
async fn concurrent_reads_share_one_state_query() {
    let pair = LeaderAndFollower::start_in_sync().await;
    pair.leader.set_latency(Duration::from_millis(100));
    let before = pair.leader.queries.load(Ordering::Relaxed);
    let reads: Vec<_> = (0..100)
        .map(|_| {
            let replica_status = pair.replica_status.clone();
            tokio::spawn(async move { replica_status.wait_until_current().await })
        })
        .collect();
    futures::future::join_all(reads).await;
    let asked = pair.leader.queries.load(Ordering::Relaxed) - before;
    assert!((1..=2).contains(&asked), "{asked} queries for 100 reads");
}

#[tokio::test(start_paused = true)]
async fn the_reason_to_close_a_connection_names_the_part_that_fails() {
    let pair = LeaderAndFollower::start_in_sync().await;
    let link = FakeLink(pair.leader.clone());
    for (latency, reason) in [
        (
            Duration::from_hours(1),
            "the leader does not answer state queries",
        ),
        // This follower copies nothing, so it never reaches the resourceVersion in the answer.
        (Duration::ZERO, "the leader's watch delivers no changes"),
    ] {
        pair.leader.set_latency(latency);
        let (_writer, reader) = index_from(BOUNDS, Rv(0));
        let status = ReplicaStatus::new(reader, pair.role.subscribe());
        let closed = status.send_queries(&link, &pair.leader.term).await;
        assert_eq!(closed, LinkError::Failed(reason.to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_does_not_answer_delays_the_first_read_by_one_second_and_no_later_read() {
    let pair = LeaderAndFollower::start_in_sync().await;
    pair.leader.set_latency(Duration::from_hours(1));
    let begun = tokio::time::Instant::now();
    pair.replica_status.wait_until_current().await;
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
    let begun = tokio::time::Instant::now();
    pair.replica_status.wait_until_current().await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_follower_reports_how_current_its_copy_is() {
    let pair = LeaderAndFollower::start_in_sync().await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(
        pair.replica_status.lag() <= Duration::from_secs(3),
        "the follower must send state queries periodically"
    );
    assert!(!pair.replica_status.is_stale() && pair.replica_status.impairment().is_none());
    pair.leader.set_latency(Duration::from_hours(1));
    tokio::time::sleep(Duration::from_secs(13)).await;
    assert!(pair.replica_status.impairment().is_some() && !pair.replica_status.is_stale());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(pair.replica_status.is_stale());
    pair.leader.set_latency(Duration::ZERO);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!pair.replica_status.is_stale() && pair.replica_status.impairment().is_none());
    let alone = Leadership::alone(Rv(1));
    pair.role.send_replace(ReplicaRole::Leading(alone));
    assert_eq!(pair.replica_status.lag(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_replica_is_unready_if_the_kube_apiserver_answers_the_leader_but_not_this_replica() {
    let pair = LeaderAndFollower::start_in_sync().await;
    let second = Duration::from_secs(1);
    let cluster_contact = pair.replica_status.cluster_contact();
    let lose = || {
        cluster_contact.send_modify(|it| it.unanswered_since = Some(tokio::time::Instant::now()));
    };
    lose();
    tokio::time::sleep(second).await;
    assert_eq!(
        pair.replica_status.impairment(),
        None,
        "a short interruption must not make the replica unready"
    );
    tokio::time::sleep(4 * second).await;
    assert!(pair.replica_status.impairment().is_some());
    // Now the leader does not answer either. After more than 3 s without an answer, the leader may
    // have stopped leading. Without a leader, no other replica serves clients better. So this
    // replica becomes ready again.
    pair.leader.set_latency(Duration::from_hours(1));
    tokio::time::sleep(4 * second).await;
    assert_eq!(pair.replica_status.impairment(), None);
    pair.leader.set_latency(Duration::ZERO);
    tokio::time::sleep(4 * second).await;
    assert!(pair.replica_status.impairment().is_some());
    cluster_contact.send_replace(ClusterContact::default());
    assert_eq!(pair.replica_status.impairment(), None);
    // Now the kube-apiserver does not answer the leader either. All replicas may have this problem,
    // so this replica stays ready.
    let now = tokio::time::Instant::now();
    *pair.leader.cluster_answered.lock().unwrap() = Some(now);
    lose();
    tokio::time::sleep(4 * second).await;
    assert_eq!(pair.replica_status.impairment(), None);
}

#[tokio::test(start_paused = true)]
async fn without_a_leader_a_replica_is_ready_only_with_a_copy_of_the_operations() {
    let vacant = ReplicaRole::Vacant {
        last: Some(Leader {
            term: Term::from("pod_1"),
            address: "leader:1".to_owned(),
        }),
        final_version: None,
    };
    // This replica has not copied anything yet, like a container that was just restarted.
    let restarted = LeaderAndFollower::start();
    restarted.role.send_replace(vacant.clone());
    assert!(!restarted.replica_status.is_ready_without_leader());
    let follower = LeaderAndFollower::start_in_sync().await;
    follower.role.send_replace(vacant);
    assert!(follower.replica_status.is_ready_without_leader());
}

#[tokio::test(start_paused = true)]
async fn without_a_registration_a_follower_is_not_impaired() {
    let pair = LeaderAndFollower::start_in_sync().await;
    let replica_status = ReplicaStatus::new(pair.follower_reader.clone(), pair.role.subscribe());
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(replica_status.impairment().is_some());
    replica_status.set_interruption(Some(LinkError::NotRegistered));
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(replica_status.is_unregistered());
    assert_eq!(replica_status.impairment(), None);
    // A follower is impaired if it has not reached the leader for 10 s. These 10 s begin again when
    // the `APIService` is registered again.
    replica_status.set_interruption(Some(LinkError::NotRegistered));
    replica_status.set_interruption(None);
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(replica_status.impairment(), None);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(replica_status.impairment().is_some());
}

/// A leader that refuses all requests of the follower.
struct RefusingLeader;

impl LinkFactory for RefusingLeader {
    fn connect<'a>(&'a self, _: &'a Leader) -> BoxFuture<'a, Result<Box<dyn Link>, LinkError>> {
        let refused = LinkError::NotAuthorized("403 Forbidden".to_owned());
        std::future::ready(Err(refused)).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_follower_whose_credentials_are_refused_names_the_flag_and_warns_once() {
    let written = crate::telemetry::testing::CapturedLog::default();
    let _log = written.begin();
    let (mut follower, reader) = index_from(BOUNDS, Rv(0));
    let leader = Leader {
        term: Term::from("pod_1"),
        address: "leader:1".to_owned(),
    };
    let role = watch::Sender::new(ReplicaRole::Following(leader.clone()));
    let replica_status = ReplicaStatus::new(reader, role.subscribe());
    assert_eq!(replica_status.unready_reason(), None);
    let (synced, _in_sync) = watch::channel(None);
    let links = Arc::new(RefusingLeader);
    let mut mirror = mirror(links, synced, replica_status.clone());
    let following = mirror.follow(&mut follower, &leader);
    let ended = tokio::time::timeout(Duration::from_secs(5), following).await;
    assert!(ended.is_err(), "the follower tries again");
    let reason = replica_status.unready_reason().unwrap();
    assert!(
        reason.contains("403 Forbidden") && reason.contains("--peer-token-file"),
        "{reason}"
    );
    let lines = written.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["level"], "WARN");
    assert!(
        lines[0]["reason"]
            .as_str()
            .unwrap()
            .contains("--peer-token-file")
    );
    // A replica that no longer follows a leader needs no credentials for it.
    role.send_replace(ReplicaRole::Unknown);
    assert_eq!(replica_status.unready_reason(), None);
}
