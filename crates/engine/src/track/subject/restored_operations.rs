//! Tracks the restored operations of an object after a restart or a change of the leader. At first,
//! the rule sets of these operations are known only by name, and the object has not been evaluated.

use super::TrackedSubject;
use super::context::{SECOND, SubjectEventContext};
use crate::detect::Subject;
use crate::rules::CompiledRule;
use crate::track::books::Books;
use crate::track::operation::{ChangeContext, Operation};
use ifo_api::Text;
use jiff::Timestamp;
use std::sync::Arc;

impl TrackedSubject {
    /// Creates a subject for restored operations. Its target and rules are not known yet.
    pub(in crate::track) fn from_earlier_leader(identity: Text, subject: Subject) -> Self {
        Self {
            is_unevaluated: true,
            ..Self::new(identity, subject, Arc::default())
        }
    }

    /// Adds a restored operation in flight.
    pub(in crate::track) fn restore(&mut self, operation: Operation) {
        self.operations.insert(operation.what.clone(), operation);
    }

    /// Returns true if the target of this restored subject is unknown. The target becomes known
    /// with the first evaluation of the subject, or with the first rule book for its API group and
    /// kind.
    pub(in crate::track) fn has_no_target(&self) -> bool {
        self.target.resource.is_empty()
    }

    /// Returns true if at least one operation has a rule that has not arrived.
    pub(in crate::track) fn lacks_rules(&self, books: &Books) -> bool {
        let mut operations = self.operations.values();
        operations.any(|it| {
            let mut rule_sets = it.detections.keys().chain([it.rule_set()]);
            rule_sets.any(|name| books.rule(name, &it.what.operation).is_none())
        })
    }

    /// Continues the debounce periods of restored operations whose rule set has arrived, or cannot
    /// arrive any more. The period counts from the last detection of the operation. If
    /// `is_listed_again` is true, the new rules will be evaluated on the subject. Then no period
    /// ends before this evaluation.
    pub(in crate::track) fn continue_debounce(
        &mut self,
        is_listed_again: bool,
        step: &SubjectEventContext<'_>,
    ) {
        let (books, debounce) = (step.books, step.shared.settings.debounce);
        for (_, operation) in &mut self.operations {
            if operation.detections.is_empty()
                && operation.debounce_end.is_none()
                && !operation.may_get_rule(books)
            {
                let since = operation.last_detected();
                operation.start_debounce(since, debounce, books, step.now);
                self.is_unevaluated |= is_listed_again;
            }
        }
    }

    /// Starts the debounce periods of restored operations that the first evaluation of the subject
    /// does not detect.
    ///
    /// The subject last changed at `changed`. So the rules have yielded the same results since that
    /// time. A debounce period counts from `changed`, or from the last detection of the operation
    /// if that detection is later.
    ///
    /// Rules that read `now` are an exception: their results can change without a change of the
    /// subject. This method ignores the operations of such rules, and operations whose rule is
    /// unknown. Their debounce periods begin at the evaluation if they have not begun before.
    pub(super) fn settle_since(&mut self, changed: Timestamp, step: &mut SubjectEventContext<'_>) {
        let now = step.now;
        // Kubernetes rounds times down to seconds, so the change was up to one second later.
        let changed = changed.saturating_add(SECOND).unwrap_or(now.wall);
        for (_, operation) in &mut self.operations {
            let rule = operation.rule(step.books);
            if operation.detections.is_empty()
                && operation.debounce_end.is_none()
                && !rule.is_none_or(CompiledRule::detection_reads_now)
            {
                let earliest = operation.last_detected().min(now.wall);
                let since = changed.clamp(earliest, now.wall);
                operation.start_debounce(since, step.shared.settings.debounce, step.books, now);
                let change = ChangeContext {
                    at: since,
                    ..step.change(&self.subject)
                };
                operation.update_object(change);
                step.shared.show(operation);
            }
        }
    }
}
