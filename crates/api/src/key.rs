//! The key of an object (its namespace and name), and the order of keys.

use crate::Text;
use std::cmp::Ordering;
use std::fmt;

/// The namespace and name of an object. Keys are sorted by the bytes of `namespace/name`, like the
/// keys of etcd. The byte of `-` is less than the byte of `/`. So all keys in the namespace `a-b`
/// come before the keys in `a`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Namespace. Empty for a cluster-scoped object.
    pub namespace: Text,
    /// Name of the object.
    pub name: Text,
}

impl Key {
    /// Creates a key. `namespace` is empty for a cluster-scoped object.
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

    /// Returns the bytes of `namespace/name`, by which keys are sorted.
    fn path(&self) -> impl Iterator<Item = u8> {
        namespace_and_slash(&self.namespace).chain(self.name.bytes())
    }
}

/// A sort of objects in the index. All sorts are in one index, so that they have common versions.
/// So that their keys differ, the namespace in a key has a prefix, for example `records/team-a`. No
/// namespace of Kubernetes contains a slash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Collection {
    /// Operations. In the demo, the rule sets are also in this collection, but in an index of their
    /// own.
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

/// Returns the bytes of `namespace/`, or nothing if `namespace` is empty.
fn namespace_and_slash(namespace: &str) -> impl Iterator<Item = u8> {
    let slash: &[u8] = if namespace.is_empty() { b"" } else { b"/" };
    namespace.bytes().chain(slash.iter().copied())
}

/// Compares two namespaces by the order of the keys in them. For example, `a-b` comes before `a`.
pub fn compare_namespaces(a: &str, b: &str) -> Ordering {
    namespace_and_slash(a).cmp(namespace_and_slash(b))
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.namespace == other.namespace {
            return self.name.cmp(&other.name);
        }
        // If names contain slashes, two different keys can have the same path. For example,
        // the namespace `a` with the name `b/c` and the namespace `a/b` with the name `c` both
        // give `a/b/c`. Kubernetes forbids such names. The comparison of the namespaces ensures
        // that even these keys do not compare as equal.
        self.path()
            .cmp(other.path())
            .then_with(|| self.namespace.cmp(&other.namespace))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_by_the_bytes_of_namespace_and_name() {
        let mut keys = [
            Key::new("a", "x"),
            Key::new("a0", "a"),
            Key::new("", "a.b"),
            Key::new("a-b", "z"),
            Key::new("a", "b"),
            Key::new("", "a"),
            Key::new("b", "a"),
        ];
        keys.sort();
        let paths: Vec<String> = keys.iter().map(ToString::to_string).collect();
        assert_eq!(paths, ["a", "a-b/z", "a.b", "a/b", "a/x", "a0/a", "b/a"]);
        assert!(paths.is_sorted());
    }

    #[test]
    fn namespaces_are_ordered_like_their_keys() {
        assert_eq!(compare_namespaces("a-b", "a"), Ordering::Less);
        assert_eq!(compare_namespaces("a", "a0"), Ordering::Less);
        assert_eq!(compare_namespaces("a", "a"), Ordering::Equal);
    }
}
