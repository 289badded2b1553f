//! The conditions `Overdue` (an operation takes longer than expected) and `Stalled` (the progress
//! of an operation does not rise).

use super::compact_values::WholeSecond;
use super::{MIN_EXCESS, text};
use ifo_api::live::State;
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// One of the conditions `Overdue` and `Stalled`.
#[derive(Clone, Debug, PartialEq)]
pub struct TimingCondition {
    /// True if the status of the condition is `True`.
    pub is_raised: bool,
    /// Time since which `is_raised` has had this value.
    pub since: WholeSecond,
    pub basis: ConditionBasis,
}

/// The values from which the reason and the message of a condition are made. They need less memory
/// than the message, and the tracker has them for every operation in flight.
#[derive(Clone, Debug, PartialEq)]
pub enum ConditionBasis {
    /// `Overdue`: the duration that the rule expects.
    RuleLimit(Duration),
    /// `Overdue`: the 95th percentile of the durations of earlier runs, in seconds, and the number
    /// of these runs. Both are at most [`u32::MAX`].
    EarlierRuns { p95: u32, runs: u32 },
    /// `Stalled`: the progress in percent, and the rule's `stalledAfter` in seconds, at most
    /// [`u32::MAX`].
    Progress { percent: u8, stalled_after: u32 },
    /// `Stalled`: the progress is 100 %.
    Complete,
    /// The condition is not raised, because the operation has this state. For both conditions, only
    /// time in the state `Progressing` counts.
    State(State),
    /// The condition is not raised, because the watch of the subject (the object that the operation
    /// is about) is interrupted.
    WatchInterrupted,
    /// The condition was restored after a restart or a change of the leader. The operation has not
    /// been updated since then.
    Restored(Box<RestoredText>),
}

/// The reason and the message of a restored condition.
#[derive(Clone, Debug, PartialEq)]
pub struct RestoredText {
    pub reason: String,
    pub message: String,
}

impl TimingCondition {
    /// Returns the time since which `is_raised` has had this value.
    pub fn since(&self) -> Timestamp {
        self.since.time()
    }

    /// Returns the reason of the condition as clients see it.
    pub fn reason(&self) -> &str {
        match (&self.basis, self.is_raised) {
            (ConditionBasis::RuleLimit(_), true) => "LongerThanExpected",
            (ConditionBasis::RuleLimit(_), false) => "AsExpected",
            (ConditionBasis::EarlierRuns { .. }, true) => "LongerThanUsual",
            (ConditionBasis::EarlierRuns { .. }, false) => "AsUsual",
            (ConditionBasis::Progress { .. }, true) => "ProgressNotRising",
            (ConditionBasis::Progress { .. }, false) => "ProgressRising",
            (ConditionBasis::Complete, _) => "ProgressComplete",
            (ConditionBasis::State(_) | ConditionBasis::WatchInterrupted, _) => "NotJudged",
            (ConditionBasis::Restored(restored), _) => &restored.reason,
        }
    }

    /// Returns true if the status of the condition is `True`. Returns None if `condition` is None,
    /// or if the operation is completed (`in_flight` is false).
    pub fn status(condition: Option<&Self>, in_flight: bool) -> Option<bool> {
        let own = condition.filter(|_| in_flight)?;
        Some(own.is_raised)
    }
}

/// Writes the message of the condition.
impl fmt::Display for TimingCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.basis, self.is_raised) {
            (ConditionBasis::RuleLimit(limit), true) => {
                write!(f, "Longer than the {} that the rule expects.", text(*limit))
            }
            (ConditionBasis::RuleLimit(limit), false) => {
                write!(f, "The rule expects at most {}.", text(*limit))
            }
            (ConditionBasis::EarlierRuns { p95, runs }, is_raised) => {
                let p95 = Duration::from_secs(u64::from(*p95));
                // The limit is `2 * p95` or `p95 + MIN_EXCESS`, whichever is longer.
                match (p95 >= MIN_EXCESS, is_raised) {
                    (true, true) => f.write_str("Longer than twice ")?,
                    (true, false) => f.write_str("Not longer than twice ")?,
                    (false, true) => write!(f, "At least {} longer than ", text(MIN_EXCESS))?,
                    (false, false) => write!(f, "Not {} longer than ", text(MIN_EXCESS))?,
                }
                write!(f, "the usual {} of {runs} runs.", text(p95))
            }
            (
                ConditionBasis::Progress {
                    percent,
                    stalled_after,
                },
                is_raised,
            ) => {
                let limit = text(Duration::from_secs(u64::from(*stalled_after)));
                if is_raised {
                    write!(
                        f,
                        "The progress has stayed at {percent}% for {limit} or longer."
                    )
                } else {
                    write!(f, "The progress rose within the last {limit}.")
                }
            }
            (ConditionBasis::Complete, _) => f.write_str("The progress is 100%."),
            (ConditionBasis::State(state), _) => write!(
                f,
                "Time does not count while the operation is {}.",
                state.name()
            ),
            (ConditionBasis::WatchInterrupted, _) => {
                f.write_str("Time does not count while the watch of the subject is interrupted.")
            }
            (ConditionBasis::Restored(restored), _) => f.write_str(&restored.message),
        }
    }
}

/// The message of a condition as a JSON string.
pub struct ConditionMessage<'a>(pub &'a TimingCondition);

impl Serialize for ConditionMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self.0)
    }
}
