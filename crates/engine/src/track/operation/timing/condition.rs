//! The conditions `Overdue` (an operation takes longer than expected) and `Stalled` (the progress
//! of an operation does not rise).

use super::text;
use ifo_api::live::State;
use std::time::Duration;

/// The reason and the message of a condition.
pub type Explanation = (&'static str, String);

/// Explains `Overdue` by the duration that the rule expects.
pub fn rule_limit(limit: Duration, is_raised: bool) -> Explanation {
    let (reason, longer) = if is_raised {
        ("LongerThanExpected", "Longer")
    } else {
        ("AsExpected", "Not longer")
    };
    let limit = text(limit);
    (
        reason,
        format!("{longer} than the {limit} that the rule expects."),
    )
}

/// Explains `Overdue` by the 95th percentile of the durations of earlier runs, and by the number of
/// these runs.
pub fn earlier_runs(p95: Duration, runs: u64, is_raised: bool) -> Explanation {
    let (reason, longer) = if is_raised {
        ("LongerThanUsual", "Much longer")
    } else {
        ("AsUsual", "Not much longer")
    };
    let p95 = text(p95);
    (
        reason,
        format!("{longer} than the usual {p95} of {runs} runs."),
    )
}

/// Explains `Stalled` by the progress in percent and the rule's `stalledAfter`.
pub fn progress(percent: u8, stalled_after: Duration, is_raised: bool) -> Explanation {
    let limit = text(stalled_after);
    if is_raised {
        let message = format!("The progress has stayed at {percent}% for {limit} or longer.");
        ("ProgressNotRising", message)
    } else {
        let message = format!("The progress rose within the last {limit}.");
        ("ProgressRising", message)
    }
}

/// Explains why a condition is not raised, although its limit may be exceeded: only time in the
/// state `Progressing` counts, and only while the watch of the subject is not interrupted.
pub fn not_counting(state: State) -> Explanation {
    let cause = match state {
        State::Progressing => "the watch of the subject is interrupted".to_owned(),
        state => format!("the operation is {}", state.name()),
    };
    ("NotJudged", format!("Time does not count while {cause}."))
}
