//! Tests of the queue of custom resources that must be written. The tests run on tokio's paused
//! clock and without a kube-apiserver. They pass the simulated time and the results of jobs to the
//! queue.

use super::compare::{ORPHAN_DELAY, SECOND_COMPARE_DELAY};
use super::listed::ListedResource;
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

/// A queue, the operations in the index, the simulated time, and the writes so far. Each write has the
/// name of its custom resource and its action.
struct QueueFixture {
    queue: Queue,
    index: BTreeMap<Text, Operation>,
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
            index: BTreeMap::new(),
            now,
            written: Vec::new(),
        }
    }

    /// Reports that all targets have been listed, except the targets of the rule sets in
    /// `unsynced`. Then runs a comparison that finds the custom resources `found`. Schedules the
    /// next comparison after [`COMPARE_INTERVAL`], so that no comparison runs earlier.
    fn complete_first_sync_except(&mut self, unsynced: &[&str], found: Vec<ListedResource>) {
        let unsynced = unsynced.iter().map(|name| (*name).to_owned()).collect();
        self.queue.update(&self.index, self.now);
        self.queue
            .set_unsynced_rule_sets(Arc::new(unsynced), self.now);
        self.compare(found);
        self.queue.compare_at = self.now + COMPARE_INTERVAL;
    }

    fn complete_first_sync(&mut self, found: Vec<ListedResource>) {
        self.complete_first_sync_except(&[], found);
    }

    fn set_live(&mut self, number: usize, operation: &Operation) {
        self.index.insert(name(number), operation.clone());
    }

    fn set_gone(&mut self, number: usize) {
        self.index.remove(&name(number));
    }

    fn compare(&mut self, found: Vec<ListedResource>) {
        assert!(self.queue.is_comparison_due(self.now));
        self.queue.update(&self.index, self.now);
        self.queue.process_list(found, self.now);
    }

    /// Begins a round. Returns its jobs. Panics if a comparison is due.
    fn jobs(&mut self) -> Vec<Job> {
        assert!(!self.queue.is_comparison_due(self.now));
        self.queue.update(&self.index, self.now);
        self.queue.due_jobs(false, self.now)
    }

    /// Begins a round with one job.
    fn job(&mut self) -> Job {
        let [job] = <[Job; 1]>::try_from(self.jobs()).unwrap();
        job
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

    /// Ends the round, and advances the time to the next round.
    fn end_round(&mut self) {
        self.now = self.queue.end_round(self.now);
    }

    /// Runs all rounds that begin within `time`. All jobs succeed. Returns the number of writes.
    fn run_for(&mut self, time: Duration) -> usize {
        let (end, before) = (self.now + time, self.written.len());
        while self.now <= end {
            for job in self.jobs() {
                self.succeed(&job);
            }
            self.end_round();
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
    fixture.set_live(1, &active(1));
    let job = fixture.job();
    fixture.fail(&job, &unreachable());
    fixture.end_round();
    fixture.set_gone(1);
    // The failed write may have had an effect, so the custom resource is deleted if it exists.
    for number in 2..10_000 {
        fixture.set_live(number, &active(1));
        fixture.set_gone(number);
    }
    assert_eq!(fixture.run_for(seconds(59)), 1);
    assert_eq!(fixture.actions(), ["read"]);
    assert!(fixture.queue.entries.is_empty());
}

#[tokio::test(start_paused = true)]
async fn waiting_writes_are_sent_in_order_at_the_rate_limit() {
    let mut fixture = QueueFixture::new(SETTINGS);
    for number in 0..500 {
        fixture.set_live(number, &active(1));
        fixture.queue.update(&fixture.index, fixture.now);
        fixture.queue.due_jobs(false, fixture.now);
        fixture.now += Duration::from_millis(1);
    }
    // An operation that changes while its write is due keeps its position.
    fixture.set_live(0, &active(2));
    fixture.jobs();
    let backlog = fixture.queue.backlog(fixture.now);
    assert_eq!(backlog, (500, seconds(1) / 2));
    assert_eq!(fixture.run_for(seconds(4)), 5 * WRITES_PER_ROUND);
    let number = |(name, _): &(String, _)| name[3..].parse::<usize>().unwrap();
    assert!(fixture.written.iter().map(number).is_sorted());
    fixture.run_for(seconds(6));
    assert_eq!(fixture.written.len(), 500);
}

#[tokio::test(start_paused = true)]
async fn the_attempts_during_an_outage_back_off() {
    let mut fixture = QueueFixture::new(SETTINGS);
    for number in 0..100 {
        fixture.set_live(number, &active(1));
    }
    let (start, mut attempts) = (fixture.now, 0);
    while fixture.now < start + seconds(600) {
        if let Some(job) = fixture.jobs().first() {
            attempts += 1;
            fixture.fail(job, &unreachable());
        }
        fixture.end_round();
    }
    // After some attempts, each back-off lasts 15 to 30 s. So there are at least 20 attempts in
    // 600 s, and not many more than 40.
    assert!((20..=60).contains(&attempts), "{attempts}");
    fixture.queue.compare_at = fixture.now + seconds(3600);
    fixture.run_for(seconds(400));
    assert_eq!(fixture.written.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn retry_after_delays_all_writes() {
    let mut fixture = QueueFixture::new(SETTINGS);
    for number in 0..4 {
        fixture.set_live(number, &active(1));
    }
    let (start, jobs) = (fixture.now, fixture.jobs());
    fixture.fail(&jobs[0], &StoreFailure::Throttled(seconds(17)));
    fixture.end_round();
    assert_eq!(fixture.now, start + seconds(17));
    assert_eq!(fixture.run_for(seconds(1)), 4);
}

#[tokio::test(start_paused = true)]
async fn a_refused_object_backs_off_without_delaying_others() {
    let mut fixture = QueueFixture::new(SETTINGS);
    fixture.set_live(1, &active(1));
    let (start, mut attempts) = (fixture.now, 0);
    while fixture.now < start + seconds(590) {
        for job in fixture.jobs() {
            if *job.name == *"op-1" {
                attempts += 1;
                fixture.fail(&job, &StoreFailure::Invalid("no".into()));
                fixture.set_live(2, &active(attempts));
            } else {
                fixture.succeed(&job);
            }
        }
        fixture.end_round();
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
    let (start, job) = (fixture.now, fixture.job());
    fixture.fail(&job, &StoreFailure::CrdMissing);
    fixture.end_round();
    assert_eq!(fixture.now, start + SETTINGS.requeue);
    assert!(fixture.queue.is_comparison_due(fixture.now));
    fixture
        .queue
        .process_list_failure(&StoreFailure::CrdMissing, fixture.now);
    fixture.end_round();
    assert_eq!(fixture.now, start + 2 * SETTINGS.requeue);
    // The CRD exists again, but all custom resources were deleted with the old CRD. So the queue
    // creates the custom resource again.
    fixture.compare(Vec::new());
    assert_eq!(action(&fixture.job()), "create");
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
        let jobs = fixture.jobs();
        let newest = jobs.iter().find(|job| job.name == name(number)).unwrap();
        fixture.fail(newest, &failure);
        reasons.push(
            fixture
                .queue
                .verdict(fixture.now)
                .map_or("", |it| it.reason),
        );
        fixture.queue.end_round(fixture.now);
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
    let job = fixture.job();
    fixture.fail(&job, &StoreFailure::CrdMissing);
    fixture.end_round();
    fixture.compare(Vec::new());
    assert_eq!(fixture.run_for(seconds(1)), 2);
}

#[tokio::test(start_paused = true)]
async fn operations_that_end_and_start_between_two_rounds_are_written() {
    let mut fixture = QueueFixture::new(SETTINGS);
    for number in 0..3 {
        fixture.set_live(number, &active(1));
    }
    fixture.run_for(seconds(40));
    fixture.written.clear();
    let now = [(0, active(1)), (1, completed(2)), (3, active(1))];
    fixture.index = now
        .map(|(number, operation)| (name(number), operation))
        .into();
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
    assert_eq!(fixture.queue.due_jobs(true, fixture.now).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_second_comparison_runs_some_time_after_the_start() {
    let mut fixture = QueueFixture::before_first_sync(SETTINGS);
    assert!(
        fixture.jobs().is_empty(),
        "no job must start before the targets have been read"
    );
    fixture
        .queue
        .set_unsynced_rule_sets(Arc::default(), fixture.now);
    let first_sync = fixture.now;
    fixture.now += seconds(30);
    fixture.compare(Vec::new());
    assert_eq!(fixture.queue.compare_at, first_sync + SECOND_COMPARE_DELAY);
    fixture.now = first_sync + SECOND_COMPARE_DELAY;
    fixture.compare(Vec::new());
    assert_eq!(fixture.queue.compare_at, fixture.now + COMPARE_INTERVAL);
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
    // The end of `op-5` comes after the first comparison, so `op-5` does not count as old.
    fixture.set_live(5, &completed(2));
    fixture.run_for(seconds(60));
    fixture.written.sort();
    let want = [("op-3", "change"), ("op-5", "create"), ("op-6", "create")];
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
        assert!(fixture.jobs().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_write_waits_for_the_resync() {
    let mut fixture = QueueFixture::new(SETTINGS);
    fixture.set_live(1, &active(1));
    let job = fixture.job();
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
        let job = fixture.job();
        assert_eq!(action(&job), "create");
        fixture.fail(&job, &failure);
        assert!(
            fixture.jobs().is_empty(),
            "the next attempt must wait for the back-off"
        );
        fixture.end_round();
        let job = fixture.job();
        assert_eq!(action(&job), "read");
        fixture.succeed(&job);
        fixture.queue.compare_at = fixture.now + COMPARE_INTERVAL;
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
