//! The reasons and messages of the conditions `Overdue` and `Stalled`.

use super::text;
use ifo_api::live::State;
use std::time::Duration;

/// The condition `Overdue` or `Stalled`.
#[derive(Debug)]
pub struct JudgedCondition {
    /// True if the status of the condition is `True`.
    pub is_raised: bool,
    /// What the reason and the message are about.
    pub explanation: Explanation,
}

/// What the reason and the message of a condition are about.
#[derive(Clone, Copy, Debug)]
pub enum Explanation {
    /// The duration that the rule expects.
    RuleLimit(Duration),
    /// The 95th percentile of the durations of earlier runs, and the number of these runs.
    EarlierRuns(Duration, u64),
    /// The progress in percent, and the rule's `stalledAfter`.
    Progress(u8, Duration),
    /// The progress is 100 %.
    ProgressComplete,
    /// Time does not count, because the operation has this state. The exception is `Progressing`:
    /// then the reason is that the watch of the subject is interrupted.
    NotCounting(State),
}

impl JudgedCondition {
    /// Returns the reason and the message.
    pub fn reason_and_message(&self) -> (&'static str, String) {
        match (self.explanation, self.is_raised) {
            (Explanation::RuleLimit(limit), true) => (
                "LongerThanExpected",
                format!("Longer than the {} that the rule expects.", text(limit)),
            ),
            (Explanation::RuleLimit(limit), false) => (
                "AsExpected",
                format!("Not longer than the {} that the rule expects.", text(limit)),
            ),
            (Explanation::EarlierRuns(p95, runs), true) => (
                "LongerThanUsual",
                format!("Much longer than the usual {} of {runs} runs.", text(p95)),
            ),
            (Explanation::EarlierRuns(p95, runs), false) => (
                "AsUsual",
                format!(
                    "Not much longer than the usual {} of {runs} runs.",
                    text(p95)
                ),
            ),
            (Explanation::Progress(percent, limit), true) => {
                let limit = text(limit);
                let message =
                    format!("The progress has stayed at {percent}% for {limit} or longer.");
                ("ProgressNotRising", message)
            }
            (Explanation::Progress(_, limit), false) => (
                "ProgressRising",
                format!("The progress rose within the last {}.", text(limit)),
            ),
            (Explanation::ProgressComplete, _) => {
                ("ProgressComplete", "The progress is 100%.".to_owned())
            }
            (Explanation::NotCounting(state), _) => {
                let cause = match state {
                    State::Progressing => "the watch of the subject is interrupted".to_owned(),
                    state => format!("the operation is {}", state.name()),
                };
                let message = format!("Time does not count while {cause}.");
                ("NotJudged", message)
            }
        }
    }
}
