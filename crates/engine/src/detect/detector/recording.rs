//! Records on which objects operations are detected, and decides which evaluations the tracker needs.

use super::{Detector, EvaluatedObject};
use crate::ClockReading;
use crate::detect::subject::managed_time;
use crate::detect::{Evaluation, Subject};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Instant;

/// Facts about the detections on one object.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObjectDetections {
    /// Time since which no operation is detected on the object and no rule fails. None while an
    /// operation is detected or a rule fails.
    pub undetected_since: Option<Instant>,
    /// Hash of the detected operations. If a change of the object does not change the hash, no
    /// operation starts or ends. Then the detector does not read the time of the change from
    /// `managedFields`.
    detected: u64,
}

impl Detector {
    /// Decides whether the tracker needs the evaluation, and records its detections.
    pub(super) fn record_evaluation(
        &mut self,
        mut evaluation: Evaluation,
        change: Option<&[u8]>,
        now: ClockReading,
    ) -> EvaluatedObject {
        let read = now.steady;
        let shows_nothing = evaluation.findings.is_empty() && evaluation.unknown.is_empty();
        if shows_nothing && !self.may_have_operation(&evaluation.subject) {
            return EvaluatedObject {
                evaluation,
                // After a list, the tracker must know which objects were listed.
                is_relevant: self.listing,
                read,
            };
        }
        let identity = evaluation.subject.identity(&self.book.target);
        self.unknown.evaluated(&identity, &evaluation);
        let detected = hash_of_detected(&evaluation);
        let before = self.recently_detected.get(&identity).copied();
        let differs = before.map_or(evaluation.detects(), |it| it.detected != detected);
        let has_findings = !evaluation.findings.is_empty();
        let undetected_since = match before {
            _ if has_findings => Some(None),
            Some(before) if self.remembers_detections => {
                Some(before.undetected_since.or(Some(read)))
            }
            _ => None,
        };
        match undetected_since {
            Some(undetected_since) => {
                let detections = ObjectDetections {
                    undetected_since,
                    detected,
                };
                self.recently_detected.insert(identity, detections);
            }
            None => {
                self.recently_detected.remove(&identity);
            }
        }
        if let Some(object) = change.filter(|_| differs) {
            // This change of the object starts or ends operations. So the time of the change is
            // their start or end time.
            evaluation.subject.managed = managed_time(object);
        }
        EvaluatedObject {
            evaluation,
            is_relevant: has_findings || before.is_some() || self.listing,
            read,
        }
    }

    /// Returns true if an operation on the object may be in flight, or if this is unknown because
    /// an evaluation failed or was skipped.
    fn may_have_operation(&self, subject: &Subject) -> bool {
        if self.recently_detected.is_empty() && self.unknown.is_empty() {
            return false;
        }
        let is_in = |identity: &str| {
            self.recently_detected.contains_key(identity) || self.unknown.contains(identity)
        };
        match &subject.uid {
            Some(uid) => is_in(uid),
            None => is_in(&subject.identity(&self.book.target)),
        }
    }
}

/// Returns a hash of the operations that the findings (results of single rules) detect or continue.
/// The hash covers the component, the name, the list element (`item`) and the instance of each
/// operation. It also covers the flag `only_continues`, which is true if only the rule's
/// `continueWhile` is true.
fn hash_of_detected(evaluation: &Evaluation) -> u64 {
    let mut hasher = DefaultHasher::new();
    for finding in &evaluation.findings {
        if let Some(values) = &finding.values {
            let component = &finding.rule_set.component;
            let run = (&finding.operation, &finding.item, &values.instance);
            (component, run, values.only_continues).hash(&mut hasher);
        }
    }
    hasher.finish()
}
