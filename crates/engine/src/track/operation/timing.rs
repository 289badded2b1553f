//! The times of one operation: how long it has taken, how long it usually takes, and whether it is
//! overdue or stalled.
//!
//! Time counts only while both of these conditions are true:
//!
//! - The operation is in the state `Progressing`.
//! - The watch of the subject (the object of the operation) is not interrupted.
//!
//! An operation is overdue if its counted time reaches a limit. The limit is the rule's
//! `expectedDuration`. If the rule has no `expectedDuration`, the limit follows from the durations
//! of earlier runs. A run is one occurrence of the operation, from its start to its end.
//!
//! An operation is stalled if its progress is below 100 % and has not risen for the rule's
//! `stalledAfter`. Only counted time is compared with `stalledAfter`.

mod condition;

use crate::ClockReading;
use crate::track::baselines::{ENOUGH_TO_JUDGE, UsualDuration};
use condition::Explanation;
pub use condition::JudgedCondition;
use ifo_api::duration::human;
use ifo_api::live::{Expected, ExpectedSource, StartTimeSource, State, Status};
use ifo_api::metadata::UnknownFields;
use jiff::{SignedDuration, Timestamp};
use std::time::{Duration, Instant};

/// Minimum number of known earlier runs. With fewer runs, clients do not see the usual duration of
/// the operation. They see the rule's `expectedDuration` instead, if the rule has one.
const ENOUGH_TO_SHOW: u64 = 5;

/// Minimum difference between the 95th percentile of earlier runs and the limit that follows from
/// the percentile. For example, if the 95th percentile is 10 s, the limit is 70 s.
const MIN_EXCESS: Duration = Duration::from_mins(1);

/// Precision of the times in JSON.
const SECOND: Duration = Duration::from_secs(1);

/// Maximum number of rises of the progress from which its rate is computed.
const RATE_SAMPLES: usize = 4;

/// The times of one operation.
#[derive(Clone, Debug)]
pub struct OperationTiming {
    /// The last known progress in percent.
    progress: Option<u8>,
    /// The counted time at the last update.
    pub(super) counted: Duration,
    /// Time of the last update. The time since then also counts, but is not yet in `counted`. None
    /// while time does not count.
    counting_since: Option<Instant>,
    /// Counted time at the last rise of the progress.
    counted_at_rise: Duration,
    /// Counted time and progress at each of the last rises of the progress, the oldest first.
    rises: Vec<(Duration, u8)>,
    /// True if the counted time since the start is known. If false, the operation never becomes
    /// overdue, and its duration is not added to the durations of earlier runs.
    is_comparable: bool,
    /// The next time at which the operation can become overdue or stalled. None if there is no such
    /// time, for example while time does not count.
    pub(in crate::track) deadline: Option<Instant>,
}

/// The result of an update of the times.
#[derive(Debug)]
pub struct Judgement {
    /// The condition `Overdue`. None if there is no limit for the counted time, or if the counted
    /// time is unknown. Then the operation does not have this condition.
    pub(super) overdue: Option<JudgedCondition>,
    /// The condition `Stalled`. None if the rule has no `stalledAfter`, or if the progress is
    /// unknown. Then the operation does not have this condition.
    pub(super) stalled: Option<JudgedCondition>,
    /// True if the progress has risen.
    pub(super) has_risen: bool,
}

impl Judgement {
    /// Returns true if `Overdue` or `Stalled` gets another status. A condition that does not exist
    /// counts as `False` here. So a new condition with the status `False` is no change: clients
    /// need not see it at once.
    pub fn changes(&self, status: &Status) -> bool {
        let changes = |type_, own: &Option<JudgedCondition>| {
            status.is_true(type_) != own.as_ref().is_some_and(|own| own.is_raised)
        };
        changes("Overdue", &self.overdue) || changes("Stalled", &self.stalled)
    }
}

/// The current values of an operation, from which its times are updated.
#[derive(Clone, Copy, Debug)]
pub struct TimingInput {
    /// The state that the operation shows from now on.
    pub state: State,
    /// The progress in percent.
    pub progress: Option<u8>,
    /// True while the watch of the subject is interrupted.
    pub is_watch_interrupted: bool,
    /// The current time.
    pub now: ClockReading,
    /// The rule's `expectedDuration`. If the counted time reaches this duration, the operation is
    /// overdue.
    pub expected: Option<Duration>,
    /// The rule's `stalledAfter`. If the progress is below 100 % and has not risen for this counted
    /// time, the operation is stalled.
    pub stalled_after: Option<Duration>,
    /// The usual duration of earlier runs, for the size of this operation. None if no run is known,
    /// or if the size is unknown.
    pub usual: Option<UsualDuration>,
}

impl OperationTiming {
    /// Creates the times of an operation that starts now or has started before.
    pub fn start(start: Timestamp, source: StartTimeSource, now: ClockReading) -> Self {
        // The real start can be earlier than a start that comes from `managedFields`. Then the
        // duration is unknown.
        let is_comparable = matches!(
            source,
            StartTimeSource::Detected | StartTimeSource::Expression
        );
        Self {
            progress: None,
            counted: now.since(start),
            counting_since: None,
            counted_at_rise: Duration::ZERO,
            rises: Vec::new(),
            is_comparable,
            deadline: None,
        }
    }

    /// Restores the times from the status of an operation that started at `start`.
    ///
    /// `known_until` is the time until which the status is up to date. For an operation of the
    /// index, this is the current time. For a custom resource, this is the last detection.
    ///
    /// The status does not contain the counted time. This time can be computed only if the
    /// operation has been `Progressing` since its start, and the start does not come from
    /// `managedFields`. In all other cases, the operation never becomes overdue, and its duration
    /// is not added to the durations of earlier runs.
    pub fn restored(status: &Status, start: Timestamp, known_until: Timestamp) -> Self {
        let between = |then: Timestamp, later: Timestamp| {
            Duration::try_from(later.duration_since(then)).unwrap_or_default()
        };
        let always_progressing = status.state == State::Progressing
            && (status.state_since).is_some_and(|since| between(start, since.0) <= SECOND);
        let is_start_known = status.start_time_source != StartTimeSource::ManagedFields;
        let counted = between(start, known_until);
        let since_rise = status.last_progress.map(|it| between(it.0, known_until));
        Self {
            progress: status.progress,
            counted,
            counting_since: None,
            counted_at_rise: counted.saturating_sub(since_rise.unwrap_or_default()),
            rises: Vec::new(),
            is_comparable: always_progressing && is_start_known,
            // `update` sets the deadline when the subject is evaluated for the first time.
            deadline: None,
        }
    }

    /// Returns the counted time at `now`.
    fn counted_at(&self, now: Instant) -> Duration {
        let running = self.counting_since;
        let running = running.map(|since| now.saturating_duration_since(since));
        self.counted + running.unwrap_or_default()
    }

    /// Returns the counted time of a run that ends at `now`. Returns None if the run cannot be
    /// compared with other runs.
    pub fn comparable_duration(&self, now: Instant) -> Option<Duration> {
        self.is_comparable.then(|| self.counted_at(now))
    }

    /// Updates the times, and the time at which this method must be called again (`deadline`).
    pub fn update(&mut self, input: TimingInput) -> Judgement {
        let now = input.now.steady;
        self.counted = self.counted_at(now);
        let counts = input.state == State::Progressing && !input.is_watch_interrupted;
        self.counting_since = counts.then_some(now);
        let has_risen = self.update_progress(input.progress);
        // The shortest time until a limit is reached.
        let mut wait: Option<Duration> = None;
        let mut judge = |passed: Duration, (limit, explanation): (Duration, Explanation)| {
            let left = limit.saturating_sub(passed);
            let is_raised = counts && left.is_zero();
            if counts && !is_raised {
                wait = Some(wait.map_or(left, |wait| wait.min(left)));
            }
            JudgedCondition {
                is_raised,
                explanation: if counts {
                    explanation
                } else {
                    Explanation::NotCounting(input.state)
                },
            }
        };
        let overdue = self.overdue_limit(input);
        let overdue = overdue.map(|limit| judge(self.counted, limit));
        let stalled = input.progress.zip(input.stalled_after);
        let stalled = stalled.map(|(percent, limit)| {
            if percent == 100 {
                return JudgedCondition {
                    is_raised: false,
                    explanation: Explanation::ProgressComplete,
                };
            }
            let passed = self.counted.saturating_sub(self.counted_at_rise);
            judge(passed, (limit, Explanation::Progress(percent, limit)))
        });
        // The limit of a rule can be so long that the clock cannot represent its end. Then there is
        // no deadline, because the operation cannot reach the limit.
        self.deadline = wait.and_then(|wait| now.checked_add(wait));
        Judgement {
            overdue,
            stalled,
            has_risen,
        }
    }

    /// Returns the counted time after which the operation is overdue. Returns None if there is no
    /// limit, or if the counted time is unknown. The limit is:
    ///
    /// - If the rule has an `expectedDuration`: this duration.
    /// - Otherwise, if enough earlier runs are known: twice their 95th percentile, but at least the
    ///   percentile plus [`MIN_EXCESS`].
    fn overdue_limit(&self, input: TimingInput) -> Option<(Duration, Explanation)> {
        if !self.is_comparable {
            return None;
        }
        if let Some(limit) = input.expected {
            return Some((limit, Explanation::RuleLimit(limit)));
        }
        let usual = input.usual.filter(|usual| usual.runs >= ENOUGH_TO_JUDGE)?;
        let p95 = duration_from_seconds(usual.p95)?;
        let limit = p95.saturating_mul(2).max(p95.saturating_add(MIN_EXCESS));
        Some((limit, Explanation::EarlierRuns(p95, usual.runs)))
    }

    /// Updates the values that depend on the progress. Returns true if the progress has risen. The
    /// first known progress counts as a rise.
    ///
    /// If the progress falls, forgets the earlier rises. A later progress counts as a rise if it is
    /// above the lower value.
    fn update_progress(&mut self, progress: Option<u8>) -> bool {
        let Some(progress) = progress else {
            return false;
        };
        let has_risen = self.progress.is_none_or(|before| progress > before);
        if self.progress.is_some_and(|before| progress < before) {
            self.rises.clear();
        }
        self.progress = Some(progress);
        if has_risen {
            self.counted_at_rise = self.counted;
            if self.rises.len() == RATE_SAMPLES {
                self.rises.remove(0);
            }
            self.rises.push((self.counted, progress));
        }
        has_risen
    }

    /// Estimates the end of the operation. Returns None while time does not count. The result is
    /// the first of these ends that is known and not past. If there is no such end, returns None.
    ///
    /// 1. The end according to the recent rate of the progress.
    /// 2. The end according to the median duration of at least [`ENOUGH_TO_SHOW`] earlier runs.
    pub fn estimate(&self, input: TimingInput) -> Option<Timestamp> {
        self.counting_since?;
        let left = self.left_by_rate().or_else(|| {
            let usual = input.usual.filter(|usual| usual.runs >= ENOUGH_TO_SHOW)?;
            let typical = duration_from_seconds(usual.typical)?;
            typical.checked_sub(self.counted)
        })?;
        let left = SignedDuration::try_from(left).ok()?;
        input.now.wall.checked_add(left).ok()
    }

    /// Returns the time until the progress is 100 %, at the rate of the last rises. Returns None if
    /// fewer than two rises are known, or if the progress should already be 100 % at this rate.
    fn left_by_rate(&self) -> Option<Duration> {
        let [(first_at, first), .., (last_at, last)] = *self.rises.as_slice() else {
            return None;
        };
        let passed = last_at.checked_sub(first_at)?.as_secs_f64();
        let per_percent = passed / f64::from(last.checked_sub(first)?);
        let whole = duration_from_seconds(per_percent * f64::from(100_u8.saturating_sub(last)))?;
        // `whole` is the time from the last rise until 100 %. A part of this time has passed.
        whole.checked_sub(self.counted.saturating_sub(last_at))
    }
}

impl TimingInput {
    /// Returns true if clients must see a new value of `status.expected` at once. The usual duration
    /// of earlier runs changes with each run, so a new value waits for the next change of the
    /// operation.
    pub fn has_new_expectation(&self, status: &Status) -> bool {
        let is_usual = |it: &Expected| it.source == ExpectedSource::History;
        let shown = &status.expected;
        !shown.as_ref().is_some_and(is_usual) && *shown != self.shown_expectation()
    }

    /// Returns the value for `status.expected`: the usual duration of earlier runs. If there are
    /// too few runs, returns the rule's `expectedDuration`, with the source `Rule`. The source
    /// tells clients that this duration is a limit: an operation usually takes less time.
    pub fn shown_expectation(&self) -> Option<Expected> {
        self.usual_expectation().or_else(|| {
            Some(Expected {
                typical_seconds: self.expected?.as_secs(),
                p95_seconds: None,
                runs: None,
                source: ExpectedSource::Rule,
                unknown: UnknownFields::new(),
            })
        })
    }

    /// Returns the usual duration of earlier runs. Returns None if there are fewer than
    /// [`ENOUGH_TO_SHOW`] runs.
    fn usual_expectation(&self) -> Option<Expected> {
        let usual = self.usual.filter(|usual| usual.runs >= ENOUGH_TO_SHOW)?;
        Some(Expected {
            typical_seconds: rounded(usual.typical)?,
            p95_seconds: Some(rounded(usual.p95)?),
            runs: Some(usual.runs),
            source: ExpectedSource::History,
            unknown: UnknownFields::new(),
        })
    }
}

/// Converts seconds to a duration. Returns None if the number is negative, infinite or too large.
fn duration_from_seconds(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}

fn rounded(number: f64) -> Option<u64> {
    Some(duration_from_seconds(number.round())?.as_secs())
}

fn text(duration: Duration) -> String {
    human(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX))
}
