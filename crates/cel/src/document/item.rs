//! The values of a decoded JSON object.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

/// If an object has at most this number of members, [`Node::get`] searches them linearly. For more
/// members, a binary search is faster.
const MAX_LINEAR_SEARCH: usize = 8;

/// A decoded value. Strings without escapes are borrowed from the JSON text. A number that is
/// written as an integer and fits `i64` is an integer. Every other number is a double.
pub(crate) enum DocItem<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Str(Cow<'a, str>),
    List(Vec<DocItem<'a>>),
    /// The members are sorted by key. If a key is repeated in the text, the last value is used.
    Map(Vec<(Cow<'a, str>, DocItem<'a>)>),
}

impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            DocItem::Null => serializer.serialize_unit(),
            DocItem::Bool(value) => serializer.serialize_bool(*value),
            DocItem::Int(value) => serializer.serialize_i64(*value),
            DocItem::Double(value) => serializer.serialize_f64(*value),
            DocItem::Str(value) => serializer.serialize_str(value),
            DocItem::List(_) => serializer.collect_seq(self.elements()),
            DocItem::Map(_) => serializer.collect_map(self.members()),
        }
    }
}

/// One value in a [`Doc`](crate::Doc).
#[derive(Clone, Copy)]
pub struct Node<'d>(pub(super) &'d DocItem<'d>);

impl<'d> Node<'d> {
    /// Returns the member `name` of this object. None if the object has no such member, or if this
    /// value is not an object.
    pub fn get(self, name: &str) -> Option<Node<'d>> {
        let DocItem::Map(members) = self.0 else {
            return None;
        };
        let found = if members.len() <= MAX_LINEAR_SEARCH {
            members.iter().find(|(key, _)| key == name)
        } else {
            let at = members.binary_search_by(|(key, _)| (**key).cmp(name));
            at.ok().and_then(|at| members.get(at))
        };
        found.map(|(_, item)| Node(item))
    }

    /// Returns the string. None if the value has another type.
    pub fn as_str(self) -> Option<&'d str> {
        match self.0 {
            DocItem::Str(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the integer. None if the value has another type.
    pub fn as_i64(self) -> Option<i64> {
        match self.0 {
            DocItem::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the boolean. None if the value has another type.
    pub fn as_bool(self) -> Option<bool> {
        match self.0 {
            DocItem::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the elements of a list. If the value has another type, the iterator is empty.
    pub fn elements(self) -> impl Iterator<Item = Node<'d>> {
        let elements = match self.0 {
            DocItem::List(items) => &**items,
            _ => &[],
        };
        elements.iter().map(Node)
    }

    /// Returns the members of an object, sorted by key. If the value has another type, the iterator
    /// is empty.
    pub fn members(self) -> impl Iterator<Item = (&'d str, Node<'d>)> {
        let members = match self.0 {
            DocItem::Map(members) => &**members,
            _ => &[],
        };
        members.iter().map(|(key, item)| (&**key, Node(item)))
    }

    pub(crate) fn item(self) -> &'d DocItem<'d> {
        self.0
    }

    /// Returns the number of members or elements. A value of another type has none.
    pub(crate) fn len(self) -> usize {
        match self.0 {
            DocItem::List(items) => items.len(),
            DocItem::Map(members) => members.len(),
            _ => 0,
        }
    }

    /// Returns the element of a list at `index`.
    pub(crate) fn element(self, index: usize) -> Option<Node<'d>> {
        match self.0 {
            DocItem::List(items) => items.get(index).map(Node),
            _ => None,
        }
    }

    /// Returns the member of an object at `index`, with its key.
    pub(crate) fn member(self, index: usize) -> Option<(&'d str, Node<'d>)> {
        match self.0 {
            DocItem::Map(members) => {
                let (key, item) = members.get(index)?;
                Some((key, Node(item)))
            }
            _ => None,
        }
    }
}
