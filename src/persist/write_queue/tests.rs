//! Tests of the queue of custom resources that must be written. The tests run on tokio's paused
//! clock and without a kube-apiserver. They pass the simulated time and the results of jobs to the
//! queue.

use super::compare_listed::{ORPHAN_DELAY, SECOND_COMPARE_DELAY};
use super::*;
use crate::clock;
use crate::index::{Bounds, Key, VersionAssignment, Write, index};
use ifo_api::{Text, example};
use serde_json::json;
use uuid::Uuid;

const SETTINGS: PersistSettings = PersistSettings {
    resync: Duration::from_secs(30),
    settling: Duration::from_mins(1),
    requeue: Duration::from_mins(1),
    retain: true,
    retain_for: Duration::from_hours(24),
    retain_max: 3,
};

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

fn name(number: usize) -> Text {
    format!("op-{number}").into()
}

/// Returns an index entry of an operation that completed at the time `completed`.
fn entry(completed: &str) -> Arc<IndexEntry> {
    let bounds = Bounds {
        bytes: 1 << 20,
        age: seconds(60),
    };
    let (mut writer, reader) = index(bounds);
    let key = Key::new("a", "x");
    let status = json!({"phase": "Completed", "state": "Ended", "completed": completed});
    let put = Write::Put {
        key: key.clone(),
        object: example::object(&json!({"status": status})),
    };
    writer.commit(vec![put], VersionAssignment::Mint).unwrap();
    reader.get(&key).1.unwrap()
}

fn active(digest: u64) -> WrittenSummary {
    WrittenSummary {
        phase: Phase::Active,
        settling: false,
        digest,
        labels: 0,
    }
}

fn settling(digest: u64) -> WrittenSummary {
    WrittenSummary {
        settling: true,
        ..active(digest)
    }
}

fn completed(digest: u64) -> WrittenSummary {
    WrittenSummary {
        phase: Phase::Completed,
        ..active(digest)
    }
}

fn revision(number: u128) -> Revision {
    Revision {
        uid: Uuid::from_u128(1),
        resource_version: number.to_string().into(),
    }
}

fn unreachable() -> StoreFailure {
    StoreFailure::Unreachable("away".into(), None)
}

/// Returns a short name for the action of `job`.
fn action(job: &Job) -> &'static str {
    match (&job.wanted, &job.stored) {
        (WantedState::Completed, _) => "end",
        (WantedState::Live(..), StoredState::Absent) => "create",
        (WantedState::Live(..), StoredState::Present(..)) => "change",
        (WantedState::Gone, StoredState::Present(..)) => "delete",
        _ => "read",
    }
}

/// Returns the revision on which the write of `job` is conditional: the write fails if the custom
/// resource has another revision. Returns None if the write is not conditional on a revision.
fn condition(job: &Job) -> Option<&Revision> {
    match &job.stored {
        StoredState::Present(_, revision, _) => Some(revision),
        _ => None,
    }
}

/// A queue, the simulated time, an entry of the index for all operations, and the writes so far.
/// Each write has the name of its custom resource and its action.
struct QueueFixture {
    queue: Queue,
    now: Instant,
    entry: Arc<IndexEntry>,
    written: Vec<(String, &'static str)>,
}

impl QueueFixture {
    /// Creates a queue, and runs the first comparison, which finds no custom resources.
    fn new(settings: PersistSettings) -> Self {
        let mut fixture = Self::before_first_sync(settings);
        fixture.complete_first_sync(Vec::new());
        fixture
    }

    fn before_first_sync(settings: PersistSettings) -> Self {
        let now = Instant::now();
        Self {
            queue: Queue::new(settings, now),
            now,
            entry: entry("2026-01-02T03:04:05Z"),
            written: Vec::new(),
        }
    }

    /// Reports that all targets have been listed, except the targets of the rule sets in
    /// `unsynced`. Then runs a comparison that finds the custom resources `found`. Schedules the
    /// next comparison after [`COMPARE_INTERVAL`], so that no comparison runs earlier.
    fn complete_first_sync_except(&mut self, unsynced: &[&str], found: Vec<ListedResource>) {
        let unsynced = unsynced.iter().map(|name| (*name).to_owned()).collect();
        self.queue
            .set_unsynced_rule_sets(Arc::new(unsynced), self.now);
        self.compare(found);
        self.queue.compare_at = Some(self.now + COMPARE_INTERVAL);
    }

    fn complete_first_sync(&mut self, found: Vec<ListedResource>) {
        self.complete_first_sync_except(&[], found);
    }

    fn set_live(&mut self, number: usize, summary: WrittenSummary) {
        self.queue
            .set_live(&name(number), &self.entry, summary, self.now);
    }

    fn set_gone(&mut self, number: usize) {
        self.queue.set_gone(&name(number), self.now);
    }

    fn compare(&mut self, found: Vec<ListedResource>) {
        assert!(matches!(self.queue.next(self.now), Next::Compare));
        self.queue.process_list(found, self.now);
    }

    /// Returns the next job. Returns None if no job may start now. Panics if a comparison is due.
    fn next_job(&mut self) -> Option<Job> {
        match self.queue.next(self.now) {
            Next::StartJob(job) => Some(job),
            Next::Compare => panic!("unexpected comparison"),
            Next::Wait(_) => None,
        }
    }

    fn succeed(&mut self, job: &Job) {
        let written = |summary, version| JobResult::Written(Some((summary, revision(version))));
        let summary = match &job.wanted {
            WantedState::Live(_, summary, _) => *summary,
            _ => completed(99),
        };
        let verb = action(job);
        let done = match verb {
            "create" => written(summary, 1),
            "change" => written(summary, 2),
            "end" => written(summary, 3),
            "delete" => JobResult::Written(None),
            _ => JobResult::Read(None),
        };
        if verb != "read" {
            self.written.push((job.name.to_string(), verb));
        }
        self.queue.process_result(&job.name, &Ok(done), self.now);
    }

    fn fail(&mut self, job: &Job, failure: &StoreFailure) {
        self.queue
            .process_result(&job.name, &Err(failure.clone()), self.now);
    }

    /// Performs all jobs that become due within `time`. All jobs succeed. Returns the number of
    /// writes.
    fn run_for(&mut self, time: Duration) -> usize {
        let (end, before) = (self.now + time, self.written.len());
        loop {
            match self.queue.next(self.now) {
                Next::StartJob(job) => self.succeed(&job),
                Next::Compare => panic!("unexpected comparison"),
                Next::Wait(Some(at)) if at <= end => self.now = at,
                Next::Wait(_) => break,
            }
        }
        self.now = end;
        self.written.len() - before
    }

    fn actions(&self) -> Vec<&'static str> {
        self.written.iter().map(|(_, verb)| *verb).collect()
    }
}

fn listed(number: usize, summary: WrittenSummary, completed: Option<&str>) -> ListedResource {
    ListedResource {
        name: name(number),
        revision: revision(9),
        summary,
        completed: completed.map(|time| time.parse().unwrap()),
        last_seen_in: None,
        namespace_deleted: false,
        rule_sets: vec!["rules".into()],
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_takes_two_writes_and_a_deletion() {
    let mut fixture = QueueFixture::new(SETTINGS);
    fixture.set_live(1, active(1));
    assert_eq!(fixture.run_for(seconds(60)), 1);
    fixture.set_live(1, settling(2));
    assert_eq!(fixture.run_for(seconds(30)), 0);
    fixture.set_live(1, completed(3));
    assert_eq!(fixture.run_for(seconds(1)), 1);
    assert_eq!(fixture.actions(), ["create", "change"]);
    fixture.set_gone(1);
    assert_eq!(fixture.run_for(seconds(1)), 1);
    assert!(fixture.queue.entries.is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_retention_the_custom_resource_is_deleted_at_the_end() {
    let mut fixture = QueueFixture::new(PersistSettings {
        retain: false,
        ..SETTINGS
    });
    fixture.set_live(1, active(1));
    fixture.run_for(seconds(1));
    fixture.set_live(1, completed(2));
    assert_eq!(fixture.run_for(seconds(1)), 0);
    fixture.set_gone(1);
    fixture.run_for(seconds(1));
    assert_eq!(fixture.actions(), ["create", "delete"]);
    assert!(fixture.queue.entries.is_empty());
}

#[tokio::test(start_paused = true)]
async fn changes_of_an_active_operation_are_written_once_per_resync() {
    let mut fixture = QueueFixture::new(SETTINGS);
    fixture.set_live(1, active(0));
    fixture.run_for(seconds(1));
    for digest in 1..=290 {
        fixture.set_live(1, active(digest));
        fixture.run_for(seconds(1));
    }
    let writes = fixture.written.len() - 1;
    assert!((9..=10).contains(&writes), "{writes}");
    fixture.run_for(seconds(60));
    let stored = &fixture.queue.entries[&name(1)].stored;
    assert!(matches!(stored, StoredState::Present(summary, ..) if *summary == active(290)));
}

#[tokio::test(start_paused = true)]
async fn short_settling_is_not_written_and_long_settling_is_written_once() {
    let mut fixture = QueueFixture::new(SETTINGS);
    fixture.set_live(1, active(1));
    fixture.run_for(seconds(1));
    for _ in 0..10 {
        fixture.set_live(1, settling(2));
        assert_eq!(fixture.run_for(seconds(20)), 0);
        fixture.set_live(1, active(1));
        assert_eq!(fixture.run_for(seconds(20)), 0);
    }
    fixture.set_live(1, settling(2));
    assert_eq!(fixture.run_for(seconds(59)), 0);
    assert_eq!(fixture.run_for(seconds(100)), 1);
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_ends_before_its_turn_is_never_written() {
    let mut fixture = QueueFixture::new(SETTINGS);
    let until = fixture.now + seconds(60);
    fixture
        .queue
        .pace
        .record_general_failure(Some(seconds(60)), fixture.now);
    for number in 0..10_000 {
        fixture.set_live(number, active(1));
        fixture.set_gone(number);
    }
    assert!(
        fixture.queue.entries.is_empty() && fixture.queue.waiting.iter().all(BTreeSet::is_empty)
    );
    fixture.now = until;
    assert_eq!(fixture.run_for(seconds(60)), 0);
}

#[tokio::test(start_paused = true)]
async fn waiting_writes_are_sent_in_order_at_the_rate_limit() {
    let mut fixture = QueueFixture::new(SETTINGS);
    for number in 0..1_000 {
        fixture.set_live(number, active(1));
        fixture.now += Duration::from_millis(1);
    }
    // A queue entry that changes while it waits keeps its position.
    fixture.set_live(0, active(2));
    let backlog = fixture.queue.backlog(fixture.now);
    assert_eq!(backlog, (1_000, Some(fixture.now - seconds(1))));
    fixture.run_for(seconds(10));
    let done = fixture.written.len();
    assert!((550..=650).contains(&done), "{done}");
    assert_eq!(fixture.written[0].0, "op-0");
    assert!(
        fixture
            .written
            .iter()
            .map(|(name, _)| name[3..].parse::<usize>().unwrap())
            .is_sorted()
    );
    fixture.run_for(seconds(10));
    assert_eq!(fixture.written.len(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn concurrent_writes_are_limited_and_one_object_has_at_most_one() {
    let mut fixture = QueueFixture::new(SETTINGS);
    for number in 0..10 {
        fixture.set_live(number, active(1));
    }
    let jobs: Vec<Job> = std::iter::from_fn(|| fixture.next_job()).collect();
    assert_eq!(jobs.len(), CONCURRENCY);
    // If an operation changes while its write is running, the change is written afterwards. So the
    // four operations with a running write are written twice, and the other six operations once.
    for number in 0..10 {
        fixture.set_live(number, completed(2));
    }
    assert!(fixture.next_job().is_none());
    for job in &jobs {
        fixture.succeed(job);
    }
    fixture.run_for(seconds(10));
    assert_eq!(fixture.written.len(), 10 + CONCURRENCY);
}

#[tokio::test(start_paused = true)]
async fn during_an_outage_only_one_write_at_a_time_is_tried() {
    let mut fixture = QueueFixture::new(SETTINGS);
    for number in 0..100 {
        fixture.set_live(number, active(1));
    }
    let start = fixture.now;
    let mut attempts = 0;
    while fixture.now < start + seconds(600) {
        match fixture.queue.next(fixture.now) {
            Next::StartJob(job) => {
                attempts += 1;
                fixture.now += Duration::from_millis(1);
                fixture.fail(&job, &unreachable());
            }
            Next::Compare => panic!("unexpected comparison"),
            Next::Wait(at) => fixture.now = at.unwrap(),
        }
    }
    // After some attempts, each back-off lasts 15 to 30 s. So there are at least 20 attempts in
    // 600 s, and not many more than 40.
    assert!((20..=60).contains(&attempts), "{attempts}");
    fixture.queue.compare_at = Some(fixture.now + seconds(3600));
    fixture.run_for(seconds(400));
    assert_eq!(fixture.written.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn retry_after_delays_all_writes() {
    let mut fixture = QueueFixture::new(SETTINGS);
    for number in 0..4 {
        fixture.set_live(number, active(1));
    }
    let job = fixture.next_job().unwrap();
    fixture.fail(&job, &StoreFailure::Throttled(seconds(17)));
    assert_eq!(fixture.run_for(Duration::from_millis(16_999)), 0);
    assert_eq!(fixture.run_for(seconds(1)), 4);
}

#[tokio::test(start_paused = true)]
async fn a_refused_object_backs_off_without_delaying_others() {
    let mut fixture = QueueFixture::new(SETTINGS);
    fixture.set_live(1, active(1));
    let (start, mut attempts) = (fixture.now, 0);
    while fixture.now < start + seconds(590) {
        match fixture.queue.next(fixture.now) {
            Next::StartJob(job) if *job.name == *"op-1" => {
                attempts += 1;
                fixture.fail(&job, &StoreFailure::Invalid("no".into()));
                fixture.set_live(2, active(attempts));
            }
            Next::StartJob(job) => fixture.succeed(&job),
            Next::Compare => panic!("unexpected comparison"),
            Next::Wait(at) => fixture.now = at.unwrap(),
        }
    }
    assert!((16..=28).contains(&attempts), "{attempts}");
    assert!(!fixture.written.is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_the_crd_writes_pause_for_the_requeue_interval_and_then_a_comparison_runs() {
    let mut fixture = QueueFixture::new(SETTINGS);
    fixture.set_live(1, active(1));
    fixture.run_for(seconds(1));
    fixture.set_live(1, completed(2));
    let job = fixture.next_job().unwrap();
    fixture.fail(&job, &StoreFailure::CrdMissing);
    assert_eq!(fixture.run_for(seconds(59)), 0);
    fixture.now += seconds(1);
    assert!(matches!(fixture.queue.next(fixture.now), Next::Compare));
    fixture
        .queue
        .process_list_failure(&StoreFailure::CrdMissing, fixture.now);
    assert_eq!(fixture.run_for(seconds(59)), 0);
    fixture.now += seconds(1);
    // The CRD exists again, but all custom resources were deleted with the old CRD. So the queue
    // creates the custom resource again.
    fixture.compare(Vec::new());
    assert_eq!(action(&fixture.next_job().unwrap()), "create");
}

/// Runs the queue for `time`. Jobs for which `refuses` returns true are refused, and all other jobs
/// succeed. Returns the number of refusals.
fn run_with_refusals(
    fixture: &mut QueueFixture,
    time: Duration,
    refuses: impl Fn(&Job) -> bool,
) -> usize {
    let forbidden = StoreFailure::Forbidden("no".into());
    let (end, mut refused) = (fixture.now + time, 0);
    loop {
        match fixture.queue.next(fixture.now) {
            Next::StartJob(job) if refuses(&job) => {
                refused += 1;
                fixture.fail(&job, &forbidden);
            }
            Next::StartJob(job) => fixture.succeed(&job),
            Next::Compare => {
                let written = fixture.written.iter().filter(|(_, verb)| *verb == "create");
                let there = written.map(|(name, _)| name[3..].parse().unwrap());
                let there = there
                    .map(|number| listed(number, active(1), None))
                    .collect();
                fixture.queue.process_list(there, fixture.now);
            }
            Next::Wait(Some(at)) if at < end => fixture.now = at,
            Next::Wait(_) => break,
        }
    }
    fixture.now = end;
    refused
}

#[tokio::test(start_paused = true)]
async fn few_writes_are_tried_while_all_are_refused_and_all_are_written_afterwards() {
    let mut fixture = QueueFixture::new(SETTINGS);
    for number in 0..500 {
        fixture.set_live(number, active(1));
    }
    let refused = run_with_refusals(&mut fixture, seconds(3), |_| true);
    assert!((10..30).contains(&refused), "{refused}");
    // All writes were refused for 3 s, as by a kube-apiserver that has just started. From now on,
    // all writes succeed.
    assert_eq!(fixture.run_for(seconds(15)), 500);

    let mut fixture = QueueFixture::new(SETTINGS);
    for number in 0..100 {
        fixture.set_live(number, active(1));
    }
    let refused = run_with_refusals(&mut fixture, seconds(300), |_| true);
    assert!((100..2_000).contains(&refused), "{refused}");
    assert!(fixture.queue.has_refused_write());
    run_with_refusals(&mut fixture, SETTINGS.requeue, |_| false);
    assert_eq!(fixture.written.len(), 100);
    assert!(!fixture.queue.has_refused_write());
}

#[tokio::test(start_paused = true)]
async fn refused_objects_do_not_delay_other_objects() {
    let mut fixture = QueueFixture::new(SETTINGS);
    for number in 0..12 {
        fixture.set_live(number, active(1));
    }
    fixture.now += Duration::from_millis(1);
    fixture.set_live(100, active(1));
    let refuses = |job: &Job| job.name.len() < "op-100".len();
    run_with_refusals(&mut fixture, seconds(20), refuses);
    assert_eq!(fixture.written, [("op-100".to_owned(), "create")]);
    let mut refused = 0;
    for number in 101..160 {
        fixture.set_live(number, active(1));
        refused += run_with_refusals(&mut fixture, seconds(1), refuses);
        assert_eq!(fixture.written.len(), number - 99);
    }
    assert!(refused < 12 * 10, "{refused}");
    let refused = run_with_refusals(&mut fixture, seconds(3000), refuses);
    assert!(refused < 12 * 110, "{refused}");
    assert!(fixture.queue.has_refused_write());
    for number in 0..12 {
        fixture.set_gone(number);
    }
    assert!(!fixture.queue.has_refused_write());
    // No write is waiting, so no further attempt shows whether requests succeed again. So the queue
    // starts a comparison soon.
    assert!(fixture.queue.compare_at.unwrap() <= fixture.now + SETTINGS.requeue);
}

#[tokio::test(start_paused = true)]
async fn many_refused_objects_do_not_delay_new_objects() {
    let mut fixture = QueueFixture::new(SETTINGS);
    for number in 0..400 {
        fixture.set_live(number, active(1));
    }
    let refuses = |job: &Job| job.name.len() < "op-1000".len();
    run_with_refusals(&mut fixture, seconds(200), refuses);
    assert!(fixture.written.is_empty());
    for number in 1_000..1_030 {
        fixture.set_live(number, active(1));
        let refused = run_with_refusals(&mut fixture, seconds(1), refuses);
        assert!(refused > 0, "some refused writes must always be due again");
        assert_eq!(fixture.written.len(), number - 999);
    }
}

#[tokio::test(start_paused = true)]
async fn refused_deletions_do_not_delay_creations() {
    let mut fixture = QueueFixture::new(SETTINGS);
    for number in 0..20 {
        fixture.set_live(number, active(1));
    }
    fixture.run_for(seconds(1));
    for number in 0..20 {
        fixture.set_gone(number);
    }
    let refuses = |job: &Job| action(job) == "delete";
    for number in 100..130 {
        fixture.set_live(number, active(1));
        // At first, many refused deletions use up the rate limit. So the first creation may take
        // 20 s.
        let time = if number == 100 { 20 } else { 1 };
        run_with_refusals(&mut fixture, seconds(time), refuses);
        assert_eq!(fixture.written.len(), 20 + number - 99);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_before_the_existing_custom_resources_are_listed() {
    let mut fixture = QueueFixture::before_first_sync(SETTINGS);
    fixture.set_live(1, active(1));
    fixture.set_live(2, active(1));
    assert_eq!(fixture.run_for(seconds(60)), 0);
    // The previous leader has written `op-1` already.
    fixture.complete_first_sync(vec![listed(1, active(1), None)]);
    assert_eq!(fixture.run_for(seconds(60)), 1);
    assert_eq!(fixture.written[0].0, "op-2");
}

#[tokio::test(start_paused = true)]
async fn an_active_operation_of_the_previous_leader_is_not_written_before_its_target_has_been_read()
{
    let over = listed(1, completed(1), Some("2026-01-02T03:04:05Z"));
    for is_completed in [true, false] {
        let mut fixture = QueueFixture::before_first_sync(SETTINGS);
        // The previous leader has written the end of `op-1` to its custom resource. The index still
        // has `op-1` as active.
        fixture.set_live(1, active(1));
        fixture.set_live(2, active(1));
        assert_eq!(fixture.run_for(seconds(60)), 0);
        if is_completed {
            fixture.set_live(1, completed(1));
            // `op-2` has ended, too. It has no custom resource.
            fixture.set_live(2, completed(2));
            assert_eq!(fixture.run_for(seconds(1)), 0);
        }
        fixture.complete_first_sync(vec![over.clone()]);
        fixture.run_for(seconds(60));
        fixture.written.sort();
        let want: &[&str] = if is_completed {
            &["op-2"]
        } else {
            &["op-1", "op-2"]
        };
        let written: Vec<&str> = fixture.written.iter().map(|(name, _)| &**name).collect();
        assert_eq!(written, want);
        let verbs = if is_completed {
            ["create"].to_vec()
        } else {
            ["change", "create"].to_vec()
        };
        assert_eq!(fixture.actions(), verbs);
    }
}

#[tokio::test(start_paused = true)]
async fn orphans_of_a_killed_server_are_completed_after_all_targets_have_been_read() {
    let leftovers = || {
        vec![
            listed(1, active(1), None),
            listed(2, completed(1), Some("2020-01-01T00:00:00Z")),
            listed(4, completed(1), Some(&clock::now().to_string())),
        ]
    };
    for (retain, want) in [(true, &["end", "delete"][..]), (false, &["delete"; 3])] {
        let mut fixture = QueueFixture::before_first_sync(PersistSettings { retain, ..SETTINGS });
        let mut all = leftovers();
        all.push(listed(3, active(1), None));
        assert_eq!(
            fixture.run_for(seconds(300)),
            0,
            "no orphan must be written before the targets have been read"
        );
        fixture.set_live(3, active(1));
        fixture.complete_first_sync(all);
        assert_eq!(fixture.run_for(ORPHAN_DELAY / 2), 0);
        fixture.run_for(ORPHAN_DELAY);
        fixture.written.sort();
        assert_eq!(fixture.actions(), want);
        assert!(fixture.written.iter().all(|(name, _)| name != "op-3"));
    }
}

#[tokio::test(start_paused = true)]
async fn completed_orphans_are_limited_by_age_and_number() {
    let time = |hours: i64| {
        let time = clock::now() - jiff::SignedDuration::from_hours(hours);
        time.to_string()
    };
    let mut fixture = QueueFixture::new(SETTINGS);
    fixture.set_live(1, completed(1));
    fixture.run_for(seconds(1));
    fixture.now += COMPARE_INTERVAL;
    let mut all = vec![listed(1, completed(1), Some(&time(1)))];
    // The settings retain three completed operations. `op-1` is in the index and counts as one of
    // them. So the newest two orphans stay: `op-2` and `op-3`. The orphan `op-5` ended more than a
    // day ago, so it would not stay in any case.
    for (number, hours) in [(2, 2), (3, 3), (4, 4), (5, 30)] {
        all.push(listed(number, completed(1), Some(&time(hours))));
    }
    fixture.compare(all);
    fixture.written.clear();
    fixture.run_for(seconds(10));
    fixture.written.sort();
    let deleted = [("op-4".to_owned(), "delete"), ("op-5".to_owned(), "delete")];
    assert_eq!(fixture.written, deleted);
}

#[tokio::test(start_paused = true)]
async fn active_custom_resources_deleted_by_other_clients_are_written_again() {
    let mut fixture = QueueFixture::new(SETTINGS);
    fixture.set_live(1, active(1));
    fixture.run_for(seconds(1));
    fixture.now += COMPARE_INTERVAL;
    fixture.compare(Vec::new());
    assert_eq!(fixture.run_for(seconds(1)), 1);
}

#[tokio::test(start_paused = true)]
async fn completed_custom_resources_deleted_by_other_clients_stay_deleted_unless_the_crd_was_deleted()
 {
    let mut fixture = QueueFixture::new(SETTINGS);
    fixture.set_live(1, active(1));
    fixture.run_for(seconds(1));
    fixture.set_live(1, completed(2));
    fixture.run_for(seconds(1));
    fixture.now += COMPARE_INTERVAL;
    fixture.compare(Vec::new());
    assert_eq!(fixture.run_for(seconds(1)), 0);
    fixture.set_live(2, active(1));
    let job = fixture.next_job().unwrap();
    fixture.fail(&job, &StoreFailure::CrdMissing);
    fixture.now += seconds(60);
    fixture.compare(Vec::new());
    assert_eq!(fixture.run_for(seconds(1)), 2);
}

#[tokio::test(start_paused = true)]
async fn after_missed_changes_the_whole_index_is_compared() {
    let mut fixture = QueueFixture::new(SETTINGS);
    for number in 0..3 {
        fixture.set_live(number, active(1));
    }
    fixture.run_for(seconds(40));
    fixture.written.clear();
    let now = [(0, active(1)), (1, completed(2)), (3, active(1))];
    let all = now.map(|(number, summary)| (name(number), fixture.entry.clone(), summary));
    fixture.queue.reset(all.to_vec(), fixture.now);
    fixture.run_for(seconds(1));
    fixture.written.sort();
    let want = [("op-1", "change"), ("op-2", "delete"), ("op-3", "create")];
    assert_eq!(
        fixture.written,
        want.map(|(name, verb)| (name.to_owned(), verb))
    );
}

#[tokio::test(start_paused = true)]
async fn at_shutdown_delayed_changes_are_written() {
    let mut fixture = QueueFixture::new(SETTINGS);
    for number in 0..3 {
        fixture.set_live(number, active(1));
    }
    fixture.run_for(seconds(1));
    fixture.set_live(0, active(2));
    fixture.set_live(1, settling(2));
    assert_eq!(fixture.run_for(seconds(1)), 0);
    assert!(!fixture.queue.is_drained());
    fixture.queue.stop(AtStop::WriteAll, fixture.now);
    assert!(!fixture.queue.is_drained());
    assert_eq!(fixture.run_for(seconds(1)), 2);
    assert!(fixture.queue.is_drained());
}

#[tokio::test(start_paused = true)]
async fn at_shutdown_failed_writes_are_retried() {
    let mut fixture = QueueFixture::new(SETTINGS);
    fixture.set_live(1, active(1));
    fixture.queue.stop(AtStop::WriteAll, fixture.now);
    let job = fixture.next_job().unwrap();
    fixture.fail(&job, &unreachable());
    assert!(!fixture.queue.is_drained());
    assert_eq!(fixture.run_for(seconds(1)), 1);
    assert!(fixture.queue.is_drained());
}

#[tokio::test(start_paused = true)]
async fn at_shutdown_writes_that_back_off_are_retried_at_once_and_then_each_second() {
    let mut fixture = QueueFixture::new(SETTINGS);
    fixture.set_live(1, active(1));
    let invalid = StoreFailure::Invalid("no".into());
    for _ in 0..9 {
        let at = match fixture.queue.next(fixture.now) {
            Next::StartJob(job) => {
                fixture.fail(&job, &invalid);
                continue;
            }
            Next::Wait(Some(at)) => at,
            other => panic!("{other:?}"),
        };
        fixture.now = at;
    }
    fixture.queue.stop(AtStop::WriteAll, fixture.now);
    for _ in 0..3 {
        let job = fixture
            .next_job()
            .expect("the write is retried each second");
        fixture.fail(&job, &invalid);
        assert!(!fixture.queue.is_drained());
        fixture.now += write_rate::MAX_DRAINING_DELAY;
    }
    assert_eq!(fixture.run_for(seconds(1)), 1);
    assert!(fixture.queue.is_drained());
}

#[tokio::test(start_paused = true)]
async fn a_second_comparison_runs_some_time_after_the_start() {
    let mut fixture = QueueFixture::before_first_sync(SETTINGS);
    assert!(
        fixture.next_job().is_none(),
        "no job must start before the targets have been read"
    );
    fixture
        .queue
        .set_unsynced_rule_sets(Arc::default(), fixture.now);
    let first_sync = fixture.now;
    fixture.now += seconds(30);
    fixture.compare(Vec::new());
    assert_eq!(
        fixture.queue.compare_at,
        Some(first_sync + SECOND_COMPARE_DELAY)
    );
    fixture.now = first_sync + SECOND_COMPARE_DELAY;
    fixture.compare(Vec::new());
    assert_eq!(
        fixture.queue.compare_at,
        Some(fixture.now + COMPARE_INTERVAL)
    );
}

#[tokio::test(start_paused = true)]
async fn a_completed_operation_without_a_custom_resource_is_written_unless_it_was_completed_long_ago()
 {
    let mut fixture = QueueFixture::before_first_sync(SETTINGS);
    for number in 1..=3 {
        fixture.set_live(number, completed(2));
    }
    // `op-6` ended just before the failover, so the previous leader had no time to write it.
    let minute_ago = clock::now() - jiff::SignedDuration::from_mins(1);
    let recent = entry(&minute_ago.to_string());
    fixture
        .queue
        .set_live(&name(6), &recent, completed(2), fixture.now);
    // The operations `op-1`, `op-2` and `op-3` ended long ago. `op-1` has no custom resource. The
    // custom resource of `op-2` is completed, and the custom resource of `op-3` is active.
    fixture.complete_first_sync(vec![
        listed(2, completed(2), Some("2026-01-02T03:04:05Z")),
        listed(3, active(1), None),
    ]);
    // The queue sees the start and the end of `op-4`, and the end of `op-5`. Both ends come after
    // the first comparison, so neither operation counts as old. Both operations are written.
    fixture.set_live(4, active(1));
    fixture.set_live(4, completed(2));
    fixture.set_live(5, completed(2));
    fixture.run_for(seconds(60));
    fixture.written.sort();
    let want = [
        ("op-3", "change"),
        ("op-4", "create"),
        ("op-5", "create"),
        ("op-6", "create"),
    ];
    assert_eq!(
        fixture.written,
        want.map(|(name, verb)| (name.to_owned(), verb))
    );
}

#[tokio::test(start_paused = true)]
async fn orphans_of_unsynced_rule_sets_wait_and_those_of_deleted_namespaces_do_not() {
    for retain in [true, false] {
        let mut fixture = QueueFixture::before_first_sync(PersistSettings { retain, ..SETTINGS });
        let mut namespace_deleted = listed(2, active(1), None);
        namespace_deleted.namespace_deleted = true;
        let mut history = listed(3, completed(1), Some(&clock::now().to_string()));
        history.namespace_deleted = true;
        let all = vec![listed(1, active(1), None), namespace_deleted, history];
        fixture.complete_first_sync_except(&["others", "rules"], all);
        fixture.run_for(seconds(60));
        fixture.written.sort();
        let deleted = ["op-2", "op-3"].map(|name| (name.to_owned(), "delete"));
        assert_eq!(fixture.written, deleted);
        fixture.written.clear();
        fixture.complete_first_sync_except(&["others"], vec![listed(1, active(1), None)]);
        fixture.run_for(seconds(60));
        let want = if retain { "end" } else { "delete" };
        assert_eq!(fixture.written, [("op-1".to_owned(), want)]);
        // No orphan is undecided, so a change of the unsynced rule sets starts no comparison.
        fixture
            .queue
            .set_unsynced_rule_sets(Arc::default(), fixture.now);
        assert!(fixture.next_job().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_write_waits_for_the_resync() {
    let mut fixture = QueueFixture::new(SETTINGS);
    fixture.set_live(1, active(1));
    let job = fixture.next_job().unwrap();
    fixture.set_live(1, active(2));
    fixture.now += seconds(1);
    fixture.succeed(&job);
    assert_eq!(fixture.run_for(seconds(29)), 0);
    assert_eq!(fixture.run_for(seconds(1)), 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_conflict_or_a_lost_answer_the_object_is_read_before_the_next_write() {
    for failure in [StoreFailure::Conflict("changed".into()), unreachable()] {
        let mut fixture = QueueFixture::new(SETTINGS);
        fixture.set_live(1, active(1));
        let job = fixture.next_job().unwrap();
        assert_eq!(action(&job), "create");
        fixture.fail(&job, &failure);
        assert!(
            fixture.next_job().is_none(),
            "the next attempt must wait for the back-off"
        );
        fixture.now += seconds(1);
        let job = fixture.next_job().unwrap();
        assert_eq!(action(&job), "read");
        // The custom resource exists. For example, the creation succeeded, but its answer was lost.
        let found = JobResult::Read(Some((active(1), revision(7))));
        fixture
            .queue
            .process_result(&job.name, &Ok(found), fixture.now);
        assert_eq!(fixture.run_for(seconds(59)), 0);

        fixture.queue.compare_at = Some(fixture.now + COMPARE_INTERVAL);
        fixture.set_live(1, completed(2));
        let job = fixture.next_job().unwrap();
        assert_eq!(
            (action(&job), condition(&job)),
            ("change", Some(&revision(7)))
        );
        fixture.fail(&job, &failure);
        fixture.set_gone(1);
        fixture.now += seconds(1);
        let job = fixture.next_job().unwrap();
        assert_eq!(action(&job), "read");
        let found = JobResult::Read(Some((completed(3), revision(8))));
        fixture
            .queue
            .process_result(&job.name, &Ok(found), fixture.now);
        let job = fixture.next_job().unwrap();
        assert_eq!(
            (action(&job), condition(&job)),
            ("delete", Some(&revision(8)))
        );
        fixture.succeed(&job);
        assert!(fixture.queue.entries.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_comparison_writes_only_custom_resources_that_another_client_has_changed() {
    let mut fixture = QueueFixture::new(SETTINGS);
    fixture.set_live(1, active(1));
    fixture.run_for(seconds(1));
    for (version, writes) in [(1, 0), (5, 1)] {
        // The summary of the listed custom resource differs from the summary of the queue entry.
        // This happens, for example, if the custom resource has labels of another client. The queue
        // itself has written revision 1, so only revision 5 is a change by another client.
        let other = ListedResource {
            revision: revision(version),
            ..listed(1, active(8), None)
        };
        fixture.now += COMPARE_INTERVAL;
        fixture.compare(vec![other]);
        assert_eq!(fixture.run_for(seconds(60)), writes);
    }
}

#[tokio::test(start_paused = true)]
async fn an_orphan_that_is_detected_again_is_not_completed() {
    let mut fixture = QueueFixture::new(SETTINGS);
    fixture.now += COMPARE_INTERVAL;
    fixture.compare(vec![listed(1, active(1), None)]);
    fixture.run_for(seconds(1));
    fixture.set_live(1, active(1));
    assert_eq!(fixture.run_for(seconds(60)), 0);
}

#[tokio::test(start_paused = true)]
async fn an_orphan_with_a_conflict_is_read_again() {
    let conflict = StoreFailure::Conflict("changed".into());
    for retain in [true, false] {
        let mut fixture = QueueFixture::before_first_sync(PersistSettings { retain, ..SETTINGS });
        fixture.complete_first_sync(vec![listed(1, active(1), None)]);
        fixture.now += ORPHAN_DELAY;
        let job = fixture.next_job().unwrap();
        fixture.fail(&job, &conflict);
        fixture.now += seconds(1);
        let job = fixture.next_job().unwrap();
        let phase = if retain {
            // A job that completes an orphan first reads the custom resource. Here, the job finds
            // that another client has completed the custom resource.
            assert_eq!(action(&job), "end");
            completed(2)
        } else {
            assert_eq!(action(&job), "read");
            active(2)
        };
        let found = JobResult::Read(Some((phase, revision(9))));
        fixture
            .queue
            .process_result(&job.name, &Ok(found), fixture.now);
        fixture.run_for(seconds(59));
        let deleted = [("op-1".to_owned(), "delete")];
        let want: &[_] = if retain { &[] } else { &deleted };
        assert_eq!(fixture.written, want);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handover_starts_no_writes_and_waits_for_writes_in_flight() {
    let mut fixture = QueueFixture::new(SETTINGS);
    for number in 0..10 {
        fixture.set_live(number, active(1));
    }
    let sent = fixture.next_job().unwrap();
    fixture.queue.stop(AtStop::HandOver, fixture.now);
    assert!(fixture.next_job().is_none());
    assert!(!fixture.queue.is_drained());
    fixture.now += COMPARE_INTERVAL;
    assert!(
        fixture.next_job().is_none(),
        "no comparison must start after a handover"
    );
    fixture.succeed(&sent);
    assert!(fixture.queue.is_drained());
    assert!(fixture.next_job().is_none());
}
