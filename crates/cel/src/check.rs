//! The type checker: the static types, the overloads (accepted argument types) of each function and
//! operator, and cel-go's errors for wrong arguments. The type `dyn` matches every type. `object`
//! has the type `dyn`, because there is no schema.

use std::fmt;

/// A static type of CEL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ty {
    /// The type of an expression for which an error was reported. It matches every type, so that
    /// one mistake is reported only once.
    Error,
    /// An unknown type, such as the type of the elements of `[]`. It matches every type.
    Free,
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
    Type(Box<Ty>),
    List(Box<Ty>),
    Map(Box<Ty>, Box<Ty>),
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "!error!",
            Self::Free | Self::Dyn => "dyn",
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
            Self::Type(of) => return write!(f, "type({of})"),
            Self::List(of) => return write!(f, "list({of})"),
            Self::Map(key, value) => return write!(f, "map({key}, {value})"),
        })
    }
}

impl Ty {
    pub(super) fn list(of: Self) -> Self {
        Self::List(Box::new(of))
    }

    pub(super) fn map(key: Self, value: Self) -> Self {
        Self::Map(Box::new(key), Box::new(value))
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
            other => other.to_string(),
        }
    }

    /// Returns true if the type matches every type.
    pub(super) fn is_dynamic(&self) -> bool {
        matches!(self, Self::Error | Self::Free | Self::Dyn)
    }

    /// Returns true if a value of this type can be used where `other` is expected.
    pub(super) fn fits(&self, other: &Self) -> bool {
        match (self, other) {
            (a, b) if a.is_dynamic() || b.is_dynamic() => true,
            // cel-go treats values of these types like protobuf messages, so they can also be null.
            (Self::Null, Self::Duration | Self::Timestamp | Self::Quantity)
            | (Self::Duration | Self::Timestamp | Self::Quantity, Self::Null)
            | (Self::Type(_), Self::Type(_)) => true,
            (Self::List(a), Self::List(b)) => a.fits(b),
            (Self::Map(key, value), Self::Map(other_key, other_value)) => {
                key.fits(other_key) && value.fits(other_value)
            }
            (a, b) => a == b,
        }
    }

    /// Returns true if every value of the type `other` also has this type.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn | Self::Error, _) | (_, Self::Free) | (Self::Type(_), Self::Type(_)) => true,
            (_, Self::Dyn | Self::Error) | (Self::Free, _) => false,
            (Self::List(a), Self::List(b)) => a.covers(b),
            (Self::Map(key, value), Self::Map(other_key, other_value)) => {
                key.covers(other_key) && value.covers(other_value)
            }
            (a, b) => a == b,
        }
    }

    /// Returns the common type of the elements of a list or map literal. `self` is the common type
    /// of the previous elements, and `other` is the type of the next element.
    pub(super) fn join(self, other: &Self) -> Self {
        match self {
            Self::Free => other.clone(),
            own if own.fits(other) => {
                if other.covers(&own) {
                    other.clone()
                } else {
                    own
                }
            }
            _ => Self::Dyn,
        }
    }
}

/// A type in the declaration of an overload. `A` and `B` are type parameters.
#[derive(Clone, Copy)]
enum P {
    A,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    Dyn,
    Quantity,
    B,
    ListA,
    ListDyn,
    ListString,
    MapAB,
    TypeA,
}

struct Overload {
    /// True for `receiver.name(..)`, and false for `name(..)`.
    member: bool,
    /// The types of the arguments. The receiver of a member call is the first argument.
    args: &'static [P],
    result: P,
}

/// Declares an overload of the form `name(..)`.
const fn f(args: &'static [P], result: P) -> Overload {
    Overload {
        member: false,
        args,
        result,
    }
}

/// Declares an overload of the form `receiver.name(..)`.
const fn m(args: &'static [P], result: P) -> Overload {
    Overload {
        member: true,
        args,
        result,
    }
}

use P::{
    A, B, Bool, Bytes, Double, Duration, Dyn, Int, ListA, ListDyn, ListString, MapAB, Quantity,
    String as Str, Timestamp, TypeA, Uint,
};

static ADD: [Overload; 9] = [
    f(&[Bytes, Bytes], Bytes),
    f(&[Double, Double], Double),
    f(&[Duration, Duration], Duration),
    f(&[Duration, Timestamp], Timestamp),
    f(&[Timestamp, Duration], Timestamp),
    f(&[Int, Int], Int),
    f(&[ListA, ListA], ListA),
    f(&[Str, Str], Str),
    f(&[Uint, Uint], Uint),
];
static SUBTRACT: [Overload; 6] = [
    f(&[Double, Double], Double),
    f(&[Duration, Duration], Duration),
    f(&[Int, Int], Int),
    f(&[Timestamp, Duration], Timestamp),
    f(&[Timestamp, Timestamp], Duration),
    f(&[Uint, Uint], Uint),
];
static MULTIPLY: [Overload; 3] = [
    f(&[Double, Double], Double),
    f(&[Int, Int], Int),
    f(&[Uint, Uint], Uint),
];
static MODULO: [Overload; 2] = [f(&[Int, Int], Int), f(&[Uint, Uint], Uint)];
static NEGATE: [Overload; 2] = [f(&[Double], Double), f(&[Int], Int)];
static NOT: [Overload; 1] = [f(&[Bool], Bool)];
static EQUAL: [Overload; 1] = [f(&[A, A], Bool)];
static CONDITION: [Overload; 1] = [f(&[Bool, A, A], A)];
// cel-go's standard environment has no overloads for two different numeric types. So `1 < 1.5` does
// not compile. But `dyn(1) < 1.5` compiles, because `dyn` matches every type.
static ORDER: [Overload; 8] = [
    f(&[Bool, Bool], Bool),
    f(&[Int, Int], Bool),
    f(&[Uint, Uint], Bool),
    f(&[Double, Double], Bool),
    f(&[Str, Str], Bool),
    f(&[Bytes, Bytes], Bool),
    f(&[Timestamp, Timestamp], Bool),
    f(&[Duration, Duration], Bool),
];
static INDEX: [Overload; 2] = [f(&[ListA, Int], A), f(&[MapAB, A], B)];
static IN: [Overload; 2] = [f(&[A, ListA], Bool), f(&[A, MapAB], Bool)];
static SIZE: [Overload; 8] = [
    f(&[Bytes], Int),
    m(&[Bytes], Int),
    f(&[ListA], Int),
    m(&[ListA], Int),
    f(&[MapAB], Int),
    m(&[MapAB], Int),
    f(&[Str], Int),
    m(&[Str], Int),
];
static TYPE: [Overload; 1] = [f(&[A], TypeA)];
static DYN: [Overload; 1] = [f(&[A], Dyn)];
static TO_BOOL: [Overload; 2] = [f(&[Bool], Bool), f(&[Str], Bool)];
static TO_BYTES: [Overload; 2] = [f(&[Bytes], Bytes), f(&[Str], Bytes)];
static TO_DOUBLE: [Overload; 4] = [
    f(&[Double], Double),
    f(&[Int], Double),
    f(&[Str], Double),
    f(&[Uint], Double),
];
static TO_DURATION: [Overload; 2] = [f(&[Duration], Duration), f(&[Str], Duration)];
static TO_INT: [Overload; 6] = [
    f(&[Int], Int),
    f(&[Double], Int),
    f(&[Duration], Int),
    f(&[Str], Int),
    f(&[Timestamp], Int),
    f(&[Uint], Int),
];
static TO_STRING: [Overload; 8] = [
    f(&[Str], Str),
    f(&[Bool], Str),
    f(&[Bytes], Str),
    f(&[Double], Str),
    f(&[Duration], Str),
    f(&[Int], Str),
    f(&[Timestamp], Str),
    f(&[Uint], Str),
];
static TO_TIMESTAMP: [Overload; 3] = [
    f(&[Timestamp], Timestamp),
    f(&[Int], Timestamp),
    f(&[Str], Timestamp),
];
static TO_UINT: [Overload; 4] = [
    f(&[Uint], Uint),
    f(&[Double], Uint),
    f(&[Int], Uint),
    f(&[Str], Uint),
];
static PREDICATE: [Overload; 1] = [m(&[Str, Str], Bool)];
static MATCHES: [Overload; 2] = [f(&[Str, Str], Bool), m(&[Str, Str], Bool)];
static GET_DATE: [Overload; 2] = [m(&[Timestamp], Int), m(&[Timestamp, Str], Int)];
static GET_TIME: [Overload; 3] = [
    m(&[Timestamp], Int),
    m(&[Timestamp, Str], Int),
    m(&[Duration], Int),
];

static CHAR_AT: [Overload; 1] = [m(&[Str, Int], Str)];
static FORMAT: [Overload; 1] = [m(&[Str, ListDyn], Str)];
static INDEX_OF: [Overload; 2] = [m(&[Str, Str], Int), m(&[Str, Str, Int], Int)];
static JOIN: [Overload; 2] = [m(&[ListString], Str), m(&[ListString, Str], Str)];
static REPLACE: [Overload; 2] = [m(&[Str, Str, Str], Str), m(&[Str, Str, Str, Int], Str)];
static SPLIT: [Overload; 2] = [m(&[Str, Str], ListString), m(&[Str, Str, Int], ListString)];
static SUBSTRING: [Overload; 2] = [m(&[Str, Int], Str), m(&[Str, Int, Int], Str)];
static OF_STRING: [Overload; 1] = [m(&[Str], Str)];
static QUANTITY: [Overload; 1] = [f(&[Str], Quantity)];
static IS_QUANTITY: [Overload; 1] = [f(&[Str], Bool)];
// `sign` is a function, although Kubernetes' documentation describes it as a field.
static SIGN: [Overload; 1] = [f(&[Quantity], Int)];
static IS_INTEGER: [Overload; 1] = [m(&[Quantity], Bool)];
static AS_INTEGER: [Overload; 1] = [m(&[Quantity], Int)];
static AS_FLOAT: [Overload; 1] = [m(&[Quantity], Double)];
static ADD_QUANTITY: [Overload; 2] = [
    m(&[Quantity, Quantity], Quantity),
    m(&[Quantity, Int], Quantity),
];
static COMPARE: [Overload; 1] = [m(&[Quantity, Quantity], Int)];
static IS_BEYOND: [Overload; 1] = [m(&[Quantity, Quantity], Bool)];

/// Returns the overloads of a function or operator. The parser returns operators under names such
/// as `_+_`.
fn overloads(name: &str) -> &'static [Overload] {
    match name {
        "_+_" => &ADD,
        "_-_" => &SUBTRACT,
        "_*_" | "_/_" => &MULTIPLY,
        "_%_" => &MODULO,
        "-_" => &NEGATE,
        "!_" => &NOT,
        "_==_" | "_!=_" => &EQUAL,
        "_?_:_" => &CONDITION,
        "_<_" | "_<=_" | "_>_" | "_>=_" => &ORDER,
        "_[_]" => &INDEX,
        "@in" => &IN,
        "size" => &SIZE,
        "type" => &TYPE,
        "dyn" => &DYN,
        "bool" => &TO_BOOL,
        "bytes" => &TO_BYTES,
        "double" => &TO_DOUBLE,
        "duration" => &TO_DURATION,
        "int" => &TO_INT,
        "string" => &TO_STRING,
        "timestamp" => &TO_TIMESTAMP,
        "uint" => &TO_UINT,
        "contains" | "startsWith" | "endsWith" => &PREDICATE,
        "matches" => &MATCHES,
        "getFullYear" | "getMonth" | "getDayOfYear" | "getDayOfMonth" | "getDate"
        | "getDayOfWeek" => &GET_DATE,
        "getHours" | "getMinutes" | "getSeconds" | "getMilliseconds" => &GET_TIME,
        "charAt" => &CHAR_AT,
        "format" => &FORMAT,
        "indexOf" | "lastIndexOf" => &INDEX_OF,
        "join" => &JOIN,
        "replace" => &REPLACE,
        "split" => &SPLIT,
        "substring" => &SUBSTRING,
        "lowerAscii" | "trim" | "upperAscii" => &OF_STRING,
        "quantity" => &QUANTITY,
        "isQuantity" => &IS_QUANTITY,
        "sign" => &SIGN,
        "isInteger" => &IS_INTEGER,
        "asInteger" => &AS_INTEGER,
        "asApproximateFloat" => &AS_FLOAT,
        "add" | "sub" => &ADD_QUANTITY,
        "compareTo" => &COMPARE,
        "isGreaterThan" | "isLessThan" => &IS_BEYOND,
        _ => &[],
    }
}

/// Returns the result type of a call, or cel-go's error if no overload matches. In a member call,
/// the first of `args` is the type of the receiver.
pub(super) fn resolve(name: &str, args: &[Ty], member: bool) -> Result<Ty, String> {
    let mut result: Option<Ty> = None;
    for overload in overloads(name) {
        if overload.member != member || overload.args.len() != args.len() {
            continue;
        }
        let mut bound = Bound::default();
        if args
            .iter()
            .zip(overload.args)
            .all(|(arg, wanted)| bound.takes(arg, *wanted))
        {
            let ty = bound.result(overload.result);
            result = Some(match result {
                Some(other) if other != ty => Ty::Dyn,
                _ => ty,
            });
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

/// The types that replace the type parameters `A` and `B` in one call.
#[derive(Default)]
struct Bound {
    a: Option<Ty>,
    b: Option<Ty>,
}

impl Bound {
    /// Returns true if an argument of the type `arg` matches `wanted`. Sets `A` and `B` if `wanted`
    /// contains them.
    fn takes(&mut self, arg: &Ty, wanted: P) -> bool {
        match (wanted, arg) {
            (P::A, _) => bind(&mut self.a, arg),
            (P::B, _) => bind(&mut self.b, arg),
            (P::Dyn, _) => true,
            (_, arg) if arg.is_dynamic() => true,
            (P::ListA, Ty::List(of)) | (P::TypeA, Ty::Type(of)) => bind(&mut self.a, of),
            (P::MapAB, Ty::Map(key, value)) => bind(&mut self.a, key) && bind(&mut self.b, value),
            (P::ListDyn, Ty::List(_)) => true,
            (P::ListA | P::ListDyn | P::MapAB | P::TypeA, _) => false,
            (wanted, arg) => arg.fits(&self.result(wanted)),
        }
    }

    fn result(&self, ty: P) -> Ty {
        let of = |bound: &Option<Ty>| bound.clone().unwrap_or(Ty::Dyn);
        match ty {
            P::A => of(&self.a),
            P::B => of(&self.b),
            P::ListA => Ty::list(of(&self.a)),
            P::MapAB => Ty::map(of(&self.a), of(&self.b)),
            P::ListDyn => Ty::list(Ty::Dyn),
            P::ListString => Ty::list(Ty::String),
            P::TypeA => Ty::Type(Box::new(of(&self.a))),
            P::Bool => Ty::Bool,
            P::Int => Ty::Int,
            P::Uint => Ty::Uint,
            P::Double => Ty::Double,
            P::String => Ty::String,
            P::Bytes => Ty::Bytes,
            P::Duration => Ty::Duration,
            P::Timestamp => Ty::Timestamp,
            P::Quantity => Ty::Quantity,
            P::Dyn => Ty::Dyn,
        }
    }
}

/// Sets a type parameter to `ty`. Returns false if the type parameter already has a type that does
/// not fit `ty`.
fn bind(bound: &mut Option<Ty>, ty: &Ty) -> bool {
    match bound {
        None => {
            *bound = Some(ty.clone());
            true
        }
        Some(own) if own.fits(ty) => {
            if ty.covers(own) {
                *own = ty.clone();
            }
            true
        }
        Some(_) => false,
    }
}
