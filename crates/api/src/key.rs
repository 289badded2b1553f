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

    /// Creates the key of a record. A record is an object with the result of one completed
    /// operation.
    ///
    /// Records and operations are in one index, and a record has the namespace and name of its
    /// operation. So that the two keys differ, the namespace in the key of a record has a prefix,
    /// for example `records/team-a`. No namespace of Kubernetes contains a slash.
    pub fn of_record(namespace: &str, name: impl Into<Text>) -> Self {
        Self::new([RECORD_PREFIX, namespace].concat(), name)
    }

    /// Returns true if this is the key of a record.
    pub fn is_record(&self) -> bool {
        is_record_namespace(&self.namespace)
    }

    /// Returns the namespace of the object. For the key of a record, this is the namespace without
    /// the prefix.
    pub fn object_namespace(&self) -> &str {
        let namespace = &*self.namespace;
        namespace.strip_prefix(RECORD_PREFIX).unwrap_or(namespace)
    }

    /// Returns the bytes of `namespace/name`, by which keys are sorted.
    fn path(&self) -> impl Iterator<Item = u8> {
        namespace_and_slash(&self.namespace).chain(self.name.bytes())
    }
}

/// Prefix of the namespace in the key of a record.
const RECORD_PREFIX: &str = "records/";

/// Returns true if `namespace` is the namespace in the key of a record.
pub fn is_record_namespace(namespace: &str) -> bool {
    namespace.starts_with(RECORD_PREFIX)
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
