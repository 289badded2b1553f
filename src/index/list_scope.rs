//! The part of the index that a list or a watch covers.

use super::Key;
use ifo_api::{Collection, Text};

/// The part of the index that a list or a watch covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListScope {
    /// All operations.
    Operations,
    /// All records of completed operations.
    Records,
    /// All activities.
    Activities,
    /// All objects. A follower copies them, and a new leader takes them over.
    Everything,
    /// The objects of one collection in one namespace. The value is the namespace in the key that
    /// [`Collection::key`] returns, such as `records/team-a`.
    Namespace(Text),
    /// One object.
    Object(Key),
}

impl ListScope {
    /// Returns true if the object at `key` is in the scope.
    pub fn contains(&self, key: &Key) -> bool {
        match self {
            Self::Namespace(namespace) => *namespace == key.namespace,
            Self::Object(object) => object == key,
            whole => whole.has_namespace(&key.namespace),
        }
    }

    /// Returns true if the scope contains objects whose keys have this namespace.
    pub(super) fn has_namespace(&self, namespace: &str) -> bool {
        match self {
            Self::Operations => Collection::of(namespace) == Collection::Operations,
            Self::Records => Collection::of(namespace) == Collection::Records,
            Self::Activities => Collection::of(namespace) == Collection::Activities,
            Self::Everything => true,
            Self::Namespace(own) => **own == *namespace,
            Self::Object(key) => *key.namespace == *namespace,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_contains_exactly_its_keys() {
        let key = Key::new("a", "x");
        assert!(ListScope::Operations.contains(&key));
        assert!(ListScope::Namespace("a".into()).contains(&key));
        assert!(!ListScope::Namespace("a-b".into()).contains(&key));
        assert!(ListScope::Object(key.clone()).contains(&key));
        assert!(!ListScope::Object(Key::new("b", "x")).contains(&key));
        let record = Collection::Records.key("a", "x");
        assert!(ListScope::Records.contains(&record) && !ListScope::Records.contains(&key));
        assert!(!ListScope::Operations.contains(&record));
        assert!(ListScope::Everything.contains(&record) && ListScope::Everything.contains(&key));
        assert!(!ListScope::Namespace("a".into()).contains(&record));
        assert!(ListScope::Namespace(record.namespace.clone()).contains(&record));
        assert_eq!(record.object_namespace(), "a");
    }
}
