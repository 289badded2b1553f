//! An operation is something that happens to an object, such as a migration. All commands handle an
//! operation as [`InFlightOperation`], the type of the API. This module derives facts from the
//! fields of an operation: texts, times and identities.
//!
//! A cluster can serve an operation as a live object, as a custom resource that persistence mode
//! writes, and as a record of a completed operation. `operation_source` decodes all three.

pub(crate) use ifo_api::live::InFlightOperation;

use crate::output::plain_text::{ago, one_line};
use ifo_api::live::{self, ExpectedSource, Phase, State, SubjectReference};
use ifo_api::{Text, duration, record};
use ifo_client::offline_kinds::group;
use ifo_client::short_names::ShortNames;
use jiff::Timestamp;

/// Prefix of the correlation labels. A rule set sets these labels to connect related operations
/// (see `docs/rules.md`).
const CORRELATION: &str = "ifo.kubevirt.io/correlation-";

/// The identity of an operation: namespace and name of its object. The namespace is empty for a
/// custom resource.
pub(crate) type OperationKey = (Text, Text);

/// The identity of a piece of work: the component and the key (`spec.work`) of its operations.
pub(crate) type WorkKey<'a> = (&'a str, &'a str);

/// Facts that are derived from the fields of an operation.
pub(crate) trait OperationFacts {
    /// Returns the operation.
    fn operation(&self) -> &InFlightOperation;

    /// Returns the identity of the operation.
    fn key(&self) -> OperationKey {
        let metadata = &self.operation().metadata;
        (metadata.namespace.clone(), metadata.name.clone())
    }

    /// Returns the identity of the piece of work that the operation belongs to. None if the
    /// operation has no key. A key that ends with `/` has another meaning (see `work_groups`).
    fn work_key(&self) -> Option<WorkKey<'_>> {
        let spec = &self.operation().spec;
        let work = spec.work.as_deref().filter(|it| !it.is_empty())?;
        Some((&spec.component, work))
    }

    /// Returns true while the operation is in flight.
    fn is_active(&self) -> bool {
        self.operation().status.phase != Phase::Completed
    }

    /// Returns the start.
    fn started(&self) -> Timestamp {
        self.operation().metadata.creation_timestamp.0
    }

    /// Returns the end. None for an operation in flight.
    fn completed(&self) -> Option<Timestamp> {
        self.operation().status.completed.map(|it| it.0)
    }

    /// Formats the time since the start, as kubectl formats ages.
    fn age(&self, now: Timestamp) -> String {
        ago(self.started(), now)
    }

    /// Returns the seconds for which the operation waited for its start. None if they are unknown.
    fn in_queue(&self) -> Option<u64> {
        let queued = self.operation().status.queued_at?.0.as_second();
        (self.started().as_second() - queued).try_into().ok()
    }

    /// Returns the duration of a completed operation in seconds. None if the operation is in
    /// flight, or if its duration is unknown.
    fn duration(&self) -> Option<u64> {
        let computed = || {
            let seconds = self.completed()?.as_second() - self.started().as_second();
            seconds.try_into().ok()
        };
        self.operation().status.duration_seconds.or_else(computed)
    }

    /// Formats the subject as `Kind/name`, or as `Kind/name/item` if the operation has an item.
    fn subject_name(&self) -> String {
        self.short_subject_name(&ShortNames::default())
    }

    /// Formats the subject for narrow terminals, with the short name of its kind if the cluster
    /// serves one: `vmi/web` for `VirtualMachineInstance/web`.
    fn short_subject_name(&self, short_names: &ShortNames) -> String {
        let spec = &self.operation().spec;
        let subject = &spec.subject;
        let kind = short_names.name(&subject.api_version, &subject.kind);
        let item = spec.item.iter().map(|it| format!("/{it}"));
        format!("{kind}/{}{}", subject.name, item.collect::<String>())
    }

    /// Formats the subject for a sentence: `VirtualMachine/web in shop`.
    fn place_name(&self) -> String {
        match &self.operation().spec.subject.namespace {
            Some(namespace) => format!("{} in {namespace}", self.subject_name()),
            None => self.subject_name(),
        }
    }

    /// Formats `kind.group/name`, as kubectl does with `-o name`.
    fn resource_name(&self) -> String {
        let it = self.operation();
        let (kind, group) = (it.kind.to_lowercase(), group(&it.api_version));
        one_line(&format!("{kind}.{group}/{}", it.metadata.name))
    }

    /// Formats the progress, such as `45%`, with the text `before` in front. Empty if the progress
    /// is unknown.
    fn percent(&self, before: &str) -> String {
        let percent = self.operation().status.progress;
        percent.map_or_else(String::new, |it| format!("{before}{it}%"))
    }

    /// Returns the value of a correlation label. The suffix `group` stands for the label
    /// `ifo.kubevirt.io/correlation-group`.
    fn correlation(&self, suffix: &str) -> Option<&str> {
        let mut labels = self.operation().metadata.labels.iter();
        let found = labels.find(|(key, _)| key.strip_prefix(CORRELATION) == Some(suffix));
        found.map(|(_, value)| &**value)
    }

    /// Returns true if the operation is in flight and takes longer than usual.
    fn is_overdue(&self) -> bool {
        self.is_active() && self.operation().status.is_true("Overdue")
    }

    /// Returns true if the operation is in flight and its progress has not risen for too long.
    fn is_stalled(&self) -> bool {
        self.is_active() && self.operation().status.is_true("Stalled")
    }

    /// Formats the state with its markers: `Progressing (overdue, stalled)`.
    fn marked_state(&self) -> String {
        let state = self.operation().status.state.name();
        let markers = match (self.is_overdue(), self.is_stalled()) {
            (false, false) => return state.to_owned(),
            (true, false) => "overdue",
            (false, true) => "stalled",
            (true, true) => "overdue, stalled",
        };
        format!("{state} ({markers})")
    }

    /// Returns the state whose colour the operation has. This is usually its own state. A
    /// progressing operation that is overdue or stalled has the colour of `Blocked`, because the
    /// user should look at it.
    fn color_state(&self) -> State {
        match self.operation().status.state {
            State::Progressing if self.is_overdue() || self.is_stalled() => State::Blocked,
            state => state,
        }
    }

    /// Returns the rank by which operations need attention. The worst operations have the rank 0.
    /// The page of `ui` has the same ranks (`attentionRank` in `ui/model.js`).
    fn attention(&self) -> u8 {
        match self.operation().status.state {
            _ if !self.is_active() => 5,
            State::Failing => 0,
            State::Blocked => 1,
            _ if self.is_stalled() => 2,
            _ if self.is_overdue() => 3,
            _ => 4,
        }
    }

    /// Formats the usual duration that the server has learned from earlier runs, such as `2m5s`. If
    /// there are fewer than five earlier runs, formats the `expectedDuration` of the rule as a
    /// limit, such as `limit 10m`. Returns an empty text if neither duration is known.
    fn usual_duration(&self) -> String {
        let mut text = self.usual_duration_and_source();
        text.truncate(text.find(" (").unwrap_or(text.len()));
        text
    }

    /// Formats the usual duration with its source: `2m5s (37 runs, 95% within 4m)`, or `limit 10m
    /// (from the rule)`. Returns an empty text if [`Self::usual_duration`] is empty.
    fn usual_duration_and_source(&self) -> String {
        let Some(expected) = &self.operation().status.expected else {
            return String::new();
        };
        let typical = seconds_text(expected.typical_seconds);
        match expected.source {
            ExpectedSource::Rule => format!("limit {typical} (from the rule)"),
            ExpectedSource::History => {
                let runs = expected.runs.map(|it| match it {
                    1 => "1 run".to_owned(),
                    runs => format!("{runs} runs"),
                });
                let p95 = expected.p95_seconds;
                let p95 = p95.map(|it| format!("95% within {}", seconds_text(it)));
                match runs.into_iter().chain(p95).collect::<Vec<_>>() {
                    facts if facts.is_empty() => typical,
                    facts => format!("{typical} ({})", facts.join(", ")),
                }
            }
            ExpectedSource::Unknown(_) => String::new(),
        }
    }

    /// Formats the time until the estimated completion: `about 2m left`. Returns an empty text if
    /// the operation has completed, or if the estimated time is past or unknown.
    fn time_left(&self, now: Timestamp) -> String {
        let estimated = self.operation().status.estimated_completion;
        let future = estimated.filter(|at| self.is_active() && at.0 > now);
        future.map_or_else(String::new, |at| format!("about {} left", ago(now, at.0)))
    }
}

impl OperationFacts for InFlightOperation {
    fn operation(&self) -> &InFlightOperation {
        self
    }
}

/// Formats `Kind namespace/name`, or `Kind name` for a cluster-scoped object.
pub(crate) fn subject_path(subject: &SubjectReference) -> String {
    let SubjectReference { kind, name, .. } = subject;
    match &subject.namespace {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

/// Formats a number of seconds as kubectl formats ages: `2m5s` for 125.
pub(crate) fn seconds_text(seconds: u64) -> String {
    duration::human(i64::try_from(seconds).unwrap_or(i64::MAX))
}

/// Returns the name of an InFlightOperation or of a record from a command-line argument. None if
/// the argument names an object of another kind.
///
/// The argument is `NAME`, or `RESOURCE/NAME` as `-o name` prints it. `RESOURCE` can also be the
/// kind, or one of the short names `ifo`, `ifos` and `opr`. A record has the name of its operation.
pub(crate) fn operation_name_in(text: &str) -> Option<&str> {
    let Some((kind, name)) = text.split_once('/') else {
        return Some(text);
    };
    let kind = kind.split('.').next().unwrap_or_default();
    let own = [live::KIND, live::PLURAL, "ifo", "ifos"];
    let records = [record::KIND, record::PLURAL, "opr"];
    let mut all = own.iter().chain(&records);
    all.any(|it| it.eq_ignore_ascii_case(kind)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures::{condition, now, on};
    use ifo_api::metadata::Time;
    use serde_json::json;

    #[test]
    fn markers_follow_the_conditions_of_an_operation_in_flight() {
        for (overdue, stalled, expected) in [
            ("True", "False", "Progressing (overdue)"),
            ("False", "True", "Progressing (stalled)"),
            ("True", "True", "Progressing (overdue, stalled)"),
            ("Unknown", "False", "Progressing"),
        ] {
            let mut it = on("a", "VM", "b", "Up");
            it.status.conditions =
                vec![condition("Overdue", overdue), condition("Stalled", stalled)];
            assert_eq!(it.marked_state(), expected);
            it.status.phase = Phase::Completed;
            assert_eq!(it.marked_state(), "Progressing");
        }
    }

    #[test]
    fn an_estimate_in_the_past_is_ignored() {
        let mut it = on("a", "VM", "b", "Up");
        it.status.estimated_completion = Some(Time(now()));
        let before = Timestamp::from_second(now().as_second() - 120).unwrap();
        assert_eq!(it.time_left(before), "about 2m left");
        assert_eq!(it.time_left(now()), "");
    }

    #[test]
    fn the_usual_duration_has_its_source() {
        // A later release of `ifo-apiserver` can send a source that this plugin does not know. The
        // plugin then shows the operation without a usual duration.
        for (source, runs, p95, short, long) in [
            (
                "History",
                Some(37),
                Some(240),
                "2m5s",
                "2m5s (37 runs, 95% within 4m)",
            ),
            ("History", None, None, "2m5s", "2m5s"),
            (
                "Rule",
                None,
                None,
                "limit 2m5s",
                "limit 2m5s (from the rule)",
            ),
            ("Oracle", None, None, "", ""),
        ] {
            let mut it = on("a", "VM", "b", "Up");
            let expected =
                json!({"typicalSeconds": 125, "p95Seconds": p95, "runs": runs, "source": source});
            it.status.expected = serde_json::from_value(expected).unwrap();
            assert_eq!(
                (it.usual_duration(), it.usual_duration_and_source()),
                (short.to_owned(), long.to_owned())
            );
        }
    }
}
