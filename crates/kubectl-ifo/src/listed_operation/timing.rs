//! Describes the times of an operation: the usual duration, the estimated completion, and whether
//! the operation takes longer than usual (overdue) or makes no progress (stalled).

use super::ListedOperation;
use ifo_api::duration;
use ifo_api::live::{Expected, ExpectedSource};
use jiff::Timestamp;

/// Type of the condition that is `True` if an operation takes longer than usual.
const LISTED_OVERDUE: &str = "Overdue";
/// Type of the condition that is `True` if the progress of an operation has not risen for too long.
const LISTED_STALLED: &str = "Stalled";

impl ListedOperation {
    /// Returns true if the condition of this type has the status `True`.
    pub(crate) fn has_condition(&self, kind: &str) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.any(|it| *it.type_ == *kind && it.status == "True")
    }

    /// Returns true if the operation is in flight and takes longer than usual.
    pub(crate) fn is_overdue(&self) -> bool {
        self.active && self.has_condition(LISTED_OVERDUE)
    }

    /// Returns true if the operation is in flight and its progress has not risen for too long.
    pub(crate) fn is_stalled(&self) -> bool {
        self.active && self.has_condition(LISTED_STALLED)
    }

    /// Formats the state with its markers: `Progressing (overdue, stalled)`.
    pub(crate) fn marked_state(&self) -> String {
        let markers = match (self.is_overdue(), self.is_stalled()) {
            (false, false) => return self.state.clone(),
            (true, false) => "overdue",
            (false, true) => "stalled",
            (true, true) => "overdue, stalled",
        };
        format!("{} ({markers})", self.state)
    }

    /// Returns the state whose colour the operation has. This is usually its own state. A
    /// progressing operation that is overdue or stalled has the colour of `Blocked`, because the
    /// user should look at it.
    pub(crate) fn color_state(&self) -> &str {
        if self.state == "Progressing" && (self.is_overdue() || self.is_stalled()) {
            "Blocked"
        } else {
            &self.state
        }
    }

    /// Formats the usual duration that the server has learned from earlier runs, such as `2m5s`. If
    /// there are fewer than five earlier runs, formats the `expectedDuration` of the rule as a
    /// limit, such as `limit 10m`. Returns an empty text if neither duration is known.
    pub(crate) fn usual_duration(&self) -> String {
        let Some(expected) = &self.expected else {
            return String::new();
        };
        let typical = seconds_text(expected.typical_seconds);
        match expected.source {
            ExpectedSource::Rule => format!("limit {typical}"),
            ExpectedSource::History => typical,
            ExpectedSource::Unknown(_) => String::new(),
        }
    }

    /// Formats the usual duration with its source: `2m5s (37 runs, 95% within 4m)`, or `limit 10m
    /// (from the rule)`. Returns an empty text if [`Self::usual_duration`] is empty.
    pub(crate) fn usual_duration_and_source(&self) -> String {
        let Some(expected) = &self.expected else {
            return String::new();
        };
        let Expected {
            p95_seconds, runs, ..
        } = expected;
        let source = match expected.source {
            ExpectedSource::Rule => "from the rule".to_owned(),
            ExpectedSource::History => {
                let runs = match runs {
                    Some(1) => Some("1 run".to_owned()),
                    runs => runs.map(|it| format!("{it} runs")),
                };
                let p95 = p95_seconds.map(|it| format!("95% within {}", seconds_text(it)));
                let parts: Vec<String> = runs.into_iter().chain(p95).collect();
                parts.join(", ")
            }
            ExpectedSource::Unknown(_) => String::new(),
        };
        let typical = self.usual_duration();
        match source.as_str() {
            "" => typical,
            source => format!("{typical} ({source})"),
        }
    }

    /// Returns the time at which the operation will probably complete. Returns None if the
    /// operation has completed, or if the estimated time is past or unknown.
    pub(crate) fn future_completion(&self, now: Timestamp) -> Option<Timestamp> {
        self.estimated_completion
            .filter(|at| self.active && *at > now)
    }

    /// Formats the time until the estimated completion: `about 2m left`. Returns an empty text if
    /// [`Self::future_completion`] returns None.
    pub(crate) fn time_left(&self, now: Timestamp) -> String {
        self.future_completion(now)
            .map(|at| {
                let seconds = at.as_second() - now.as_second();
                format!("about {} left", duration::human(seconds))
            })
            .unwrap_or_default()
    }

    /// Returns the duration of a completed operation in seconds. None if the operation is in
    /// flight, or if its duration is unknown.
    pub(crate) fn duration(&self) -> Option<u64> {
        let computed = || {
            let seconds = self.completed?.as_second() - self.started?.as_second();
            u64::try_from(seconds).ok()
        };
        self.duration_seconds.or_else(computed)
    }
}

/// Formats a number of seconds as kubectl formats ages: `2m5s` for 125.
pub(crate) fn seconds_text(seconds: u64) -> String {
    duration::human(i64::try_from(seconds).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(status: &serde_json::Value) -> ListedOperation {
        let object = json!({"metadata": {"name": "a"}, "status": status});
        ListedOperation::read(&object.to_string(), false).expect("the JSON is an operation")
    }

    #[test]
    fn markers_follow_the_conditions_of_an_operation_in_flight() {
        let condition = |kind: &str, status: &str| {
            json!({"type": kind, "status": status, "reason": "r", "message": "m",
                   "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        for (overdue, stalled, expected) in [
            ("True", "False", "Progressing (overdue)"),
            ("False", "True", "Progressing (stalled)"),
            ("True", "True", "Progressing (overdue, stalled)"),
            ("Unknown", "False", "Progressing"),
        ] {
            let conditions = [condition("Overdue", overdue), condition("Stalled", stalled)];
            let active =
                json!({"phase": "Active", "state": "Progressing", "conditions": conditions});
            assert_eq!(read(&active).marked_state(), expected);
            let completed =
                json!({"phase": "Completed", "state": "Succeeded", "conditions": conditions});
            assert_eq!(read(&completed).marked_state(), "Succeeded");
        }
    }

    #[test]
    fn an_estimate_in_the_past_is_ignored() {
        let at = |text: &str| text.parse().expect("the text is a valid time");
        let it = read(&json!({"phase": "Active", "estimatedCompletion": "2026-01-01T00:02:00Z"}));
        assert_eq!(it.time_left(at("2026-01-01T00:00:00Z")), "about 2m left");
        assert_eq!(it.time_left(at("2026-01-01T00:02:00Z")), "");
    }

    #[test]
    fn the_usual_duration_has_its_source() {
        let history =
            json!({"typicalSeconds": 125, "p95Seconds": 240, "runs": 37, "source": "History"});
        let it = read(&json!({"expected": history}));
        assert_eq!(
            it.usual_duration_and_source(),
            "2m5s (37 runs, 95% within 4m)"
        );
        let it = read(&json!({"expected": {"typicalSeconds": 600, "source": "Rule"}}));
        assert_eq!(it.usual_duration_and_source(), "limit 10m (from the rule)");
        assert_eq!(it.usual_duration(), "limit 10m");
        // A later release of `ifo-apiserver` can send a source that this plugin does not know. The
        // plugin then shows the operation without a usual duration.
        let it = read(&json!({"expected": {"typicalSeconds": 600, "source": "Oracle"}}));
        assert_eq!(it.usual_duration_and_source(), "");
    }

    #[test]
    fn the_record_of_a_completed_operation_is_read() {
        let it = read(&json!({
            "outcome": "Failed", "started": "2026-01-01T00:00:00Z",
            "completed": "2026-01-01T00:04:00Z", "durationSeconds": 230, "nodes": ["a"],
        }));
        assert!(!it.active);
        assert_eq!((it.state.as_str(), it.duration()), ("Failed", Some(230)));
        assert_eq!(it.nodes, ["a"]);
    }
}
