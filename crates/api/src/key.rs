//! The key of an object in the index: its collection, its namespace and its name.

use crate::Text;
use std::fmt;

/// The key of an object in the index.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The namespace of the object, after the prefix of its [`Collection`]. For a cluster-scoped
    /// object, this is only the prefix.
    pub namespace: Text,
    /// Name of the object.
    pub name: Text,
}

impl Key {
    /// Creates a key. `namespace` must have the prefix of the object's [`Collection`]. Operations
    /// have no prefix. [`Collection::key`] adds the prefix.
    pub fn new(namespace: impl Into<Text>, name: impl Into<Text>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Returns the collection that the object belongs to.
    pub fn collection(&self) -> Collection {
        Collection::of(&self.namespace)
    }

    /// Returns true if this is the key of a record.
    pub fn is_record(&self) -> bool {
        self.collection() == Collection::Records
    }

    /// Returns the namespace of the object: the namespace of the key without the prefix of the
    /// collection.
    pub fn object_namespace(&self) -> &str {
        let namespace = &*self.namespace;
        namespace.split_once('/').map_or(namespace, |(_, own)| own)
    }
}

/// The type of an object in the index. Objects of all types are in one index, so that one
/// resourceVersion describes the state of all of them.
///
/// The namespace in a key has a prefix that depends on the type, for example `records/team-a`. So
/// objects of different types never have the same key. No namespace of Kubernetes contains a slash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Collection {
    /// Operations.
    Operations,
    /// Records of completed operations.
    Records,
    /// Activities.
    Activities,
    /// The rule sets that may miss operations ([`Gaps`](crate::completeness::Gaps)), as one object.
    Gaps,
}

impl Collection {
    /// Returns the prefix of the namespace in a key.
    fn prefix(self) -> &'static str {
        match self {
            Self::Operations => "",
            Self::Records => "records/",
            Self::Activities => "activities/",
            Self::Gaps => "gaps/",
        }
    }

    /// Returns the collection of the keys with this namespace.
    pub fn of(namespace: &str) -> Self {
        let all = [Self::Records, Self::Activities, Self::Gaps];
        let mut all = all.into_iter();
        let own = all.find(|it| namespace.starts_with(it.prefix()));
        own.unwrap_or(Self::Operations)
    }

    /// Creates the key of an object of this collection. `namespace` is the namespace of the object.
    pub fn key(self, namespace: &str, name: impl Into<Text>) -> Key {
        Key::new([self.prefix(), namespace].concat(), name)
    }
}

/// Formats the key as `namespace/name`. For a cluster-scoped object, the result is only the name.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}
