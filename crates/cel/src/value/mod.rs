//! The values that the evaluation of a CEL expression computes. A clone of a value is cheap: a large
//! value is reference-counted, or refers to the program or the document. The program is the
//! compiled expression. The document is the JSON that the expression reads.

pub(crate) mod compare;
pub(crate) mod constant;
pub(crate) mod duration;
pub(crate) mod failure;
pub(crate) mod fault;
pub(crate) mod named_format;
pub(crate) mod quantity;
pub(crate) mod time;
pub(crate) mod url;

use std::net::IpAddr;
use std::ops::Deref;
use std::rc::Rc;

use ipnet::IpNet;
use semver::Version;

use self::named_format::NamedFormat;
use self::quantity::Quantity;
use self::time::CelTimestamp;
use self::url::Url;
use crate::document::item::{DocItem, Node};
use crate::regex::pattern::Pattern;

/// A CEL value. `'e` is the lifetime of the document and of the program.
#[derive(Clone)]
pub(crate) enum V<'e> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Str(Text<'e>),
    Bytes(Bytes<'e>),
    /// A duration in nanoseconds.
    Duration(i64),
    Time(CelTimestamp),
    Type(&'static str),
    /// The compiled form of a string literal that is a regular expression.
    Pattern(&'e Pattern),
    Quantity(Rc<Quantity>),
    Url(Rc<Url>),
    Ip(Rc<IpAddr>),
    Cidr(Rc<IpNet>),
    Semver(Rc<Version>),
    NamedFormat(&'static NamedFormat),
    /// An optional value. None stands for `optional.none()`.
    Optional(Option<Rc<V<'e>>>),
    /// A list or map of the document.
    Node(Node<'e>),
    List(Rc<[V<'e>]>),
    Map(Rc<[(V<'e>, V<'e>)]>),
}

#[derive(Clone)]
pub(crate) enum Text<'e> {
    Ref(&'e str),
    Own(Rc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Ref(text) => text,
            Self::Own(text) => text,
        }
    }
}

#[derive(Clone)]
pub(crate) enum Bytes<'e> {
    Ref(&'e [u8]),
    Own(Rc<[u8]>),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Ref(bytes) => bytes,
            Self::Own(bytes) => bytes,
        }
    }
}

impl<'e> V<'e> {
    /// Converts a node of the document. Lists and maps are not copied, but refer to the document.
    pub(crate) fn of(node: Node<'e>) -> Self {
        match node.item() {
            DocItem::Null => Self::Null,
            DocItem::Bool(value) => Self::Bool(*value),
            DocItem::Int(value) => Self::Int(*value),
            DocItem::Double(value) => Self::Double(*value),
            DocItem::Str(value) => Self::Str(Text::Ref(value)),
            DocItem::List(_) | DocItem::Map(_) => Self::Node(node),
        }
    }

    pub(crate) fn text(text: &str) -> Self {
        Self::Str(Text::Own(text.into()))
    }

    /// Returns a number as a double, which can be rounded. Returns None for values of other types.
    #[allow(clippy::cast_precision_loss)] // The conversion rounds.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(*value as f64),
            Self::Uint(value) => Some(*value as f64),
            Self::Double(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns an optional with a value.
    pub(crate) fn some(value: V<'e>) -> Self {
        Self::Optional(Some(Rc::new(value)))
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Str(_) | Self::Pattern(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Time(_) => "google.protobuf.Timestamp",
            Self::Type(_) => "type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Url(_) => "kubernetes.URL",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Semver(_) => "kubernetes.Semver",
            Self::NamedFormat(_) => "kubernetes.NamedFormat",
            Self::Optional(_) => "optional_type",
            Self::Node(_) if self.is_list() => "list",
            Self::List(_) => "list",
            Self::Node(_) | Self::Map(_) => "map",
        }
    }

    pub(crate) fn is_list(&self) -> bool {
        match self {
            Self::Node(node) => matches!(node.item(), DocItem::List(_)),
            Self::List(_) => true,
            _ => false,
        }
    }

    pub(crate) fn is_map(&self) -> bool {
        match self {
            Self::Node(node) => matches!(node.item(), DocItem::Map(_)),
            Self::Map(_) => true,
            _ => false,
        }
    }

    /// Returns the number of elements of a list or entries of a map, and 0 for other values.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Node(node) => node.len(),
            Self::List(items) => items.len(),
            Self::Map(entries) => entries.len(),
            _ => 0,
        }
    }

    /// Returns the element of a list at `index`. Returns None if the value is not a list, or has no
    /// such element.
    pub(crate) fn element(&self, index: usize) -> Option<V<'e>> {
        match self {
            Self::Node(node) => node.element(index).map(V::of),
            Self::List(items) => items.get(index).cloned(),
            _ => None,
        }
    }

    /// Returns the key and the value of the entry of a map at `index`. Returns None if the value is
    /// not a map, or has no such entry.
    pub(crate) fn entry(&self, index: usize) -> Option<(V<'e>, V<'e>)> {
        match self {
            Self::Node(node) => {
                let member = node.member(index);
                member.map(|(key, node)| (V::Str(Text::Ref(key)), V::of(node)))
            }
            Self::Map(entries) => entries.get(index).cloned(),
            _ => None,
        }
    }

    /// Returns the value that a comprehension visits at `index`: an element of a list or a key of a
    /// map.
    pub(crate) fn item(&self, index: usize) -> Option<V<'e>> {
        if self.is_list() {
            self.element(index)
        } else {
            self.entry(index).map(|(key, _)| key)
        }
    }

    /// Returns the value of `key` in a map. Numbers of different types match if they are equal.
    /// Returns None if the value is not a map, or has no such key.
    pub(crate) fn find(&self, key: &V<'e>) -> Option<V<'e>> {
        match (self, key) {
            (Self::Node(node), Self::Str(name)) => node.get(name).map(V::of),
            (Self::Map(entries), _) => {
                let at = |key: &V<'e>| {
                    entries
                        .iter()
                        .find_map(|(own, value)| same_key(own, key).then(|| value.clone()))
                };
                at(key).or_else(|| {
                    match *key {
                        Self::Int(int) => [u64::try_from(int).ok().map(V::Uint), None],
                        Self::Uint(uint) => [i64::try_from(uint).ok().map(V::Int), None],
                        Self::Double(double) => [
                            exact_int(double).map(V::Int),
                            exact_uint(double).map(V::Uint),
                        ],
                        _ => [None, None],
                    }
                    .iter()
                    .flatten()
                    .find_map(at)
                })
            }
            _ => None,
        }
    }

    /// Returns the elements of a list.
    pub(crate) fn elements(&self) -> impl DoubleEndedIterator<Item = V<'e>> + use<'_, 'e> {
        (0..self.len()).filter_map(|index| self.element(index))
    }

    /// Returns the entries of a map.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (V<'e>, V<'e>)> + use<'_, 'e> {
        (0..self.len()).filter_map(|index| self.entry(index))
    }

    /// Returns the value of the key `name` in a map. Returns None if the value is not a map, or has
    /// no such key.
    pub(crate) fn field(&self, name: &'e str) -> Option<V<'e>> {
        match self {
            Self::Node(node) => node.get(name).map(V::of),
            Self::Map(_) => self.find(&V::Str(Text::Ref(name))),
            _ => None,
        }
    }
}

/// Returns true if two keys of a map are equal and have the same type.
pub(crate) fn same_key(a: &V<'_>, b: &V<'_>) -> bool {
    match (a, b) {
        (V::Null, V::Null) => true,
        (V::Bool(a), V::Bool(b)) => a == b,
        (V::Int(a), V::Int(b)) | (V::Duration(a), V::Duration(b)) => a == b,
        (V::Uint(a), V::Uint(b)) => a == b,
        (V::Double(a), V::Double(b)) => same_double(*a, *b),
        (V::Str(a), V::Str(b)) => **a == **b,
        (V::Time(a), V::Time(b)) => a.utc == b.utc,
        (V::Type(a), V::Type(b)) => a == b,
        _ => false,
    }
}

/// 2^63, which is the first double above the range of `i64`.
const TWO_63: f64 = 9_223_372_036_854_775_808.0;
/// 2^64, which is the first double above the range of `u64`.
const TWO_64: f64 = 18_446_744_073_709_551_616.0;

/// Returns the integer that equals a double, if there is one.
#[allow(clippy::cast_possible_truncation)] // The value is in the range and has no fraction.
pub(crate) fn exact_int(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && (-TWO_63..TWO_63).contains(&value)).then_some(value as i64)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // The value is in the range.
pub(super) fn exact_uint(value: f64) -> Option<u64> {
    (value.fract() == 0.0 && (0.0..TWO_64).contains(&value)).then_some(value as u64)
}

/// Returns the integer part of a double, or None if it is outside of the range of `i64`. As in
/// cel-go, -2^63 also counts as outside of the range.
#[allow(clippy::cast_possible_truncation)] // The value is in the range.
pub(crate) fn truncate_int(value: f64) -> Option<i64> {
    (value > -TWO_63 && value < TWO_63).then_some(value as i64)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // The value is in the range.
pub(crate) fn truncate_uint(value: f64) -> Option<u64> {
    (0.0..TWO_64).contains(&value).then_some(value as u64)
}

/// Returns true if two doubles are equal. NaN is not equal to itself.
pub(super) fn same_double(a: f64, b: f64) -> bool {
    a.partial_cmp(&b) == Some(std::cmp::Ordering::Equal)
}
