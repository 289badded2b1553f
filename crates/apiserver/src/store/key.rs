//! The key of an object (its namespace and name), and the order of keys.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The namespace and name of an object. Keys are sorted by the bytes of `namespace/name`, like the
/// keys of etcd. The byte of `-` is less than the byte of `/`. So all keys in the namespace `a-b`
/// come before the keys in `a`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The prefix of the [`Collection`], followed by the namespace of the object. The namespace is
    /// empty for a cluster-scoped object.
    pub namespace: Arc<str>,
    /// Name of the object.
    pub name: Arc<str>,
}

impl Key {
    /// Creates a key. `namespace` has the form of [`Key::namespace`].
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
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

/// A set of objects in the store, for example the objects of one resource. One store holds all
/// collections of a server, so that they share one sequence of versions. In a key, the prefix of
/// the collection precedes the namespace, for example `records/team-a`. So the keys of different
/// collections differ, because no namespace of Kubernetes contains a slash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Collection(&'static str);

impl Collection {
    /// The collection without a prefix.
    pub const DEFAULT: Self = Self("");

    /// Creates a collection. `prefix` must end with a slash and contain no other slash.
    pub const fn new(prefix: &'static str) -> Self {
        Self(prefix)
    }

    /// Creates the key of an object of this collection. `namespace` is the namespace of the object.
    pub fn key(self, namespace: &str, name: impl Into<Arc<str>>) -> Key {
        Key::new([self.0, namespace].concat(), name)
    }

    /// Returns true if the keys with this namespace belong to the collection.
    pub(super) fn has_namespace(self, namespace: &str) -> bool {
        if self == Self::DEFAULT {
            !namespace.contains('/')
        } else {
            namespace.starts_with(self.0)
        }
    }
}

/// Returns the bytes of `namespace/`, or nothing if `namespace` is empty.
fn namespace_and_slash(namespace: &str) -> impl Iterator<Item = u8> {
    let slash: &[u8] = if namespace.is_empty() { b"" } else { b"/" };
    namespace.bytes().chain(slash.iter().copied())
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.namespace == other.namespace {
            return self.name.cmp(&other.name);
        }
        // If names contain slashes, two different keys can have the same path. For example, the
        // namespace `a` with the name `b/c` and the namespace `a/b` with the name `c` both give
        // `a/b/c`. Kubernetes forbids such names. The comparison of the namespaces ensures that
        // even these keys do not compare as equal.
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
}
