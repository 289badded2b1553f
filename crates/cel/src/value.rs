//! The values that the evaluation of a CEL expression computes. Equality and order are as in
//! cel-go. A clone of a value is cheap: a large value is reference-counted, or refers to the
//! program or the document. The program is the compiled expression. The document is the JSON that
//! the expression reads.

use std::cmp::Ordering;
use std::net::IpAddr;
use std::ops::Deref;
use std::rc::Rc;

use ipnet::IpNet;
use semver::Version;

use super::eval::SEARCH_BYTES_PER_STEP;
use super::failure::{FailureText, FixedText, MissingKey};
use super::json_document::{DocItem, Node};
use super::named_format::NamedFormat;
use super::op::Const;
use super::quantity::Quantity;
use super::time::CelTimestamp;
use super::url::Url;
use super::{Budget, EvaluationFault};

/// A CEL value. `'e` is the lifetime of the document and of the program.
#[derive(Clone)]
pub(super) enum V<'e> {
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
    Quantity(Rc<Quantity>),
    Url(Rc<Url>),
    Ip(Rc<IpAddr>),
    Cidr(Rc<IpNet>),
    Semver(Rc<Version>),
    NamedFormat(NamedFormat),
    /// An optional value. None stands for `optional.none()`.
    Optional(Option<Rc<V<'e>>>),
    /// A list or map of the document.
    Node(Node<'e>),
    List(Rc<[V<'e>]>),
    Map(Rc<[(V<'e>, V<'e>)]>),
}

#[derive(Clone)]
pub(super) enum Text<'e> {
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
pub(super) enum Bytes<'e> {
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

/// The reason why an evaluation has no result. Errors because of missing fields are common, and
/// `||` often ignores them. So the variants `Missing…` are created without an allocation.
#[derive(Clone)]
pub(super) enum Fault<'e> {
    /// A field that the expression selects by its name does not exist.
    MissingField(&'e str),
    /// A key or index that the expression contains as a literal does not exist.
    MissingLiteral(&'e Const),
    /// A key or index that the expression computes does not exist.
    MissingComputed,
    Error(FixedText),
    /// An error with its place in the expression.
    Located(Rc<FailureText>),
    /// The budget (the number of steps that evaluations may still take) is exhausted.
    Budget,
}

impl Fault<'_> {
    pub(super) fn no_overload() -> Self {
        Self::error("no such overload")
    }

    pub(super) fn error(message: &'static str) -> Self {
        Self::Error(FixedText::of(message))
    }

    /// Returns an error whose text is the concatenation of `words`.
    pub(super) fn words(words: &[&'static str]) -> Self {
        Self::Error(FixedText::joined(words))
    }
}

impl From<Fault<'_>> for EvaluationFault {
    fn from(fault: Fault<'_>) -> Self {
        match fault {
            Fault::MissingField(name) => Self::Missing(MissingKey::spelled(name)),
            Fault::MissingLiteral(key) => Self::Missing(MissingKey::literal(key)),
            Fault::MissingComputed => Self::Missing(MissingKey::default()),
            Fault::Error(message) => Self::Error(Box::new(message.into())),
            Fault::Located(failure) => Self::Error(Box::new((*failure).clone())),
            Fault::Budget => Self::Budget,
        }
    }
}

/// Subtracts `steps` from the budget. If the budget has fewer steps left, the budget becomes zero
/// and the result is an error.
pub(super) fn charge<'e>(budget: &mut Budget, steps: u64) -> Result<(), Fault<'e>> {
    let left = budget.left.checked_sub(steps);
    budget.left = left.unwrap_or_default();
    left.map(|_| ()).ok_or(Fault::Budget)
}

/// Returns the number of steps for `len` units of work, such as bytes. One step pays for `per_step`
/// units. The result is rounded down.
pub(super) fn steps(len: usize, per_step: usize) -> u64 {
    u64::try_from(len / per_step).unwrap_or(u64::MAX)
}

impl<'e> V<'e> {
    /// Converts a node of the document. Lists and maps are not copied, but refer to the document.
    pub(super) fn of(node: Node<'e>) -> Self {
        match node.item() {
            DocItem::Null => Self::Null,
            DocItem::Bool(value) => Self::Bool(*value),
            DocItem::Int(value) => Self::Int(*value),
            DocItem::Double(value) => Self::Double(*value),
            DocItem::Str(value) => Self::Str(Text::Ref(value)),
            DocItem::List(_) | DocItem::Map(_) => Self::Node(node),
        }
    }

    pub(super) fn text(text: &str) -> Self {
        Self::Str(Text::Own(text.into()))
    }

    /// Returns an optional with a value.
    pub(super) fn some(value: V<'e>) -> Self {
        Self::Optional(Some(Rc::new(value)))
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Str(_) => "string",
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

    pub(super) fn is_list(&self) -> bool {
        match self {
            Self::Node(node) => matches!(node.item(), DocItem::List(_)),
            Self::List(_) => true,
            _ => false,
        }
    }

    pub(super) fn is_map(&self) -> bool {
        match self {
            Self::Node(node) => matches!(node.item(), DocItem::Map(_)),
            Self::Map(_) => true,
            _ => false,
        }
    }

    /// Returns the number of elements of a list or entries of a map, and 0 for other values.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Node(node) => node.len(),
            Self::List(items) => items.len(),
            Self::Map(entries) => entries.len(),
            _ => 0,
        }
    }

    /// Returns the element of a list at `index`. Returns None if the value is not a list, or has no
    /// such element.
    pub(super) fn element(&self, index: usize) -> Option<V<'e>> {
        match self {
            Self::Node(node) if self.is_list() => node.nth(index).map(|(_, node)| V::of(node)),
            Self::List(items) => items.get(index).cloned(),
            _ => None,
        }
    }

    /// Returns the key and the value of the entry of a map at `index`. Returns None if the value is
    /// not a map, or has no such entry.
    pub(super) fn entry(&self, index: usize) -> Option<(V<'e>, V<'e>)> {
        match self {
            Self::Node(node) if self.is_map() => node
                .nth(index)
                .map(|(key, node)| (V::Str(Text::Ref(key)), V::of(node))),
            Self::Map(entries) => entries.get(index).cloned(),
            _ => None,
        }
    }

    /// Returns the value that a comprehension visits at `index`: an element of a list or a key of a
    /// map.
    pub(super) fn item(&self, index: usize) -> Option<V<'e>> {
        if self.is_list() {
            self.element(index)
        } else {
            self.entry(index).map(|(key, _)| key)
        }
    }

    /// Returns the value of `key` in a map. Numbers of different types match if they are equal.
    /// Returns None if the value is not a map, or has no such key.
    pub(super) fn find(&self, key: &V<'e>) -> Option<V<'e>> {
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

    /// Returns the number of steps for [`Self::find`]. A map that the evaluation has created is
    /// searched linearly, so the search takes more steps in a larger map. In a map of the document,
    /// `key` is compared with at most [`MAX_NODE_COMPARISONS`] keys. These comparisons take steps
    /// only if `key` is long.
    pub(super) fn find_cost(&self, key: &V<'_>) -> u64 {
        match self {
            Self::Map(entries) => steps(entries.len(), 16) + key_cost(entries.len(), key),
            _ => key_cost(self.len().min(MAX_NODE_COMPARISONS), key),
        }
    }

    /// Returns the value of the key `name` in a map. Returns None if the value is not a map, or has
    /// no such key.
    pub(super) fn field(&self, name: &'e str) -> Option<V<'e>> {
        match self {
            Self::Node(node) => node.get(name).map(V::of),
            Self::Map(_) => self.find(&V::Str(Text::Ref(name))),
            _ => None,
        }
    }
}

/// Largest number of comparisons of keys in one search in a map of the document. A map of up to 8
/// members is searched linearly. A larger map has at most 100,000 members, the maximum number of
/// values in a document. The binary search in such a map takes up to 17 comparisons.
const MAX_NODE_COMPARISONS: usize = 17;

/// Returns the number of steps for a comparison of `key` with `keys` other keys. The steps pay for
/// the bytes of the keys that are read. Short keys take few steps or none.
pub(super) fn key_cost(keys: usize, key: &V<'_>) -> u64 {
    let bytes = match key {
        V::Str(text) => text.len(),
        _ => 0,
    };
    steps(keys.saturating_mul(bytes), SEARCH_BYTES_PER_STEP)
}

/// Returns true if two keys of a map are equal and have the same type.
pub(super) fn same_key(a: &V<'_>, b: &V<'_>) -> bool {
    match (a, b) {
        (V::Null, V::Null) => true,
        (V::Bool(a), V::Bool(b)) => a == b,
        (V::Int(a), V::Int(b)) | (V::Duration(a), V::Duration(b)) => a == b,
        (V::Uint(a), V::Uint(b)) => a == b,
        (V::Double(a), V::Double(b)) => a.partial_cmp(b) == Some(Ordering::Equal),
        (V::Str(a), V::Str(b)) => **a == **b,
        (V::Time(a), V::Time(b)) => a == b,
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
pub(super) fn exact_int(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && (-TWO_63..TWO_63).contains(&value)).then_some(value as i64)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // The value is in the range.
fn exact_uint(value: f64) -> Option<u64> {
    (value.fract() == 0.0 && (0.0..TWO_64).contains(&value)).then_some(value as u64)
}

/// Returns the integer part of a double, or None if it is outside of the range of `i64`. As in
/// cel-go, -2^63 also counts as outside of the range.
#[allow(clippy::cast_possible_truncation)] // The value is in the range.
pub(super) fn truncate_int(value: f64) -> Option<i64> {
    (value > -TWO_63 && value < TWO_63).then_some(value as i64)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // The value is in the range.
pub(super) fn truncate_uint(value: f64) -> Option<u64> {
    (0.0..TWO_64).contains(&value).then_some(value as u64)
}

/// The error for a comparison with NaN.
struct Unordered;

/// Compares two values whose types are int, uint or double. Returns None if one of the values has
/// another type. Returns [`Unordered`] if one of the values is NaN.
#[allow(clippy::cast_precision_loss)] // cel-go also converts the integer to a double.
fn numeric_order(a: &V<'_>, b: &V<'_>) -> Option<Result<Ordering, Unordered>> {
    let int_double = |int: i64, double: f64| {
        if double < -TWO_63 {
            Some(Ordering::Greater)
        } else if double > TWO_63 {
            Some(Ordering::Less)
        } else {
            (int as f64).partial_cmp(&double)
        }
    };
    let uint_double = |uint: u64, double: f64| {
        if double < 0.0 {
            Some(Ordering::Greater)
        } else if double > TWO_64 {
            Some(Ordering::Less)
        } else {
            (uint as f64).partial_cmp(&double)
        }
    };
    let int_uint =
        |int: i64, uint: u64| u64::try_from(int).map_or(Ordering::Less, |int| int.cmp(&uint));
    let order = match (a, b) {
        (V::Int(a), V::Int(b)) => Some(a.cmp(b)),
        (V::Uint(a), V::Uint(b)) => Some(a.cmp(b)),
        (V::Double(a), V::Double(b)) => a.partial_cmp(b),
        (V::Int(a), V::Uint(b)) => Some(int_uint(*a, *b)),
        (V::Uint(a), V::Int(b)) => Some(int_uint(*b, *a).reverse()),
        (V::Int(a), V::Double(b)) => int_double(*a, *b),
        (V::Double(a), V::Int(b)) => int_double(*b, *a).map(Ordering::reverse),
        (V::Uint(a), V::Double(b)) => uint_double(*a, *b),
        (V::Double(a), V::Uint(b)) => uint_double(*b, *a).map(Ordering::reverse),
        _ => return None,
    };
    Some(order.ok_or(Unordered))
}

/// Compares two values. The result is an error if the types cannot be compared, or if one of the
/// values is NaN.
pub(super) fn order<'e>(a: &V<'e>, b: &V<'e>, budget: &mut Budget) -> Result<Ordering, Fault<'e>> {
    if let Some(order) = numeric_order(a, b) {
        return order.map_err(|Unordered| Fault::error("NaN values cannot be ordered"));
    }
    match (a, b) {
        (V::Bool(a), V::Bool(b)) => Ok(a.cmp(b)),
        (V::Str(a), V::Str(b)) => {
            charge(budget, steps(a.len().min(b.len()), 1024))?;
            Ok((**a).cmp(b))
        }
        (V::Bytes(a), V::Bytes(b)) => {
            charge(budget, steps(a.len().min(b.len()), 1024))?;
            Ok((**a).cmp(b))
        }
        (V::Duration(a), V::Duration(b)) => Ok(a.cmp(b)),
        (V::Time(a), V::Time(b)) => Ok(a.cmp(b)),
        _ => Err(Fault::no_overload()),
    }
}

/// Returns true if two values are equal. Two numbers of different types can be equal. Other values
/// of different types are not equal, or their comparison is an error.
pub(super) fn equal<'e>(a: &V<'e>, b: &V<'e>, budget: &mut Budget) -> Result<bool, Fault<'e>> {
    if let Some(order) = numeric_order(a, b) {
        return Ok(matches!(order, Ok(Ordering::Equal)));
    }
    Ok(match (a, b) {
        (V::Null, V::Null) | (V::Optional(None), V::Optional(None)) => true,
        (V::Bool(a), V::Bool(b)) => a == b,
        (V::Str(a), V::Str(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            charge(budget, steps(a.len(), 1024))?;
            **a == **b
        }
        (V::Bytes(a), V::Bytes(b)) => {
            charge(budget, steps(a.len().min(b.len()), 1024))?;
            **a == **b
        }
        (V::Duration(a), V::Duration(b)) => a == b,
        (V::Time(a), V::Time(b)) => a == b,
        (V::Type(a), V::Type(b)) => a == b,
        (V::Quantity(a), V::Quantity(b)) => a.cmp(b).is_eq(),
        (V::Url(a), V::Url(b)) => a == b,
        (V::Ip(a), V::Ip(b)) => a == b,
        (V::Cidr(a), V::Cidr(b)) => a == b,
        (V::Semver(a), V::Semver(b)) => a.cmp_precedence(b).is_eq(),
        (V::NamedFormat(a), V::NamedFormat(b)) => a == b,
        (V::Optional(Some(a)), V::Optional(Some(b))) => return equal(a, b, budget),
        // `a` has a type that Kubernetes adds to CEL, such as a quantity, and `b` has another type.
        // As in Kubernetes, the result is false if `b` is null, and an error for all other types.
        (
            V::Quantity(_) | V::Url(_) | V::Ip(_) | V::Cidr(_) | V::Semver(_) | V::NamedFormat(_),
            b,
        ) if !matches!(b, V::Null) => return Err(Fault::no_overload()),
        _ if a.is_list() && b.is_list() => return equal_lists(a, b, budget),
        _ if a.is_map() && b.is_map() => return equal_maps(a, b, budget),
        _ => false,
    })
}

/// Returns true if two elements of lists or two values of maps are equal. If the comparison of both
/// values is an error, also returns true, as cel-go does. An example is a quantity and a number.
fn equal_parts<'e>(a: &V<'e>, b: &V<'e>, budget: &mut Budget) -> Result<bool, Fault<'e>> {
    match equal(a, b, budget) {
        Err(Fault::Budget) => Err(Fault::Budget),
        outcome => Ok(outcome.unwrap_or(true)),
    }
}

fn equal_lists<'e>(a: &V<'e>, b: &V<'e>, budget: &mut Budget) -> Result<bool, Fault<'e>> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for index in 0..a.len() {
        charge(budget, u64::from(index % 16 == 0))?;
        let (Some(a), Some(b)) = (a.element(index), b.element(index)) else {
            return Ok(false);
        };
        if !equal_parts(&a, &b, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_maps<'e>(a: &V<'e>, b: &V<'e>, budget: &mut Budget) -> Result<bool, Fault<'e>> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for index in 0..a.len() {
        charge(budget, u64::from(index % 16 == 0))?;
        let Some((key, a)) = a.entry(index) else {
            return Ok(false);
        };
        charge(budget, b.find_cost(&key))?;
        match b.find(&key) {
            Some(b) if equal_parts(&a, &b, budget)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}
