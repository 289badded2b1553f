//! The part of the store that a list or a watch covers.

use super::{Collection, Key};
use std::sync::Arc;

/// The part of the store that a list or a watch covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All objects of one collection.
    Collection(Collection),
    /// All objects of all collections. A replica that copies the whole store uses this scope.
    Everything,
    /// The objects of one collection in one namespace. The value is the namespace in the key that
    /// [`Collection::key`] returns, such as `records/team-a`.
    Namespace(Arc<str>),
    /// One object.
    Object(Key),
}

impl Scope {
    /// Returns true if the object at `key` is in the scope.
    pub fn contains(&self, key: &Key) -> bool {
        match self {
            Self::Namespace(namespace) => *namespace == key.namespace,
            Self::Object(object) => object == key,
            Self::Collection(collection) => collection.has_namespace(&key.namespace),
            Self::Everything => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_contains_exactly_its_keys() {
        const RECORDS: Collection = Collection::new("records/");
        let default = Scope::Collection(Collection::DEFAULT);
        let records = Scope::Collection(RECORDS);
        let key = Key::new("a", "x");
        assert!(default.contains(&key));
        assert!(Scope::Namespace("a".into()).contains(&key));
        assert!(!Scope::Namespace("a-b".into()).contains(&key));
        assert!(Scope::Object(key.clone()).contains(&key));
        assert!(!Scope::Object(Key::new("b", "x")).contains(&key));
        let record = RECORDS.key("a", "x");
        assert!(records.contains(&record) && !records.contains(&key));
        assert!(!default.contains(&record));
        assert!(Scope::Everything.contains(&record) && Scope::Everything.contains(&key));
        assert!(!Scope::Namespace("a".into()).contains(&record));
        assert!(Scope::Namespace(record.namespace.clone()).contains(&record));
        assert_eq!(record.object_namespace(), "a");
    }
}
