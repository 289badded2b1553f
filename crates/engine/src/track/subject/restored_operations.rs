//! Tracks the restored operations of an object after a restart or a change of the leader. At first,
//! the rule sets of these operations are known only by name, and the object has not been evaluated.

use super::TrackedSubject;
use super::context::{SECOND, SubjectEventContext};
use crate::ClockReading;
use crate::rules::{CompiledRule, RuleBook, RuleSetsWithoutBook};
use crate::track::end_reason::End;
use crate::track::operation::{ChangeContext, Operation, SubjectView, UNKNOWN_TARGET};
use ifo_api::Gvr;
use ifo_api::Text;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;

impl TrackedSubject {
    /// Creates a subject for restored operations. Its target and rules are not known yet.
    pub(in crate::track) fn from_earlier_leader(identity: Text, view: SubjectView) -> Self {
        Self {
            is_unevaluated: true,
            has_unbound_rule_sets: true,
            ..Self::new(identity, view, UNKNOWN_TARGET.clone())
        }
    }

    /// Adds a restored operation in flight.
    pub(in crate::track) fn restore(&mut self, operation: Operation) {
        self.operations.insert(operation.what.clone(), operation);
    }

    /// Returns true if the target of this restored subject is unknown. The target becomes known
    /// with the first evaluation of the subject, or with the first rule book (the rule sets of one
    /// target) for its kind and version.
    pub(in crate::track) fn has_no_target(&self) -> bool {
        self.target.resource.is_empty()
    }

    /// Returns true if the subject has rule sets that are known only by name, and `book` can
    /// contain these rule sets. `book` is the rule book of `target`.
    pub(in crate::track) fn may_bind(&self, target: &Arc<Gvr>, book: &RuleBook) -> bool {
        let is_kind = || {
            *self.view.kind == *book.kind && *self.view.api_version == *book.target.api_version()
        };
        self.has_unbound_rule_sets && (self.target == *target || self.has_no_target() && is_kind())
    }

    /// Replaces rule sets that are known only by name with the rule sets of `book`.
    ///
    /// An operation that the previous leader no longer detected is in its debounce period. When its
    /// rule set becomes known, this period continues: it counts from the last detection of the
    /// operation. The period cannot end before the subject is evaluated with the new rules.
    /// `debounce` is the default debounce period, for rules without a `debounce` of their own.
    pub(in crate::track) fn bind_rules(
        &mut self,
        target: &Arc<Gvr>,
        book: &RuleBook,
        debounce: Duration,
        now: ClockReading,
    ) {
        self.target = target.clone();
        for (_, operation) in &mut self.operations {
            let namespace = self.view.subject.namespace.as_deref();
            if operation.bind_rules(book, target, namespace) && operation.detections.is_empty() {
                operation.start_debounce(operation.last_detected(), debounce, now);
                self.is_unevaluated = true;
            }
        }
    }

    /// Completes the operations that no rule can detect. When the caller calls this method, each
    /// rule set is either in a rule book that has arrived, or in `without_book`. If a rule set is
    /// in the list `undecided` of `without_book`, its rules can still arrive. So its operations
    /// stay in flight.
    pub(in crate::track) fn all_rule_books_sent(
        &mut self,
        without_book: &RuleSetsWithoutBook,
        step: &mut SubjectEventContext<'_>,
    ) {
        let namespace = self.view.subject.namespace.clone();
        let book = step.books.get(&self.target);
        let (debounce, now) = (step.shared.settings.debounce, step.now);
        let target = self.target.clone();
        let mut has_unbound = false;
        let over = |operation: &mut Operation| {
            let is_known = operation.drop_unbound(|name| without_book.undecided.contains(name));
            has_unbound |= !is_known;
            if is_known
                && book.is_some_and(|it| operation.bind_to_any(it, &target, namespace.as_deref()))
                && operation.detections.is_empty()
            {
                operation.start_debounce(operation.last_detected(), debounce, now);
            }
            let what = &operation.what;
            let has_rule = || {
                book.is_some_and(|it| {
                    it.has_rule(&what.component, &what.operation, namespace.as_deref())
                })
            };
            let is_over = is_known && operation.detections.is_empty() && !has_rule();
            let rule_set = &*operation.primary.rule_set.name;
            let is_unserved = without_book.unserved.contains(rule_set);
            is_over.then_some(if is_unserved {
                End::TargetRemoved
            } else {
                End::RuleRemoved
            })
        };
        self.complete_each(over, step.now.wall, step);
        self.has_unbound_rule_sets = has_unbound;
        self.refresh(step);
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
            let rule = operation.primary.rule();
            if operation.detections.is_empty()
                && operation.debounce_end.is_none()
                && !rule.is_none_or(CompiledRule::detection_reads_now)
            {
                let earliest = operation.last_detected().min(now.wall);
                let since = changed.clamp(earliest, now.wall);
                operation.start_debounce(since, step.shared.settings.debounce, now);
                let change = ChangeContext {
                    at: since,
                    ..step.change(&self.view)
                };
                operation.update_object(change);
                step.shared.show(operation);
            }
        }
    }
}
