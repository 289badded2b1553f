//! Finds the operations that are related to a given operation.

use crate::operation::{InFlightOperation, OperationFacts as _};
use ifo_api::live::SubjectReference;

/// The relation of an operation to the described operation, in words, and the operation.
pub(super) type Related<'a> = (&'static str, &'a InFlightOperation);

/// Returns all operations that are related to `operation`, active ones first.
pub(super) fn to<'a>(
    operation: &InFlightOperation,
    all: impl IntoIterator<Item = &'a InFlightOperation>,
) -> Vec<Related<'a>> {
    let others = all.into_iter().filter(|it| it.key() != operation.key());
    let related = others.filter_map(|other| Some((relation(operation, other)?, other)));
    let mut related: Vec<Related<'_>> = related.collect();
    related.sort_by_key(|it| !it.1.is_active());
    related
}

/// Returns the relation of `other` to `operation`. None if they are not related.
fn relation(operation: &InFlightOperation, other: &InFlightOperation) -> Option<&'static str> {
    let (own, subject) = (&operation.spec.subject, &other.spec.subject);
    let owns = |owner: &SubjectReference, owned: &SubjectReference| {
        let mut references = owned.owner_references.iter();
        references.any(|it| owner.uid.as_ref() == Some(&it.uid))
    };
    if (&own.kind, &own.namespace, &own.name) == (&subject.kind, &subject.namespace, &subject.name)
    {
        Some("Same subject")
    } else if owns(subject, own) {
        Some("Owner")
    } else if owns(own, subject) {
        Some("Owned")
    } else {
        let is_same_work = operation.work_key() == other.work_key();
        (is_same_work && operation.work_key().is_some()).then_some("Same work")
    }
}
