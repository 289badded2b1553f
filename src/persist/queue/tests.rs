//! Tests of the queue of custom resources that must be written. The tests run on tokio's paused
//! clock and without a kube-apiserver. They pass the simulated time and the results of jobs to the
//! queue.

use super::compare::{ORPHAN_DELAY, SECOND_COMPARE_DELAY};
use super::*;
use crate::clock;
use ifo_api::{Text, example};
use serde_json::json;

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

type Operation = Arc<InFlightOperation>;

/// Returns an operation whose message is `message`.
fn operation(state: &str, message: u64, completed: Option<&str>) -> Operation {
    let phase = if completed.is_some() {
        "Completed"
    } else {
        "Active"
    };
    Arc::new(example::operation(&json!({"status": {
        "phase": phase, "state": state, "message": message.to_string(), "completed": completed,
    }})))
}

fn active(message: u64) -> Operation {
    operation("Progressing", message, None)
}

fn settling(message: u64) -> Operation {
    operation("Settling", message, None)
}

fn completed(message: u64) -> Operation {
    operation("Ended", message, Some("2026-01-02T03:04:05Z"))
}

fn revision(number: u128) -> Revision {
    Revision {
        uid: "1".to_owned(),
        resource_version: number.to_string(),
    }
}

fn unreachable() -> StoreFailure {
    StoreFailure::Unreachable("away".into())
}

/// Returns a short name for the action of `job`.
fn action(job: &Job) -> &'static str {
    match (&job.wanted, &job.stored) {
        (_, StoredState::Unknown) => "read",
        (Some(_), StoredState::Absent) => "create",
        (Some(_), StoredState::Present { .. }) => "change",
        (None, _) => "delete",
    }
}

/// A queue, the simulated time, and the writes so far. Each write has the name of its custom resource and its action.
struct QueueFixture {
    queue: Queue,
    now: Instant,
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

    fn set_live(&mut self, number: usize, operation: &Operation) {
        self.queue.set_live(&name(number), operation, self.now);
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
        self.written.push((job.name.to_string(), action(job)));
        let revision = job.wanted.as_ref().map(|_| revision(1));
        self.queue.process_result(job, Ok(revision), self.now);
    }

    fn fail(&mut self, job: &Job, failure: &StoreFailure) {
        self.queue
            .process_result(job, Err(failure.clone()), self.now);
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

fn listed(number: usize, operation: &Operation) -> ListedResource {
    ListedResource {
        name: name(number),
        revision: revision(9),
        operation: InFlightOperation::clone(operation),
        namespace_deleted: false,
    }
}

#[tokio::test(start_paused = true)]
async fn without_retention_the_custom_resource_is_deleted_at_the_end() {
    let mut fixture = QueueFixture::new(PersistSettings {
        retain: false,
        ..SETTINGS
    });
    fixture.set_live(1, &active(1));
    fixture.run_for(seconds(1));
    fixture.set_live(1, &completed(2));
    assert_eq!(fixture.run_for(seconds(1)), 0);
    fixture.set_gone(1);
    fixture.run_for(seconds(1));
    assert_eq!(fixture.actions(), ["create", "delete"]);
    assert!(fixture.queue.entries.is_empty());
}

#[tokio::test(start_paused = true)]
async fn changes_of_an_active_operation_are_written_once_per_resync() {
    let mut fixture = QueueFixture::new(SETTINGS);
    fixture.set_live(1, &active(0));
    fixture.run_for(seconds(1));
    for digest in 1..=290 {
        fixture.set_live(1, &active(digest));
        fixture.run_for(seconds(1));
    }
    let writes = fixture.written.len() - 1;
    assert!((9..=10).contains(&writes), "{writes}");
    fixture.run_for(seconds(60));
    assert!(fixture.queue.entries[&name(1)].due.is_none());
}

#[tokio::test(start_paused = true)]
async fn short_settling_is_not_written_and_long_settling_is_written_once() {
    let mut fixture = QueueFixture::new(SETTINGS);
    fixture.set_live(1, &active(1));
    fixture.run_for(seconds(1));
    for _ in 0..10 {
        fixture.set_live(1, &settling(2));
        assert_eq!(fixture.run_for(seconds(20)), 0);
        fixture.set_live(1, &active(1));
        assert_eq!(fixture.run_for(seconds(20)), 0);
    }
    fixture.set_live(1, &settling(2));
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
        .record_failure(Some(seconds(60)), fixture.now);
    for number in 0..10_000 {
        fixture.set_live(number, &active(1));
        fixture.set_gone(number);
    }
    assert!(fixture.queue.entries.is_empty() && fixture.queue.waiting.is_empty());
    fixture.now = until;
    assert_eq!(fixture.run_for(seconds(60)), 0);
}

#[tokio::test(start_paused = true)]
async fn waiting_writes_are_sent_in_order_at_the_rate_limit() {
    let mut fixture = QueueFixture::new(SETTINGS);
    for number in 0..1_000 {
        fixture.set_live(number, &active(1));
        fixture.now += Duration::from_millis(1);
    }
    // A queue entry that changes while it waits keeps its position.
    fixture.set_live(0, &active(2));
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
        fixture.set_live(number, &active(1));
    }
    let jobs: Vec<Job> = std::iter::from_fn(|| fixture.next_job()).collect();
    assert_eq!(jobs.len(), CONCURRENCY);
    // If an operation changes while its write is running, the change is written afterwards. So the
    // four operations with a running write are written twice, and the other six operations once.
    for number in 0..10 {
        fixture.set_live(number, &completed(2));
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
        fixture.set_live(number, &active(1));
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
        fixture.set_live(number, &active(1));
    }
    let job = fixture.next_job().unwrap();
    fixture.fail(&job, &StoreFailure::Throttled(seconds(17)));
    assert_eq!(fixture.run_for(Duration::from_millis(16_999)), 0);
    assert_eq!(fixture.run_for(seconds(1)), 4);
}

#[tokio::test(start_paused = true)]
async fn a_refused_object_backs_off_without_delaying_others() {
    let mut fixture = QueueFixture::new(SETTINGS);
    fixture.set_live(1, &active(1));
    let (start, mut attempts) = (fixture.now, 0);
    while fixture.now < start + seconds(590) {
        match fixture.queue.next(fixture.now) {
            Next::StartJob(job) if *job.name == *"op-1" => {
                attempts += 1;
                fixture.fail(&job, &StoreFailure::Invalid("no".into()));
                fixture.set_live(2, &active(attempts));
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
    fixture.set_live(1, &active(1));
    fixture.run_for(seconds(1));
    fixture.set_live(1, &completed(2));
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

#[tokio::test(start_paused = true)]
async fn failures_are_reported_after_ten_seconds_and_until_no_write_fails() {
    let mut fixture = QueueFixture::new(SETTINGS);
    let mut reasons = Vec::new();
    for (failure, number, wait) in [
        (StoreFailure::Forbidden("no".into()), 1, 0),
        (StoreFailure::Conflict, 2, 10),
        (StoreFailure::Forbidden("no".into()), 3, 0),
        (unreachable(), 4, 0),
        (StoreFailure::CrdMissing, 5, 0),
    ] {
        fixture.set_live(number, &active(1));
        let job = loop {
            match fixture.queue.next(fixture.now) {
                Next::StartJob(job) => break job,
                Next::Wait(at) => fixture.now = at.unwrap(),
                Next::Compare => panic!("unexpected comparison"),
            }
        };
        fixture.fail(&job, &failure);
        reasons.push(
            fixture
                .queue
                .verdict(fixture.now)
                .map_or("", |it| it.reason),
        );
        fixture.now += seconds(wait);
    }
    let forbidden = ["", "", "Forbidden", "Unavailable"];
    assert_eq!(reasons[..4], forbidden);
    assert_eq!(reasons[4], "CustomResourceDefinitionMissing");
    fixture.now += SETTINGS.requeue;
    fixture.compare(Vec::new());
    let reason = |fixture: &QueueFixture| {
        fixture
            .queue
            .verdict(fixture.now)
            .map_or("", |it| it.reason)
    };
    assert_eq!(reason(&fixture), "CustomResourceDefinitionMissing");
    fixture.run_for(seconds(60));
    assert_eq!(reason(&fixture), "Written");
}

#[tokio::test(start_paused = true)]
async fn an_active_operation_of_the_previous_leader_is_not_written_before_its_target_has_been_read()
{
    let over = listed(1, &completed(1));
    for is_completed in [true, false] {
        let mut fixture = QueueFixture::before_first_sync(SETTINGS);
        // The previous leader has written the end of `op-1` to its custom resource. The index still
        // has `op-1` as active.
        fixture.set_live(1, &active(1));
        fixture.set_live(2, &active(1));
        assert_eq!(fixture.run_for(seconds(60)), 0);
        if is_completed {
            fixture.set_live(1, &completed(1));
            // `op-2` has ended, too. It has no custom resource.
            fixture.set_live(2, &completed(2));
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
async fn orphans_of_a_killed_server_are_deleted_after_all_targets_have_been_read() {
    for (retain, want) in [
        (true, &["op-1", "op-2"][..]),
        (false, &["op-1", "op-2", "op-4"]),
    ] {
        let mut fixture = QueueFixture::before_first_sync(PersistSettings { retain, ..SETTINGS });
        let now = clock::now().to_string();
        let all = vec![
            listed(1, &active(1)),
            listed(2, &operation("Ended", 1, Some("2020-01-01T00:00:00Z"))),
            listed(3, &active(1)),
            listed(4, &operation("Ended", 1, Some(&now))),
        ];
        assert_eq!(
            fixture.run_for(seconds(300)),
            0,
            "no orphan must be written before the targets have been read"
        );
        fixture.set_live(3, &active(1));
        fixture.complete_first_sync(all);
        assert_eq!(fixture.run_for(ORPHAN_DELAY / 2), 0);
        fixture.run_for(ORPHAN_DELAY);
        fixture.written.sort();
        let deleted: Vec<_> = want
            .iter()
            .map(|name| ((*name).to_owned(), "delete"))
            .collect();
        assert_eq!(fixture.written, deleted);
    }
}

#[tokio::test(start_paused = true)]
async fn completed_orphans_are_limited_by_age_and_number() {
    let time = |hours: i64| {
        let time = clock::now() - jiff::SignedDuration::from_hours(hours);
        time.to_string()
    };
    let mut fixture = QueueFixture::new(SETTINGS);
    fixture.set_live(1, &completed(1));
    fixture.run_for(seconds(1));
    fixture.now += COMPARE_INTERVAL;
    let mut all = vec![listed(1, &completed(1))];
    // The settings retain three completed operations. `op-1` is in the index and counts as one of
    // them. So the newest two orphans stay: `op-2` and `op-3`. The orphan `op-5` ended more than a
    // day ago, so it would not stay in any case.
    for (number, hours) in [(2, 2), (3, 3), (4, 4), (5, 30)] {
        all.push(listed(number, &operation("Ended", 1, Some(&time(hours)))));
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
    fixture.set_live(1, &active(1));
    fixture.run_for(seconds(1));
    fixture.now += COMPARE_INTERVAL;
    fixture.compare(Vec::new());
    assert_eq!(fixture.run_for(seconds(1)), 1);
}

#[tokio::test(start_paused = true)]
async fn completed_custom_resources_deleted_by_other_clients_stay_deleted_unless_the_crd_was_deleted()
 {
    let mut fixture = QueueFixture::new(SETTINGS);
    fixture.set_live(1, &active(1));
    fixture.run_for(seconds(1));
    fixture.set_live(1, &completed(2));
    fixture.run_for(seconds(1));
    fixture.now += COMPARE_INTERVAL;
    fixture.compare(Vec::new());
    assert_eq!(fixture.run_for(seconds(1)), 0);
    fixture.set_live(2, &active(1));
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
        fixture.set_live(number, &active(1));
    }
    fixture.run_for(seconds(40));
    fixture.written.clear();
    let now = [(0, active(1)), (1, completed(2)), (3, active(1))];
    let all = now.map(|(number, operation)| (name(number), operation));
    fixture.queue.reset(&all.into(), fixture.now);
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
        fixture.set_live(number, &active(1));
    }
    fixture.run_for(seconds(1));
    fixture.set_live(0, &active(2));
    fixture.set_live(1, &settling(2));
    assert_eq!(fixture.run_for(seconds(1)), 0);
    fixture.queue.stop(fixture.now);
    assert_eq!(fixture.run_for(seconds(1)), 2);
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
        fixture.set_live(number, &completed(2));
    }
    // `op-6` ended just before the failover, so the previous leader had no time to write it.
    let minute_ago = clock::now() - jiff::SignedDuration::from_mins(1);
    let recent = operation("Ended", 2, Some(&minute_ago.to_string()));
    fixture.set_live(6, &recent);
    // The operations `op-1`, `op-2` and `op-3` ended long ago. `op-1` has no custom resource. The
    // custom resource of `op-2` is completed, and the custom resource of `op-3` is active.
    fixture.complete_first_sync(vec![listed(2, &completed(2)), listed(3, &active(1))]);
    // The queue sees the start and the end of `op-4`, and the end of `op-5`. Both ends come after
    // the first comparison, so neither operation counts as old. Both operations are written.
    fixture.set_live(4, &active(1));
    fixture.set_live(4, &completed(2));
    fixture.set_live(5, &completed(2));
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
        let mut namespace_deleted = listed(2, &active(1));
        namespace_deleted.namespace_deleted = true;
        let mut history = listed(3, &operation("Ended", 1, Some(&clock::now().to_string())));
        history.namespace_deleted = true;
        let all = vec![listed(1, &active(1)), namespace_deleted, history];
        fixture.complete_first_sync_except(&["others", "rules"], all);
        fixture.run_for(seconds(60));
        fixture.written.sort();
        let deleted = ["op-2", "op-3"].map(|name| (name.to_owned(), "delete"));
        assert_eq!(fixture.written, deleted);
        fixture.written.clear();
        fixture.complete_first_sync_except(&["others"], vec![listed(1, &active(1))]);
        fixture.run_for(seconds(60));
        assert_eq!(fixture.written, [("op-1".to_owned(), "delete")]);
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
    fixture.set_live(1, &active(1));
    let job = fixture.next_job().unwrap();
    fixture.set_live(1, &active(2));
    fixture.now += seconds(1);
    fixture.succeed(&job);
    assert_eq!(fixture.run_for(seconds(29)), 0);
    assert_eq!(fixture.run_for(seconds(1)), 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_conflict_or_a_lost_answer_the_object_is_read_before_the_next_write() {
    for failure in [StoreFailure::Conflict, unreachable()] {
        let mut fixture = QueueFixture::new(SETTINGS);
        fixture.set_live(1, &active(1));
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
        fixture.succeed(&job);
        fixture.queue.compare_at = Some(fixture.now + COMPARE_INTERVAL);
        assert_eq!(fixture.run_for(seconds(59)), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_comparison_writes_only_custom_resources_that_another_client_has_changed() {
    let mut fixture = QueueFixture::new(SETTINGS);
    fixture.set_live(1, &active(1));
    fixture.run_for(seconds(1));
    for (version, writes) in [(1, 0), (5, 1)] {
        // The queue itself has written revision 1, so only revision 5 is a change by another client.
        let other = ListedResource {
            revision: revision(version),
            ..listed(1, &active(8))
        };
        fixture.now += COMPARE_INTERVAL;
        fixture.compare(vec![other]);
        assert_eq!(fixture.run_for(seconds(60)), writes);
    }
}

#[tokio::test(start_paused = true)]
async fn an_orphan_that_is_detected_again_stays() {
    let mut fixture = QueueFixture::new(SETTINGS);
    fixture.now += COMPARE_INTERVAL;
    fixture.compare(vec![listed(1, &active(1))]);
    fixture.run_for(seconds(1));
    fixture.set_live(1, &active(1));
    fixture.run_for(seconds(60));
    assert_eq!(fixture.actions(), ["change"]);
}
