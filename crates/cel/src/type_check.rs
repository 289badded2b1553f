//! The type checker. It contains the static types. For a call, it finds the overloads of the
//! function (the accepted combinations of argument types) that match the types of the arguments. If
//! no overload matches, it returns the error of cel-go, the CEL implementation of Kubernetes.
//!
//! The type `dyn` matches every type. Without a schema, `object` has the type `dyn`. With a schema,
//! `object` has the type [`Ty::Schema`], and the types of its fields are known.

use std::fmt;
use std::sync::Arc;

use cel::common::ast::operators;

use super::fields::PathStep;
use super::overloads::{ParameterType, overloads};

/// Maximum number of types inside of a type. For example, `map(string, list(int))` contains three
/// types. In a larger type, `dyn` replaces the element types. Without this limit, the size of a type
/// could double with each variable, as in `{variables.v: variables.v}`.
const MAX_INNER_TYPES: usize = 64;

/// A static type of CEL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ty {
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
    /// The type of the object or map at this path of the schema. This type matches every type, like
    /// `dyn`, but the types of its fields are known.
    Schema(Arc<[PathStep]>),
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "!error!",
            Self::Unknown | Self::Dyn | Self::Schema(_) => "dyn",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "duration",
            Self::Timestamp => "timestamp",
            Self::Quantity => "kubernetes.Quantity",
            Self::Url => "kubernetes.URL",
            Self::Ip => "net.IP",
            Self::Cidr => "net.CIDR",
            Self::Semver => "kubernetes.Semver",
            Self::NamedFormat => "kubernetes.NamedFormat",
            Self::Type(of) => return write!(f, "type({of})"),
            Self::Optional(of) => return write!(f, "optional_type({of})"),
            Self::List(of) => return write!(f, "list({of})"),
            Self::Map(key, value) => return write!(f, "map({key}, {value})"),
        })
    }
}

impl Ty {
    pub(super) fn list(of: Self) -> Self {
        Self::List(Box::new(of.inner(MAX_INNER_TYPES)))
    }

    pub(super) fn map(key: Self, value: Self) -> Self {
        let limit = MAX_INNER_TYPES / 2;
        Self::Map(Box::new(key.inner(limit)), Box::new(value.inner(limit)))
    }

    pub(super) fn optional(of: Self) -> Self {
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
    pub(super) fn optional_value(&self) -> Option<&Self> {
        match self {
            Self::Optional(of) => Some(of),
            _ => None,
        }
    }

    /// Returns true for a type that cel-go calls opaque: an optional, or a type of one of
    /// Kubernetes' libraries.
    pub(super) fn is_opaque(&self) -> bool {
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
    pub(super) fn runtime_name(&self) -> String {
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
    pub(super) fn is_dynamic(&self) -> bool {
        matches!(
            self,
            Self::Error | Self::Unknown | Self::Dyn | Self::Schema(_)
        )
    }

    /// Returns the type with `dyn` instead of unknown types.
    pub(super) fn without_unknown(self) -> Self {
        match self {
            Self::Unknown => Self::Dyn,
            Self::Type(of) => Self::Type(Box::new(of.without_unknown())),
            Self::List(of) => Self::list(of.without_unknown()),
            Self::Optional(of) => Self::optional(of.without_unknown()),
            Self::Map(key, value) => Self::map(key.without_unknown(), value.without_unknown()),
            other => other,
        }
    }

    /// Returns true if a part of the type is unknown.
    fn has_unknown(&self) -> bool {
        match self {
            Self::Unknown => true,
            Self::Type(of) | Self::List(of) | Self::Optional(of) => of.has_unknown(),
            Self::Map(key, value) => key.has_unknown() || value.has_unknown(),
            _ => false,
        }
    }

    /// Returns true if a value of this type can be used where `other` is expected.
    pub(super) fn fits(&self, other: &Self) -> bool {
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
    fn covers(&self, other: &Self) -> bool {
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
    fn loses_schema_with(&self, other: &Self) -> bool {
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
    fn comparable(&self) -> Self {
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
    pub(super) fn join(self, other: &Self) -> Self {
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

/// Returns the result type of a call like [`resolve`], for an expression that is compiled with a
/// schema. In contrast to cel-go, this function accepts some calls whose evaluation cannot fail:
/// comparisons of numbers of different types, comparisons with null, and conditionals whose results
/// have different types.
pub(super) fn resolve_with_schema(name: &str, args: &[Ty], member: bool) -> Result<Ty, String> {
    resolve(name, args, member).or_else(|message| {
        let comparable: Vec<Ty> = match (name, args) {
            (operators::CONDITIONAL, [test, _, _]) => vec![test.clone(), Ty::Dyn, Ty::Dyn],
            (operators::EQUALS | operators::NOT_EQUALS | operators::IN, args) => {
                args.iter().map(Ty::comparable).collect()
            }
            _ => return Err(message),
        };
        resolve(name, &comparable, member).map_err(|_| message)
    })
}

/// Returns the result type of a call, or cel-go's error if no overload matches. In a member call,
/// the first of `args` is the type of the receiver.
pub(super) fn resolve(name: &str, args: &[Ty], member: bool) -> Result<Ty, String> {
    let mut result: Option<Ty> = None;
    let mut known = args.to_vec();
    for overload in overloads(name) {
        if overload.member != member || overload.args.len() != args.len() {
            continue;
        }
        let mut bound = Bound::default();
        let mut pairs = known.iter().zip(overload.args);
        if pairs.all(|(arg, wanted)| bound.binds(arg, *wanted)) {
            let ty = bound.result(overload.result);
            // If several overloads match, and their results differ or contain an unknown type, the
            // result is `dyn`. As in cel-go, two unknown types count as different.
            result = Some(match result {
                Some(other) if other != ty || other.has_unknown() => Ty::Dyn,
                _ => ty,
            });
            // The types that this overload wants replace the unknown types of the arguments. The
            // next overloads are matched with these types.
            for (arg, wanted) in known.iter_mut().zip(overload.args) {
                bound.make_known(arg, *wanted);
            }
        }
    }
    result.ok_or_else(|| {
        let list = |args: &[Ty]| {
            let names: Vec<_> = args.iter().map(ToString::to_string).collect();
            format!("({})", names.join(", "))
        };
        let signature = match args.split_first() {
            Some((receiver, args)) if member => format!("{receiver}.{}", list(args)),
            _ => list(args),
        };
        format!("found no matching overload for '{name}' applied to '{signature}'")
    })
}

/// The types that replace the type parameters `A` and `B` of one overload.
#[derive(Default)]
struct Bound {
    a: Option<Ty>,
    b: Option<Ty>,
}

impl Bound {
    /// Returns true if an argument of the type `arg` matches `wanted`. Sets `A` and `B` if `wanted`
    /// contains them.
    fn binds(&mut self, arg: &Ty, wanted: ParameterType) -> bool {
        match (wanted, arg) {
            (ParameterType::A, _) => bind(&mut self.a, arg),
            (ParameterType::B, _) => bind(&mut self.b, arg),
            (ParameterType::Dyn, _) => true,
            (_, arg) if arg.is_dynamic() => true,
            (ParameterType::List(wanted), Ty::List(of))
            | (ParameterType::Type(wanted), Ty::Type(of))
            | (ParameterType::Optional(wanted), Ty::Optional(of)) => self.binds(of, *wanted),
            (ParameterType::Map(wanted_key, wanted_value), Ty::Map(key, value)) => {
                self.binds(key, *wanted_key) && self.binds(value, *wanted_value)
            }
            (wanted, arg) => arg.fits(&self.result(wanted)),
        }
    }

    /// Replaces each unknown type in the type of an argument by the type at the same place in
    /// `wanted`.
    fn make_known(&self, arg: &mut Ty, wanted: ParameterType) {
        match (wanted, arg) {
            (wanted, arg @ Ty::Unknown) => *arg = self.result(wanted),
            (ParameterType::List(wanted), Ty::List(of))
            | (ParameterType::Type(wanted), Ty::Type(of))
            | (ParameterType::Optional(wanted), Ty::Optional(of)) => self.make_known(of, *wanted),
            (ParameterType::Map(wanted_key, wanted_value), Ty::Map(key, value)) => {
                self.make_known(key, *wanted_key);
                self.make_known(value, *wanted_value);
            }
            _ => {}
        }
    }

    /// Returns the type with the type parameters replaced. A type parameter without a type becomes
    /// [`Ty::Unknown`].
    fn result(&self, ty: ParameterType) -> Ty {
        let of = |bound: &Option<Ty>| bound.clone().unwrap_or(Ty::Unknown);
        match ty {
            ParameterType::A => of(&self.a),
            ParameterType::B => of(&self.b),
            ParameterType::Dyn => Ty::Dyn,
            ParameterType::Bool => Ty::Bool,
            ParameterType::Int => Ty::Int,
            ParameterType::Uint => Ty::Uint,
            ParameterType::Double => Ty::Double,
            ParameterType::String => Ty::String,
            ParameterType::Bytes => Ty::Bytes,
            ParameterType::Duration => Ty::Duration,
            ParameterType::Timestamp => Ty::Timestamp,
            ParameterType::Quantity => Ty::Quantity,
            ParameterType::Url => Ty::Url,
            ParameterType::Ip => Ty::Ip,
            ParameterType::Cidr => Ty::Cidr,
            ParameterType::Semver => Ty::Semver,
            ParameterType::NamedFormat => Ty::NamedFormat,
            ParameterType::Type(of) => Ty::Type(Box::new(self.result(*of))),
            ParameterType::List(of) => Ty::list(self.result(*of)),
            ParameterType::Map(key, value) => Ty::map(self.result(*key), self.result(*value)),
            ParameterType::Optional(of) => Ty::optional(self.result(*of)),
        }
    }
}

/// Sets a type parameter to `ty`, and returns true. If the type parameter already has a type, it
/// gets the common type of both. If the two types do not fit each other, returns false.
fn bind(bound: &mut Option<Ty>, ty: &Ty) -> bool {
    match bound {
        None => {
            *bound = Some(ty.clone());
            true
        }
        Some(own) if own.fits(ty) => {
            if ty.covers(own) {
                *own = ty.clone();
            } else if own.loses_schema_with(ty) {
                *own = Ty::Dyn;
            }
            true
        }
        Some(_) => false,
    }
}
