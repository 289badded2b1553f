//! The static types of CEL, and the schema of the objects. The type `dyn` matches every type. Without
//! a schema, `object` has the type `dyn`. With a schema, `object` has the type [`Ty::Schema`], and
//! the types of its fields are known. Tools use a schema to check expressions. An evaluation does
//! not use the schema.

use std::fmt;
use std::sync::Arc;

/// One step from a value to a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathStep {
    /// The field or key with this name, such as `map.a` or `map['a']`.
    Field(String),
    /// An element of a list or a member of a map, such as `list[0]` or `map[key]`. If the index is
    /// a string literal, the step is [`Self::Field`] instead.
    Index,
    /// The value that a comprehension visits: an element of a list, or a key of a map.
    Each,
}

/// The type that a schema gives to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// The type is unknown, or several types are possible.
    Any,
    /// A bool.
    Bool,
    /// An integer.
    Int,
    /// A string.
    String {
        /// The only possible values. The list is empty if all strings are possible.
        values: Vec<String>,
    },
    /// A list. The path of its elements is the path of the list, followed by [`PathStep::Each`].
    List,
    /// An object or a map. The path of a member ends with [`PathStep::Field`]. If the key is not a
    /// string literal, as in `object.labels[variables.key]`, the path ends with
    /// [`PathStep::Index`].
    Object,
    /// The schema has no such field.
    Missing {
        /// The most similar field of the schema. None if no field is similar.
        nearest: Option<String>,
    },
}

/// The schema of the objects.
pub trait ObjectSchema: Sync {
    /// Returns the type of the value at `path`. The empty path is the path of `object` itself.
    fn type_at(&self, path: &[PathStep]) -> FieldType;
}

/// Maximum number of types inside of a type. For example, `map(string, list(int))` contains three
/// types. In a larger type, `dyn` replaces the element types. Without this limit, the size of a type
/// could double with each variable, as in `{variables.v: variables.v}`.
const MAX_INNER_TYPES: usize = 64;

/// A static type of CEL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ty {
    /// The type of an expression for which an error was reported. It matches every type, so that
    /// one mistake is reported only once.
    Error,
    /// An unknown type, such as the type of the elements of `[]`. It matches every type, like
    /// `dyn`, but a known type can replace it: the elements of `[[], [1]]` have the type
    /// `list(int)`.
    Unknown,
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    Quantity,
    Url,
    Ip,
    Cidr,
    Semver,
    NamedFormat,
    Type(Box<Ty>),
    List(Box<Ty>),
    Map(Box<Ty>, Box<Ty>),
    Optional(Box<Ty>),
    /// A type parameter in the signature of a function. It stands for any type.
    A,
    /// A second type parameter.
    B,
    /// The type of the object or map at this path of the schema. This type matches every type, like
    /// `dyn`, but the types of its fields are known.
    Schema(Arc<[PathStep]>),
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error => f.write_str("!error!"),
            Self::Unknown | Self::Schema(_) => f.write_str("dyn"),
            Self::Type(of) => write!(f, "type({of})"),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            named => {
                let mut names = NAMES.iter();
                let name = names.find_map(|(name, ty)| (ty == named).then_some(*name));
                f.write_str(name.unwrap_or_default())
            }
        }
    }
}

/// The types that contain no other type, with their names.
static NAMES: [(&str, Ty); 18] = [
    ("dyn", Ty::Dyn),
    ("null", Ty::Null),
    ("bool", Ty::Bool),
    ("int", Ty::Int),
    ("uint", Ty::Uint),
    ("double", Ty::Double),
    ("string", Ty::String),
    ("bytes", Ty::Bytes),
    ("duration", Ty::Duration),
    ("timestamp", Ty::Timestamp),
    ("kubernetes.Quantity", Ty::Quantity),
    ("kubernetes.URL", Ty::Url),
    ("net.IP", Ty::Ip),
    ("net.CIDR", Ty::Cidr),
    ("kubernetes.Semver", Ty::Semver),
    ("kubernetes.NamedFormat", Ty::NamedFormat),
    ("A", Ty::A),
    ("B", Ty::B),
];

impl Ty {
    /// Parses a type in the signature of a function, such as `map(A, list(string))`. Panics for any
    /// other text.
    pub(crate) fn parse(text: &str) -> Self {
        if let Some((_, ty)) = NAMES.iter().find(|(name, _)| *name == text) {
            return ty.clone();
        }
        let inner = text
            .split_once('(')
            .and_then(|(name, rest)| Some((name, rest.strip_suffix(')')?)));
        match inner {
            Some(("list", of)) => Self::list(Self::parse(of)),
            Some(("optional_type", of)) => Self::optional(Self::parse(of)),
            Some(("type", of)) => Self::Type(Box::new(Self::parse(of))),
            Some(("map", of)) => {
                let (key, value) = of.split_once(", ").expect("a map has two types");
                Self::map(Self::parse(key), Self::parse(value))
            }
            _ => panic!("unknown type {text}"),
        }
    }

    pub(crate) fn list(of: Self) -> Self {
        Self::List(Box::new(of.inner(MAX_INNER_TYPES)))
    }

    pub(crate) fn map(key: Self, value: Self) -> Self {
        let limit = MAX_INNER_TYPES / 2;
        Self::Map(Box::new(key.inner(limit)), Box::new(value.inner(limit)))
    }

    pub(crate) fn optional(of: Self) -> Self {
        Self::Optional(Box::new(of.inner(MAX_INNER_TYPES)))
    }

    /// Returns this type, or `dyn` if it has more than `limit` types.
    fn inner(self, limit: usize) -> Self {
        if self.count() > limit {
            Self::Dyn
        } else {
            self
        }
    }

    /// Returns the number of types in this type, including itself.
    fn count(&self) -> usize {
        1 + match self {
            Self::Type(of) | Self::List(of) | Self::Optional(of) => of.count(),
            Self::Map(key, value) => key.count() + value.count(),
            _ => 0,
        }
    }

    /// Returns the type of the value in an optional, or None for other types.
    pub(crate) fn optional_value(&self) -> Option<&Self> {
        match self {
            Self::Optional(of) => Some(of),
            _ => None,
        }
    }

    /// Returns true for a type that cel-go calls opaque: an optional, or a type of one of
    /// Kubernetes' libraries.
    pub(crate) fn is_opaque(&self) -> bool {
        matches!(
            self,
            Self::Quantity
                | Self::Url
                | Self::Ip
                | Self::Cidr
                | Self::Semver
                | Self::NamedFormat
                | Self::Optional(_)
        )
    }

    /// Returns true if null can be used where this type is expected. cel-go treats values of such a
    /// type like protobuf messages, which can be null.
    fn accepts_null(&self) -> bool {
        self.is_opaque() || matches!(self, Self::Duration | Self::Timestamp)
    }

    /// Returns the name that a value of this type has at evaluation, such as `list` for
    /// `list(int)`.
    pub(crate) fn runtime_name(&self) -> String {
        match self {
            Self::Null => "null_type".to_owned(),
            Self::Duration => "google.protobuf.Duration".to_owned(),
            Self::Timestamp => "google.protobuf.Timestamp".to_owned(),
            Self::Type(_) => "type".to_owned(),
            Self::List(_) => "list".to_owned(),
            Self::Map(..) => "map".to_owned(),
            Self::Optional(_) => "optional_type".to_owned(),
            other => other.to_string(),
        }
    }

    /// Returns true if the type matches every type.
    pub(crate) fn is_dynamic(&self) -> bool {
        matches!(
            self,
            Self::Error | Self::Unknown | Self::Dyn | Self::Schema(_)
        )
    }

    /// Returns the type with `dyn` instead of unknown types.
    pub(crate) fn without_unknown(self) -> Self {
        match self {
            Self::Unknown => Self::Dyn,
            Self::Type(of) => Self::Type(Box::new(of.without_unknown())),
            Self::List(of) => Self::list(of.without_unknown()),
            Self::Optional(of) => Self::optional(of.without_unknown()),
            Self::Map(key, value) => Self::map(key.without_unknown(), value.without_unknown()),
            other => other,
        }
    }

    /// Returns true if a value of this type can be used where `other` is expected.
    pub(crate) fn fits(&self, other: &Self) -> bool {
        match (self, other) {
            (a, b) if a.is_dynamic() || b.is_dynamic() => true,
            (Self::Null, other) | (other, Self::Null) if other.accepts_null() => true,
            (Self::Type(_), Self::Type(_)) => true,
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.fits(b),
            (Self::Map(key, value), Self::Map(other_key, other_value)) => {
                key.fits(other_key) && value.fits(other_value)
            }
            (a, b) => a == b,
        }
    }

    /// Returns true if every value of the type `other` also has this type.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Schema(a), Self::Schema(b)) => a == b,
            (Self::Dyn, _) | (_, Self::Unknown) | (Self::Type(_), Self::Type(_)) => true,
            (_, Self::Dyn | Self::Schema(_)) | (Self::Unknown | Self::Schema(_), _) => false,
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.covers(b),
            (Self::Map(key, value), Self::Map(other_key, other_value)) => {
                key.covers(other_key) && value.covers(other_value)
            }
            (a, b) => a == b,
        }
    }

    /// Returns true if one of the types contains a type of the schema, and neither type covers the
    /// other type. In this case, the common type of both types is `dyn`.
    pub(crate) fn loses_schema_with(&self, other: &Self) -> bool {
        (self.has_schema() || other.has_schema()) && !self.covers(other) && !other.covers(self)
    }

    fn has_schema(&self) -> bool {
        match self {
            Self::Schema(_) => true,
            Self::List(of) | Self::Optional(of) | Self::Type(of) => of.has_schema(),
            Self::Map(key, value) => key.has_schema() || value.has_schema(),
            _ => false,
        }
    }

    /// Returns the type that replaces this type in a comparison. Every type of number becomes
    /// double, because numbers of different types can be compared. Null becomes `dyn`, because null
    /// can be compared with everything.
    pub(crate) fn comparable(&self) -> Self {
        match self {
            Self::Int | Self::Uint | Self::Double => Self::Double,
            Self::Null => Self::Dyn,
            Self::List(of) => Self::list(of.comparable()),
            Self::Optional(of) => Self::optional(of.comparable()),
            Self::Map(key, value) => Self::map(key.comparable(), value.comparable()),
            other => other.clone(),
        }
    }

    /// Returns the common type of the elements of a list or map literal. `self` is the common type
    /// of the previous elements, and `other` is the type of the next element.
    pub(crate) fn join(self, other: &Self) -> Self {
        match self {
            Self::Unknown => other.clone(),
            own if own.fits(other) => {
                if own.covers(other) {
                    own
                } else if own.loses_schema_with(other) {
                    Self::Dyn
                } else {
                    other.clone()
                }
            }
            _ => Self::Dyn,
        }
    }
}
