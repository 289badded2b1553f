//! Finds the operations that are related to a given operation.

use crate::operation::{InFlightOperation, OperationFacts as _};
use ifo_api::Text;

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

/// Returns the relation of `other` to `operation`. None if they are not related. A correlation group
/// is of one namespace, and can have operations on cluster-scoped objects, too.
fn relation(operation: &InFlightOperation, other: &InFlightOperation) -> Option<&'static str> {
    let (own, subject) = (&operation.spec.subject, &other.spec.subject);
    let owns = |owner: &Option<Text>, owned: &InFlightOperation| {
        let mut references = owned.spec.subject.owner_references.iter();
        references.any(|it| owner.as_ref() == Some(&it.uid))
    };
    let identity = |it: &InFlightOperation| {
        let subject = &it.spec.subject;
        (
            subject.kind.clone(),
            subject.namespace.clone(),
            subject.name.clone(),
        )
    };
    let is_near = own.namespace == subject.namespace
        || own.namespace.is_none()
        || subject.namespace.is_none();
    let group = operation.correlation("group").filter(|it| !it.is_empty());
    if identity(operation) == identity(other) {
        Some("Same subject")
    } else if owns(&subject.uid, operation) {
        Some("Owner")
    } else if owns(&own.uid, other) {
        Some("Owned")
    } else if operation.work_key().is_some() && operation.work_key() == other.work_key() {
        Some("Same work")
    } else {
        (is_near && group.is_some() && group == other.correlation("group")).then_some("Same group")
    }
}
