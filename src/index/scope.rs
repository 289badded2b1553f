//! Which part of the index a reader means.

use super::Key;
use std::sync::Arc;

/// What part of the index a reader means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All namespaces.
    All,
    /// One namespace.
    Namespace(Arc<str>),
    /// One object.
    Object(Key),
}

impl Scope {
    /// Whether the object at `key` is in it.
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
    fn a_scope_contains_its_keys_and_no_others() {
        let key = Key::new("a", "x");
        assert!(Scope::All.contains(&key));
        assert!(Scope::Namespace("a".into()).contains(&key));
        assert!(!Scope::Namespace("a-b".into()).contains(&key));
        assert!(Scope::Object(key.clone()).contains(&key));
        assert!(!Scope::Object(Key::new("b", "x")).contains(&key));
    }
}
