//! The rules of all targets. Operations refer to their rule sets by name. The reason: after a
//! restart or a change of the leader, operations are restored before their rule sets arrive.

use super::superseded_operations::OperationName;
use crate::rules::{CompiledRule, RuleBook, RuleSet, RuleSetsWithoutBook};
use ifo_api::live::SubjectReference;
use ifo_api::{Gvr, Text};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The rule book of each target. A target is a resource that rule sets watch. Its rule book
/// contains all rule sets that watch it.
#[derive(Debug, Default)]
pub struct Books {
    by_target: HashMap<Arc<Gvr>, Arc<RuleBook>>,
    /// The rule sets of all rule books, by name, each with its rule book.
    rule_sets: HashMap<Text, (Arc<RuleBook>, Arc<RuleSet>)>,
    /// The rules that the last change of a rule book has removed: the name of the rule set, and the
    /// operation. These rules do not count as rules that may still arrive ([`Books::may_arrive`]).
    removed: HashSet<(Text, Text)>,
    /// The rule sets without a rule book. None until the server has read all rule sets.
    pub without_book: Option<Arc<RuleSetsWithoutBook>>,
}

impl Books {
    /// Replaces the rule book of a target. None if no rules for the target remain.
    pub fn set(&mut self, target: &Arc<Gvr>, book: Option<Arc<RuleBook>>) {
        match book {
            Some(book) => self.by_target.insert(target.clone(), book),
            None => self.by_target.remove(target),
        };
        let all = self.by_target.values().flat_map(|book| {
            let rule_sets = book.rule_sets.iter();
            rule_sets.map(|it| (it.name.clone(), (book.clone(), it.clone())))
        });
        let before = std::mem::replace(&mut self.rule_sets, all.collect());
        let rules = before.values().flat_map(|(_, rule_set)| {
            let rules = rule_set.rules.iter();
            rules.map(|rule| (rule_set.name.clone(), rule.operation.clone()))
        });
        let is_removed = |(name, operation): &(Text, Text)| self.rule(name, operation).is_none();
        self.removed = rules.filter(is_removed).collect();
    }

    /// Returns the rule book of a target.
    pub fn of(&self, target: &Gvr) -> Option<&Arc<RuleBook>> {
        self.by_target.get(target)
    }

    /// Returns a target whose rules are about objects of the subject's kind.
    pub fn target_of(&self, subject: &SubjectReference) -> Option<&Arc<Gvr>> {
        let mut books = self.by_target.iter();
        books.find_map(|(target, book)| is_about(book, subject).then_some(target))
    }

    /// Returns the rule of a rule set for an operation, and its index in the rule set. None if the
    /// rule does not exist, or has not arrived yet.
    pub fn rule(&self, rule_set: &str, operation: &str) -> Option<(usize, &CompiledRule)> {
        let (_, rule_set) = self.rule_sets.get(rule_set)?;
        rule_set.rule(operation)
    }

    /// Returns true if a rule of the rule set can detect the operation on the subject.
    pub fn can_detect(
        &self,
        rule_set: &str,
        what: &OperationName,
        subject: &SubjectReference,
    ) -> bool {
        let known = self.rule_sets.get(rule_set);
        known.is_some_and(|(book, rule_set)| {
            is_about(book, subject)
                && rule_set.can_detect(
                    &what.component,
                    &what.operation,
                    subject.namespace.as_deref(),
                )
        })
    }

    /// Returns true if the rule set has no rule for the operation yet, and such a rule may still
    /// arrive.
    pub fn may_arrive(&self, rule_set: &Text, operation: &Text) -> bool {
        let without = self.without_book.as_ref();
        without.is_none_or(|it| it.undecided.contains(&**rule_set))
            && self.rule(rule_set, operation).is_none()
            && !(self.removed).contains(&(rule_set.clone(), operation.clone()))
    }

    /// Returns true if the rule set has no rule book, because the cluster does not serve its
    /// target.
    pub fn is_unserved(&self, rule_set: &str) -> bool {
        let without = self.without_book.as_ref();
        !self.rule_sets.contains_key(rule_set)
            && without.is_some_and(|it| it.unserved.contains(rule_set))
    }
}

/// Returns true if the rules of the book are about objects of the subject's kind, in any version.
fn is_about(book: &RuleBook, subject: &SubjectReference) -> bool {
    let group = subject.api_version.split_once('/');
    let group = group.map_or("", |(group, _)| group);
    book.kind == subject.kind && *book.target.group == *group
}
