//! Finds the operations that are related to a given operation, for the command `describe`.
//!
//! A related operation is on the same object, on a direct or indirect owner of the object, or on a
//! direct or indirect dependent of the object. A rule set can also put operations into a
//! correlation group, with the label `ifo.kubevirt.io/correlation-group`. If operations on two
//! objects are in the same group, all operations on the two objects are related.

use crate::listed_operation::ListedOperation;
use crate::ownership::{Ownership, OwnershipNode};
use std::collections::BTreeSet;

/// An operation that is related to the described operation.
#[derive(Debug)]
pub(super) struct Related<'a> {
    /// The relation to the described operation, in words: `Same subject`, `Owner`, `Owned` or `Same
    /// group`.
    pub(super) how: &'static str,
    pub(super) operation: &'a ListedOperation,
}

const SAME_SUBJECT: &str = "Same subject";
const OWNER: &str = "Owner";
const OWNED: &str = "Owned";
const SAME_GROUP: &str = "Same group";

/// Returns all operations that are related to `operation`, active ones first.
pub(super) fn to<'a>(operation: &ListedOperation, ownership: &Ownership<'a>) -> Vec<Related<'a>> {
    let is_described = |it: &&ListedOperation| it.key() == operation.key();
    let Some(own_index) = ownership.of_operation(operation) else {
        return Vec::new();
    };
    let own = &ownership.nodes[own_index];
    let (owners, owned) = (ownership.owners(own_index), ownership.owned(own_index));
    let groups = groups(own);
    let mut related = Vec::new();
    for (index, node) in ownership.nodes.iter().enumerate() {
        let how = if index == own_index {
            SAME_SUBJECT
        } else if owners.contains(&index) {
            OWNER
        } else if owned.contains(&index) {
            OWNED
        } else if can_share_group(own, node)
            && self::groups(node).intersection(&groups).next().is_some()
        {
            SAME_GROUP
        } else {
            continue;
        };
        let others = node
            .operations
            .iter()
            .copied()
            .filter(|it| !is_described(it));
        related.extend(others.map(|operation| Related { how, operation }));
    }
    related.sort_by_key(|it| (!it.operation.active, it.operation.subject.namespace.clone()));
    related
}

/// Returns true if operations on the two objects can be in the same correlation group. The objects
/// must be in the same namespace, or at least one object must be cluster-scoped.
fn can_share_group(a: &OwnershipNode<'_>, b: &OwnershipNode<'_>) -> bool {
    let (a, b) = (a.identity.namespace, b.identity.namespace);
    a == b || a.is_none() || b.is_none()
}

fn groups<'a>(node: &OwnershipNode<'a>) -> BTreeSet<&'a str> {
    let groups = node
        .operations
        .iter()
        .filter_map(|it| it.correlation("group"));
    groups.filter(|group| !group.is_empty()).collect()
}
