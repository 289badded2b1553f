//! The part of the index that a list or a watch covers.

use super::Key;
use std::sync::Arc;

/// The part of the index that a list or a watch covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListScope {
    /// All namespaces.
    All,
    /// One namespace.
    Namespace(Arc<str>),
    /// One object.
    Object(Key),
}

impl ListScope {
    /// Returns true if the object at `key` is in the scope.
    pub fn contains(&self, key: &Key) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => *namespace == key.namespace,
            Self::Object(object) => object == key,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_contains_exactly_its_keys() {
        let key = Key::new("a", "x");
        assert!(ListScope::All.contains(&key));
        assert!(ListScope::Namespace("a".into()).contains(&key));
        assert!(!ListScope::Namespace("a-b".into()).contains(&key));
        assert!(ListScope::Object(key.clone()).contains(&key));
        assert!(!ListScope::Object(Key::new("b", "x")).contains(&key));
    }
}
