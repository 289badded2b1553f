//! Tests of the queue under virtual time, without a store.

use super::compare::{ORPHAN_DELAY, SECOND_COMPARE_DELAY};
use super::*;
use crate::clock;
use crate::index::{Bounds, Key, VersionAssignment, Write, index};
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

fn name(number: usize) -> Arc<str> {
    format!("op-{number}").into()
}

/// An operation in an index, completed at this time if one is given. The queue reads no other
/// fields.
fn entry(completed: &str) -> Arc<IndexEntry> {
    let bounds = Bounds {
        bytes: 1 << 20,
        age: seconds(60),
    };
    let (mut writer, reader) = index(bounds);
    let key = Key::new("a", "x");
    let status = json!({
        "phase": "Completed", "state": "Ended", "reason": "NotDetected", "completed": completed,
        "startTimeSource": "Detected", "lastDetected": "2026-01-01T03:04:05Z",
    });
    let object = json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "InFlightOperation",
        "metadata": {"name": "x", "namespace": "a"}, "status": status,
        "spec": {
            "operation": "Migrating", "ruleSet": "rules", "component": "kubevirt",
            "subject": {"apiVersion": "v1", "kind": "VM", "name": "vm"},
        },
    });
    let json = serde_json::to_vec(&object).unwrap();
    let put = Write::Put {
        key: key.clone(),
        json,
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

/// Describes the action of `job`.
fn verb(job: &Job) -> &'static str {
    match (&job.wanted, &job.stored) {
        (WantedState::Ended, _) => "end",
        (WantedState::Live(..), StoredState::Absent) => "create",
        (WantedState::Live(..), StoredState::Present(..)) => "change",
        (WantedState::Gone, StoredState::Present(..)) => "delete",
        _ => "read",
    }
}

/// The state that `job` requires.
fn condition(job: &Job) -> Option<&Revision> {
    match &job.stored {
        StoredState::Present(_, revision, _) => Some(revision),
        _ => None,
    }
}

/// A queue, the time, and its steps so far.
struct Bench {
    queue: Queue,
    now: Instant,
    entry: Arc<IndexEntry>,
    written: Vec<(String, &'static str)>,
}

impl Bench {
    /// A queue after the first comparison, which found nothing in the cluster.
    fn new(settings: PersistSettings) -> Self {
        let mut bench = Self::unsettled(settings);
        bench.settle(Vec::new());
        bench
    }

    fn unsettled(settings: PersistSettings) -> Self {
        let now = Instant::now();
        Self {
            queue: Queue::new(settings, now),
            now,
            entry: entry("2026-01-02T03:04:05Z"),
            written: Vec::new(),
        }
    }

    /// Reports that all targets have been read except those of `unread`. Then runs the first
    /// comparison. The next comparison runs when a test requests it.
    fn settle_except(&mut self, unread: &[&str], found: Vec<ListedResource>) {
        let unread = unread.iter().map(|name| (*name).to_owned()).collect();
        self.queue.settle(Arc::new(unread), self.now);
        self.compare(found);
        self.queue.compare_at = Some(self.now + COMPARE_INTERVAL);
    }

    fn settle(&mut self, found: Vec<ListedResource>) {
        self.settle_except(&[], found);
    }

    fn live(&mut self, number: usize, summary: WrittenSummary) {
        self.queue
            .live(&name(number), &self.entry, summary, self.now);
    }

    fn gone(&mut self, number: usize) {
        self.queue.gone(&name(number), self.now);
    }

    fn compare(&mut self, found: Vec<ListedResource>) {
        assert!(matches!(self.queue.next(self.now), Next::Compare));
        self.queue.compared(found, self.now);
    }

    /// The next job, if one is due now.
    fn job(&mut self) -> Option<Job> {
        match self.queue.next(self.now) {
            Next::Write(job) => Some(job),
            Next::Compare => panic!("no comparison is due"),
            Next::Wait(_) => None,
        }
    }

    fn succeed(&mut self, job: &Job) {
        let written = |summary, version| JobResult::Written(Some((summary, revision(version))));
        let summary = match &job.wanted {
            WantedState::Live(_, summary, _) => *summary,
            _ => completed(99),
        };
        let verb = verb(job);
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
        self.queue.done(&job.name, &Ok(done), self.now);
    }

    fn fail(&mut self, job: &Job, failure: &StoreFailure) {
        self.queue.done(&job.name, &Err(failure.clone()), self.now);
    }

    /// Lets all jobs succeed that become due within `time`.
    fn pass(&mut self, time: Duration) -> usize {
        let (end, before) = (self.now + time, self.written.len());
        loop {
            match self.queue.next(self.now) {
                Next::Write(job) => self.succeed(&job),
                Next::Compare => panic!("no comparison is due"),
                Next::Wait(Some(at)) if at <= end => self.now = at,
                Next::Wait(_) => break,
            }
        }
        self.now = end;
        self.written.len() - before
    }

    fn verbs(&self) -> Vec<&'static str> {
        self.written.iter().map(|(_, verb)| *verb).collect()
    }
}

fn found(number: usize, summary: WrittenSummary, completed: Option<&str>) -> ListedResource {
    ListedResource {
        name: name(number),
        revision: revision(9),
        summary,
        completed: completed.map(|time| time.parse().unwrap()),
        last_seen_in: None,
        namespace_deleted: false,
        rule_sets: vec!["rules".to_owned()],
    }
}

#[tokio::test(start_paused = true)]
async fn an_ordinary_operation_takes_two_writes() {
    let mut bench = Bench::new(SETTINGS);
    bench.live(1, active(1));
    assert_eq!(bench.pass(seconds(60)), 1);
    bench.live(1, settling(2));
    assert_eq!(bench.pass(seconds(30)), 0);
    bench.live(1, completed(3));
    assert_eq!(bench.pass(seconds(1)), 1);
    assert_eq!(bench.verbs(), ["create", "change"]);
    bench.gone(1);
    assert_eq!(bench.pass(seconds(1)), 1);
    assert!(bench.queue.records.is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_retention_the_second_write_is_the_deletion() {
    let mut bench = Bench::new(PersistSettings {
        retain: false,
        ..SETTINGS
    });
    bench.live(1, active(1));
    bench.pass(seconds(1));
    bench.live(1, completed(2));
    assert_eq!(bench.pass(seconds(1)), 0);
    bench.gone(1);
    bench.pass(seconds(1));
    assert_eq!(bench.verbs(), ["create", "delete"]);
    assert!(bench.queue.records.is_empty());
}

#[tokio::test(start_paused = true)]
async fn intermediate_changes_are_written_once_per_resync() {
    let mut bench = Bench::new(SETTINGS);
    bench.live(1, active(0));
    bench.pass(seconds(1));
    for digest in 1..=290 {
        bench.live(1, active(digest));
        bench.pass(seconds(1));
    }
    let writes = bench.written.len() - 1;
    assert!((9..=10).contains(&writes), "{writes}");
    bench.pass(seconds(60));
    let stored = &bench.queue.records[&name(1)].stored;
    assert!(matches!(stored, StoredState::Present(summary, ..) if *summary == active(290)));
}

#[tokio::test(start_paused = true)]
async fn a_flap_is_not_written_and_a_long_settling_is_written_once() {
    let mut bench = Bench::new(SETTINGS);
    bench.live(1, active(1));
    bench.pass(seconds(1));
    for _ in 0..10 {
        bench.live(1, settling(2));
        assert_eq!(bench.pass(seconds(20)), 0);
        bench.live(1, active(1));
        assert_eq!(bench.pass(seconds(20)), 0);
    }
    bench.live(1, settling(2));
    assert_eq!(bench.pass(seconds(59)), 0);
    assert_eq!(bench.pass(seconds(100)), 1);
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_ends_before_its_turn_is_never_written() {
    let mut bench = Bench::new(SETTINGS);
    let until = bench.now + seconds(60);
    bench.queue.pace.failed(Some(seconds(60)), bench.now);
    for number in 0..10_000 {
        bench.live(number, active(1));
        bench.gone(number);
    }
    assert!(bench.queue.records.is_empty() && bench.queue.waiting.iter().all(BTreeSet::is_empty));
    bench.now = until;
    assert_eq!(bench.pass(seconds(60)), 0);
}

#[tokio::test(start_paused = true)]
async fn a_backlog_is_written_in_order_at_the_rate_limit() {
    let mut bench = Bench::new(SETTINGS);
    for number in 0..1_000 {
        bench.live(number, active(1));
        bench.now += Duration::from_millis(1);
    }
    // Records that change while they wait keep their position.
    bench.live(0, active(2));
    let backlog = bench.queue.backlog(bench.now);
    assert_eq!(backlog, (1_000, Some(bench.now - seconds(1))));
    bench.pass(seconds(10));
    let done = bench.written.len();
    assert!((550..=650).contains(&done), "{done}");
    assert_eq!(bench.written[0].0, "op-0");
    assert!(
        bench
            .written
            .iter()
            .map(|(name, _)| name[3..].parse::<usize>().unwrap())
            .is_sorted()
    );
    bench.pass(seconds(10));
    assert_eq!(bench.written.len(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn concurrent_writes_are_limited_and_never_of_one_object() {
    let mut bench = Bench::new(SETTINGS);
    for number in 0..10 {
        bench.live(number, active(1));
    }
    let jobs: Vec<Job> = std::iter::from_fn(|| bench.job()).collect();
    assert_eq!(jobs.len(), CONCURRENCY);
    // Changes during the write wait for its end.
    for number in 0..10 {
        bench.live(number, completed(2));
    }
    assert!(bench.job().is_none());
    for job in &jobs {
        bench.succeed(job);
    }
    bench.pass(seconds(10));
    assert_eq!(bench.written.len(), 10 + CONCURRENCY);
}

#[tokio::test(start_paused = true)]
async fn during_an_outage_one_write_at_a_time_is_tried() {
    let mut bench = Bench::new(SETTINGS);
    for number in 0..100 {
        bench.live(number, active(1));
    }
    let start = bench.now;
    let mut attempts = 0;
    while bench.now < start + seconds(600) {
        match bench.queue.next(bench.now) {
            Next::Write(job) => {
                attempts += 1;
                bench.now += Duration::from_millis(1);
                bench.fail(&job, &unreachable());
            }
            Next::Compare => panic!("no comparison is due"),
            Next::Wait(at) => bench.now = at.unwrap(),
        }
    }
    // The interval is 15 to 30 s, except for the first few attempts.
    assert!((20..=60).contains(&attempts), "{attempts}");
    bench.queue.compare_at = Some(bench.now + seconds(3600));
    bench.pass(seconds(400));
    assert_eq!(bench.written.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn retry_after_delays_all_writes() {
    let mut bench = Bench::new(SETTINGS);
    for number in 0..4 {
        bench.live(number, active(1));
    }
    let job = bench.job().unwrap();
    bench.fail(&job, &StoreFailure::Throttled(seconds(17)));
    assert_eq!(bench.pass(Duration::from_millis(16_999)), 0);
    assert_eq!(bench.pass(seconds(1)), 4);
}

#[tokio::test(start_paused = true)]
async fn a_refused_object_backs_off_without_delaying_others() {
    let mut bench = Bench::new(SETTINGS);
    bench.live(1, active(1));
    let (start, mut attempts) = (bench.now, 0);
    while bench.now < start + seconds(590) {
        match bench.queue.next(bench.now) {
            Next::Write(job) if *job.name == *"op-1" => {
                attempts += 1;
                bench.fail(&job, &StoreFailure::Invalid("no".into()));
                bench.live(2, active(attempts));
            }
            Next::Write(job) => bench.succeed(&job),
            Next::Compare => panic!("no comparison is due"),
            Next::Wait(at) => bench.now = at.unwrap(),
        }
    }
    assert!((16..=28).contains(&attempts), "{attempts}");
    assert!(!bench.written.is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_the_crd_writes_pause_until_the_requeue_and_then_all_is_compared() {
    let mut bench = Bench::new(SETTINGS);
    bench.live(1, active(1));
    bench.pass(seconds(1));
    bench.live(1, completed(2));
    let job = bench.job().unwrap();
    bench.fail(&job, &StoreFailure::Missing);
    assert_eq!(bench.pass(seconds(59)), 0);
    bench.now += seconds(1);
    assert!(matches!(bench.queue.next(bench.now), Next::Compare));
    bench.queue.not_compared(&StoreFailure::Missing, bench.now);
    assert_eq!(bench.pass(seconds(59)), 0);
    bench.now += seconds(1);
    // The CRD exists again, without custom resources.
    bench.compare(Vec::new());
    assert_eq!(verb(&bench.job().unwrap()), "create");
}

/// Refuses the jobs for which `refuses` returns true, for `time`. Returns the number of refusals.
fn refuse(bench: &mut Bench, time: Duration, refuses: impl Fn(&Job) -> bool) -> usize {
    let forbidden = StoreFailure::Forbidden("no".into());
    let (end, mut refused) = (bench.now + time, 0);
    loop {
        match bench.queue.next(bench.now) {
            Next::Write(job) if refuses(&job) => {
                refused += 1;
                bench.fail(&job, &forbidden);
            }
            Next::Write(job) => bench.succeed(&job),
            Next::Compare => {
                let written = bench.written.iter().filter(|(_, verb)| *verb == "create");
                let there = written.map(|(name, _)| name[3..].parse().unwrap());
                let there = there.map(|number| found(number, active(1), None)).collect();
                bench.queue.compared(there, bench.now);
            }
            Next::Wait(Some(at)) if at < end => bench.now = at,
            Next::Wait(_) => break,
        }
    }
    bench.now = end;
    refused
}

#[tokio::test(start_paused = true)]
async fn while_all_writes_are_refused_few_are_tried_and_afterwards_all_are_written() {
    let mut bench = Bench::new(SETTINGS);
    for number in 0..500 {
        bench.live(number, active(1));
    }
    let refused = refuse(&mut bench, seconds(3), |_| true);
    assert!((10..30).contains(&refused), "{refused}");
    // A kube-apiserver that starts refuses requests for a short time.
    assert_eq!(bench.pass(seconds(15)), 500);

    let mut bench = Bench::new(SETTINGS);
    for number in 0..100 {
        bench.live(number, active(1));
    }
    let refused = refuse(&mut bench, seconds(300), |_| true);
    assert!((100..2_000).contains(&refused), "{refused}");
    assert!(bench.queue.is_refused());
    refuse(&mut bench, SETTINGS.requeue, |_| false);
    assert_eq!(bench.written.len(), 100);
    assert!(!bench.queue.is_refused());
}

#[tokio::test(start_paused = true)]
async fn an_object_refused_by_a_policy_delays_no_others() {
    let mut bench = Bench::new(SETTINGS);
    for number in 0..12 {
        bench.live(number, active(1));
    }
    bench.now += Duration::from_millis(1);
    bench.live(100, active(1));
    let refuses = |job: &Job| job.name.len() < "op-100".len();
    refuse(&mut bench, seconds(20), refuses);
    assert_eq!(bench.written, [("op-100".to_owned(), "create")]);
    let mut refused = 0;
    for number in 101..160 {
        bench.live(number, active(1));
        refused += refuse(&mut bench, seconds(1), refuses);
        assert_eq!(bench.written.len(), number - 99);
    }
    assert!(refused < 12 * 10, "{refused}");
    let refused = refuse(&mut bench, seconds(3000), refuses);
    assert!(refused < 12 * 110, "{refused}");
    assert!(bench.queue.is_refused());
    for number in 0..12 {
        bench.gone(number);
    }
    assert!(!bench.queue.is_refused());
    // The queue soon tests if requests succeed again.
    assert!(bench.queue.compare_at.unwrap() <= bench.now + SETTINGS.requeue);
}

#[tokio::test(start_paused = true)]
async fn many_refused_objects_delay_no_new_ones() {
    let mut bench = Bench::new(SETTINGS);
    for number in 0..400 {
        bench.live(number, active(1));
    }
    let refuses = |job: &Job| job.name.len() < "op-1000".len();
    refuse(&mut bench, seconds(200), refuses);
    assert!(bench.written.is_empty());
    for number in 1_000..1_030 {
        bench.live(number, active(1));
        let refused = refuse(&mut bench, seconds(1), refuses);
        assert!(refused > 0, "there are always some that are due again");
        assert_eq!(bench.written.len(), number - 999);
    }
}

#[tokio::test(start_paused = true)]
async fn refused_deletions_delay_no_others() {
    let mut bench = Bench::new(SETTINGS);
    for number in 0..20 {
        bench.live(number, active(1));
    }
    bench.pass(seconds(1));
    for number in 0..20 {
        bench.gone(number);
    }
    let refuses = |job: &Job| verb(job) == "delete";
    for number in 100..130 {
        bench.live(number, active(1));
        // At first, all requests may be refused.
        let time = if number == 100 { 20 } else { 1 };
        refuse(&mut bench, seconds(time), refuses);
        assert_eq!(bench.written.len(), 20 + number - 99);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_before_the_existing_custom_resources_are_listed() {
    let mut bench = Bench::unsettled(SETTINGS);
    bench.live(1, active(1));
    bench.live(2, active(1));
    assert_eq!(bench.pass(seconds(60)), 0);
    // The previous leader has written one of them already.
    bench.settle(vec![found(1, active(1), None)]);
    assert_eq!(bench.pass(seconds(60)), 1);
    assert_eq!(bench.written[0].0, "op-2");
}

#[tokio::test(start_paused = true)]
async fn an_active_operation_of_the_previous_leader_is_not_written_before_its_target_has_been_read()
{
    let over = found(1, completed(1), Some("2026-01-02T03:04:05Z"));
    for ends in [true, false] {
        let mut bench = Bench::unsettled(SETTINGS);
        // It has ended since then, and its end was written.
        bench.live(1, active(1));
        bench.live(2, active(1));
        assert_eq!(bench.pass(seconds(60)), 0);
        if ends {
            bench.live(1, completed(1));
            // This one has ended, too, and no client has written it.
            bench.live(2, completed(2));
            assert_eq!(bench.pass(seconds(1)), 0);
        }
        bench.settle(vec![over.clone()]);
        bench.pass(seconds(60));
        bench.written.sort();
        let want: &[&str] = if ends { &["op-2"] } else { &["op-1", "op-2"] };
        let written: Vec<&str> = bench.written.iter().map(|(name, _)| &**name).collect();
        assert_eq!(written, want);
        let verbs = if ends {
            ["create"].to_vec()
        } else {
            ["change", "create"].to_vec()
        };
        assert_eq!(bench.verbs(), verbs);
    }
}

#[tokio::test(start_paused = true)]
async fn orphans_of_a_killed_server_complete_once_all_targets_have_been_read() {
    let leftovers = || {
        vec![
            found(1, active(1), None),
            found(2, completed(1), Some("2020-01-01T00:00:00Z")),
        ]
    };
    for (retain, want) in [(true, ["end", "delete"]), (false, ["delete", "delete"])] {
        let mut bench = Bench::unsettled(PersistSettings { retain, ..SETTINGS });
        let mut all = leftovers();
        all.push(found(3, active(1), None));
        assert_eq!(bench.pass(seconds(300)), 0, "its feed may not be there yet");
        bench.live(3, active(1));
        bench.settle(all);
        assert_eq!(bench.pass(ORPHAN_DELAY / 2), 0);
        bench.pass(ORPHAN_DELAY);
        bench.written.sort();
        assert_eq!(bench.verbs(), want);
        assert!(bench.written.iter().all(|(name, _)| name != "op-3"));
    }
}

#[tokio::test(start_paused = true)]
async fn history_is_limited_by_age_and_number() {
    let time = |hours: i64| {
        let time = clock::now() - jiff::SignedDuration::from_hours(hours);
        time.to_string()
    };
    let mut bench = Bench::new(SETTINGS);
    bench.live(1, completed(1));
    bench.pass(seconds(1));
    bench.now += COMPARE_INTERVAL;
    let mut all = vec![found(1, completed(1), Some(&time(1)))];
    // Two more fit. The newest ones stay, and none is older than a day.
    for (number, hours) in [(2, 2), (3, 3), (4, 4), (5, 30)] {
        all.push(found(number, completed(1), Some(&time(hours))));
    }
    bench.compare(all);
    bench.written.clear();
    bench.pass(seconds(10));
    bench.written.sort();
    let deleted = [("op-4".to_owned(), "delete"), ("op-5".to_owned(), "delete")];
    assert_eq!(bench.written, deleted);
}

#[tokio::test(start_paused = true)]
async fn objects_deleted_by_others_are_written_again() {
    let mut bench = Bench::new(SETTINGS);
    bench.live(1, active(1));
    bench.pass(seconds(1));
    bench.now += COMPARE_INTERVAL;
    bench.compare(Vec::new());
    assert_eq!(bench.pass(seconds(1)), 1);
}

#[tokio::test(start_paused = true)]
async fn history_deleted_by_others_stays_deleted_unless_the_crd_was_deleted() {
    let mut bench = Bench::new(SETTINGS);
    bench.live(1, active(1));
    bench.pass(seconds(1));
    bench.live(1, completed(2));
    bench.pass(seconds(1));
    bench.now += COMPARE_INTERVAL;
    bench.compare(Vec::new());
    assert_eq!(bench.pass(seconds(1)), 0);
    bench.live(2, active(1));
    let job = bench.job().unwrap();
    bench.fail(&job, &StoreFailure::Missing);
    bench.now += seconds(60);
    bench.compare(Vec::new());
    assert_eq!(bench.pass(seconds(1)), 2);
}

#[tokio::test(start_paused = true)]
async fn after_falling_off_the_ring_the_whole_state_is_compared() {
    let mut bench = Bench::new(SETTINGS);
    for number in 0..3 {
        bench.live(number, active(1));
    }
    bench.pass(seconds(40));
    bench.written.clear();
    let now = [(0, active(1)), (1, completed(2)), (3, active(1))];
    let all = now.map(|(number, summary)| (name(number), bench.entry.clone(), summary));
    bench.queue.reset(all.to_vec(), bench.now);
    bench.pass(seconds(1));
    bench.written.sort();
    let want = [("op-1", "change"), ("op-2", "delete"), ("op-3", "create")];
    assert_eq!(
        bench.written,
        want.map(|(name, verb)| (name.to_owned(), verb))
    );
}

#[tokio::test(start_paused = true)]
async fn at_shutdown_delayed_changes_are_written() {
    let mut bench = Bench::new(SETTINGS);
    for number in 0..3 {
        bench.live(number, active(1));
    }
    bench.pass(seconds(1));
    bench.live(0, active(2));
    bench.live(1, settling(2));
    assert_eq!(bench.pass(seconds(1)), 0);
    assert!(!bench.queue.is_drained());
    bench.queue.stop(AtStop::WriteAll, bench.now);
    assert!(!bench.queue.is_drained());
    assert_eq!(bench.pass(seconds(1)), 2);
    assert!(bench.queue.is_drained());
}

#[tokio::test(start_paused = true)]
async fn at_shutdown_failed_writes_are_retried() {
    let mut bench = Bench::new(SETTINGS);
    bench.live(1, active(1));
    bench.queue.stop(AtStop::WriteAll, bench.now);
    let job = bench.job().unwrap();
    bench.fail(&job, &unreachable());
    assert!(!bench.queue.is_drained());
    assert_eq!(bench.pass(seconds(1)), 1);
    assert!(bench.queue.is_drained());
}

#[tokio::test(start_paused = true)]
async fn at_shutdown_backed_off_writes_are_retried_at_once_and_each_second() {
    let mut bench = Bench::new(SETTINGS);
    bench.live(1, active(1));
    let invalid = StoreFailure::Invalid("no".into());
    for _ in 0..9 {
        let at = match bench.queue.next(bench.now) {
            Next::Write(job) => {
                bench.fail(&job, &invalid);
                continue;
            }
            Next::Wait(Some(at)) => at,
            other => panic!("{other:?}"),
        };
        bench.now = at;
    }
    bench.queue.stop(AtStop::WriteAll, bench.now);
    for _ in 0..3 {
        let job = bench.job().expect("it has another try");
        bench.fail(&job, &invalid);
        assert!(!bench.queue.is_drained());
        bench.now += rate_limit::MAX_DRAINING_DELAY;
    }
    assert_eq!(bench.pass(seconds(1)), 1);
    assert!(bench.queue.is_drained());
}

#[tokio::test(start_paused = true)]
async fn a_second_comparison_runs_some_time_after_the_start() {
    let mut bench = Bench::unsettled(SETTINGS);
    assert!(bench.job().is_none(), "the targets have not been read");
    bench.queue.settle(Arc::default(), bench.now);
    let settled = bench.now;
    bench.now += seconds(30);
    bench.compare(Vec::new());
    assert_eq!(bench.queue.compare_at, Some(settled + SECOND_COMPARE_DELAY));
    bench.now = settled + SECOND_COMPARE_DELAY;
    bench.compare(Vec::new());
    assert_eq!(bench.queue.compare_at, Some(bench.now + COMPARE_INTERVAL));
}

#[tokio::test(start_paused = true)]
async fn a_completed_operation_without_a_custom_resource_is_written_unless_it_was_completed_long_ago()
 {
    let mut bench = Bench::unsettled(SETTINGS);
    for number in 1..=3 {
        bench.live(number, completed(2));
    }
    // The previous leader has not written this one, because it ended just before the failover.
    let minute_ago = clock::now() - jiff::SignedDuration::from_mins(1);
    let recent = entry(&minute_ago.to_string());
    bench.queue.live(&name(6), &recent, completed(2), bench.now);
    // Of the old custom resources, one exists, one does not exist, and one exists as Active.
    bench.settle(vec![
        found(2, completed(2), Some("2026-01-02T03:04:05Z")),
        found(3, active(1), None),
    ]);
    // An operation whose start and end this queue observes is written.
    bench.live(4, active(1));
    bench.live(4, completed(2));
    bench.live(5, completed(2));
    bench.pass(seconds(60));
    bench.written.sort();
    let want = [
        ("op-3", "change"),
        ("op-4", "create"),
        ("op-5", "create"),
        ("op-6", "create"),
    ];
    assert_eq!(
        bench.written,
        want.map(|(name, verb)| (name.to_owned(), verb))
    );
}

#[tokio::test(start_paused = true)]
async fn orphans_of_unread_rule_sets_wait_and_those_of_deleted_namespaces_do_not() {
    for retain in [true, false] {
        let mut bench = Bench::unsettled(PersistSettings { retain, ..SETTINGS });
        let mut namespace_deleted = found(2, active(1), None);
        namespace_deleted.namespace_deleted = true;
        let mut history = found(3, completed(1), Some(&clock::now().to_string()));
        history.namespace_deleted = true;
        let all = vec![found(1, active(1), None), namespace_deleted, history];
        bench.settle_except(&["others", "rules"], all);
        bench.pass(seconds(60));
        bench.written.sort();
        let deleted = ["op-2", "op-3"].map(|name| (name.to_owned(), "delete"));
        assert_eq!(bench.written, deleted);
        bench.written.clear();
        bench.settle_except(&["others"], vec![found(1, active(1), None)]);
        bench.pass(seconds(60));
        let want = if retain { "end" } else { "delete" };
        assert_eq!(bench.written, [("op-1".to_owned(), want)]);
        // No orphan was left undecided, so the next change does not start a comparison.
        bench.queue.settle(Arc::default(), bench.now);
        assert!(bench.job().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_write_waits_for_the_resync() {
    let mut bench = Bench::new(SETTINGS);
    bench.live(1, active(1));
    let job = bench.job().unwrap();
    bench.live(1, active(2));
    bench.now += seconds(1);
    bench.succeed(&job);
    assert_eq!(bench.pass(seconds(29)), 0);
    assert_eq!(bench.pass(seconds(1)), 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_conflict_or_a_lost_answer_the_object_is_read_before_the_next_write() {
    for failure in [StoreFailure::Conflict("changed".into()), unreachable()] {
        let mut bench = Bench::new(SETTINGS);
        bench.live(1, active(1));
        let job = bench.job().unwrap();
        assert_eq!(verb(&job), "create");
        bench.fail(&job, &failure);
        assert!(bench.job().is_none(), "it backs off");
        bench.now += seconds(1);
        let job = bench.job().unwrap();
        assert_eq!(verb(&job), "read");
        // The creation has succeeded although its answer was lost.
        let found = JobResult::Read(Some((active(1), revision(7))));
        bench.queue.done(&job.name, &Ok(found), bench.now);
        assert_eq!(bench.pass(seconds(59)), 0);

        bench.queue.compare_at = Some(bench.now + COMPARE_INTERVAL);
        bench.live(1, completed(2));
        let job = bench.job().unwrap();
        assert_eq!(
            (verb(&job), condition(&job)),
            ("change", Some(&revision(7)))
        );
        bench.fail(&job, &failure);
        bench.gone(1);
        bench.now += seconds(1);
        let job = bench.job().unwrap();
        assert_eq!(verb(&job), "read");
        let found = JobResult::Read(Some((completed(3), revision(8))));
        bench.queue.done(&job.name, &Ok(found), bench.now);
        let job = bench.job().unwrap();
        assert_eq!(
            (verb(&job), condition(&job)),
            ("delete", Some(&revision(8)))
        );
        bench.succeed(&job);
        assert!(bench.queue.records.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_comparison_keeps_unmodified_custom_resources() {
    let mut bench = Bench::new(SETTINGS);
    bench.live(1, active(1));
    bench.pass(seconds(1));
    for (version, writes) in [(1, 0), (5, 1)] {
        // The custom resource differs, for example because another client has created it with
        // labels.
        let other = ListedResource {
            revision: revision(version),
            ..found(1, active(8), None)
        };
        bench.now += COMPARE_INTERVAL;
        bench.compare(vec![other]);
        assert_eq!(bench.pass(seconds(60)), writes);
    }
}

#[tokio::test(start_paused = true)]
async fn an_orphan_that_is_detected_again_is_not_completed() {
    let mut bench = Bench::new(SETTINGS);
    bench.now += COMPARE_INTERVAL;
    bench.compare(vec![found(1, active(1), None)]);
    bench.pass(seconds(1));
    bench.live(1, active(1));
    assert_eq!(bench.pass(seconds(60)), 0);
}

#[tokio::test(start_paused = true)]
async fn a_conflicting_orphan_is_read_and_then_completed() {
    let conflict = StoreFailure::Conflict("changed".into());
    for retain in [true, false] {
        let mut bench = Bench::unsettled(PersistSettings { retain, ..SETTINGS });
        bench.settle(vec![found(1, active(1), None)]);
        bench.now += ORPHAN_DELAY;
        let job = bench.job().unwrap();
        bench.fail(&job, &conflict);
        bench.now += seconds(1);
        let job = bench.job().unwrap();
        let phase = if retain {
            // Reading is a part of this task. Another client has ended the operation.
            assert_eq!(verb(&job), "end");
            completed(2)
        } else {
            assert_eq!(verb(&job), "read");
            active(2)
        };
        let found = JobResult::Read(Some((phase, revision(9))));
        bench.queue.done(&job.name, &Ok(found), bench.now);
        bench.pass(seconds(59));
        let deleted = [("op-1".to_owned(), "delete")];
        let want: &[_] = if retain { &[] } else { &deleted };
        assert_eq!(bench.written, want);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handover_starts_no_writes_and_awaits_those_in_flight() {
    let mut bench = Bench::new(SETTINGS);
    for number in 0..10 {
        bench.live(number, active(1));
    }
    let sent = bench.job().unwrap();
    bench.queue.stop(AtStop::HandOver, bench.now);
    assert!(bench.job().is_none());
    assert!(!bench.queue.is_drained());
    bench.now += COMPARE_INTERVAL;
    assert!(bench.job().is_none(), "nor does it compare");
    bench.succeed(&sent);
    assert!(bench.queue.is_drained());
    assert!(bench.job().is_none());
}
