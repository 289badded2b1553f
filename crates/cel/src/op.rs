//! The op tree, which is the compiled form of an expression. Each node of the tree is an op. The
//! compiler creates the op tree, and the module `eval` evaluates it. An op tree is immutable, can
//! be shared between threads, and has at most [`super::compile::MAX_DEPTH`] levels.

use super::named_format::NamedFormat;
use super::overloads::constant_format;
use super::pattern::Pattern;
use super::time::CelTimestamp;
use super::value::{Bytes, Text, V};

#[derive(Debug, PartialEq)]
pub(super) enum Op {
    Const(Const),
    Object,
    Now,
    /// `item`, which is an element of a list that another expression returned.
    Item,
    /// A variable of the environment, by its index.
    Variable(usize),
    /// A variable of a comprehension, `optMap` or `optFlatMap`. The number is the index of the
    /// variable among all such variables in scope: 0 for the first variable of the outermost
    /// comprehension.
    LocalVariable(usize),
    /// A chain of field selections, such as `a.b.c`. The whole chain is one op, so that the
    /// evaluation does not recurse for each field.
    Path(Box<Op>, Vec<Box<str>>),
    /// A chain of field selections whose first selection is optional, such as `.?a.b`. The result
    /// is an optional value. If a field is missing, the result is `optional.none()`.
    OptionalPath(Box<Op>, Vec<Box<str>>),
    Has(Box<Op>, Box<str>),
    Index(Box<(Op, Op)>),
    /// `list[?index]` or `map[?key]`, which returns an optional value.
    OptionalIndex(Box<(Op, Op)>),
    List(Vec<Op>),
    /// A list literal with optional elements, such as `[a, ?b]`. The flag is true for an optional
    /// element.
    OptionalList(Vec<(Op, bool)>),
    Map(Vec<(Op, Op)>),
    /// A map literal with optional entries, such as `{?'a': b}`. The flag is true for an optional
    /// entry.
    OptionalMap(Vec<(Op, Op, bool)>),
    Not(Box<Op>),
    Neg(Box<Op>),
    And(Vec<Op>),
    Or(Vec<Op>),
    Cond(Box<(Op, Op, Op)>),
    /// `==` if the flag is true, or `!=` if the flag is false.
    Equal(Box<(Op, Op)>, bool),
    Order(Box<(Op, Op)>, Order),
    Arith(Box<(Op, Op)>, Arith),
    In(Box<(Op, Op)>),
    /// The operator `in` with a list of literals.
    InSet(Box<Op>, Vec<Const>),
    /// `matches` with a pattern that is a string literal.
    Matches(Box<Op>, Pattern),
    /// `find` or `findAll` with a pattern that is a string literal.
    Find(Box<PatternSearch>),
    Call(Function, Vec<Op>),
    /// `or` if the flag is false, or `orValue` if the flag is true. The second operand is evaluated
    /// only if the first operand is an optional without a value.
    Otherwise(Box<(Op, Op)>, bool),
    Fold(Box<Comprehension>),
    /// `optMap` or `optFlatMap`.
    OptionalTransform(Box<OptionalTransform>),
}

/// A call of `find` or `findAll` with a pattern that is a string literal.
#[derive(Debug, PartialEq)]
pub(super) struct PatternSearch {
    pub text: Op,
    pub pattern: Pattern,
    /// True for `findAll`.
    pub all: bool,
    /// The maximum number of matches.
    pub limit: Option<Op>,
}

/// A call of `optMap` or `optFlatMap`. The body reads the value of the optional through a variable,
/// as in a comprehension.
#[derive(Debug, PartialEq)]
pub(super) struct OptionalTransform {
    pub target: Op,
    pub body: Op,
    /// True for `optFlatMap`, whose body returns an optional.
    pub flat: bool,
    /// Number of budget steps that each evaluation of the body takes. Comprehensions in the body
    /// take further steps.
    pub weight: u64,
}

#[derive(Debug)]
pub(super) enum Const {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Str(Box<str>),
    Bytes(Box<[u8]>),
    Type(&'static str),
    /// A duration in nanoseconds.
    Duration(i64),
    Time(CelTimestamp),
}

impl PartialEq for Const {
    /// Returns true if the two constants have the same effect in every expression. `0.0` and `-0.0`
    /// are different, because `1.0 / 0.0` and `1.0 / -0.0` are different.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) | (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::Uint(a), Self::Uint(b)) => a == b,
            (Self::Double(a), Self::Double(b)) => a.to_bits() == b.to_bits(),
            (Self::Str(a), Self::Str(b)) => a == b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::Type(a), Self::Type(b)) => a == b,
            (Self::Time(a), Self::Time(b)) => a == b,
            _ => false,
        }
    }
}

impl Const {
    /// Returns the constant with the value `value`. Returns None for a value that is not stored in
    /// the op tree, such as a list.
    pub(super) fn of(value: &V<'_>) -> Option<Self> {
        Some(match value {
            V::Null => Self::Null,
            V::Bool(value) => Self::Bool(*value),
            V::Int(value) => Self::Int(*value),
            V::Uint(value) => Self::Uint(*value),
            V::Double(value) => Self::Double(*value),
            V::Str(text) => Self::Str((**text).into()),
            V::Bytes(bytes) => Self::Bytes((**bytes).into()),
            V::Type(name) => Self::Type(name),
            V::Duration(nanoseconds) => Self::Duration(*nanoseconds),
            V::Time(time) => Self::Time(*time),
            _ => return None,
        })
    }

    pub(super) fn value(&self) -> V<'_> {
        match self {
            Self::Null => V::Null,
            Self::Bool(value) => V::Bool(*value),
            Self::Int(value) => V::Int(*value),
            Self::Uint(value) => V::Uint(*value),
            Self::Double(value) => V::Double(*value),
            Self::Str(value) => V::Str(Text::Ref(value)),
            Self::Bytes(value) => V::Bytes(Bytes::Ref(value)),
            Self::Type(name) => V::Type(name),
            Self::Duration(nanoseconds) => V::Duration(*nanoseconds),
            Self::Time(time) => V::Time(*time),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arith {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
}

/// A comprehension, such as `list.exists(x, x > 1)` or `list.exists(i, x, x > i)`.
#[derive(Debug, PartialEq)]
pub(super) struct Comprehension {
    pub kind: ComprehensionKind,
    /// True if the comprehension has two variables: the index and the element of a list, or the key
    /// and the value of a map. False if it has one variable: the element of a list, or the key of a
    /// map.
    pub two_variables: bool,
    /// The list or map that is visited.
    pub range: Op,
    /// The condition of `map`, `transformList`, `transformMap` and `transformMapEntry`. None if the
    /// call has no condition.
    pub test: Option<Op>,
    /// The last argument. If there is a condition, the body is evaluated only for the elements or
    /// keys for which the condition is true.
    pub body: Op,
    /// Number of budget steps for one element or key. Comprehensions in `test` and `body` take
    /// further steps.
    pub weight: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComprehensionKind {
    All,
    Exists,
    ExistsOne,
    Filter,
    /// `map`, or `transformList`.
    Map,
    TransformMap,
    TransformMapEntry,
    /// `sortBy`, whose body returns the sort key of an element.
    SortBy,
}

impl ComprehensionKind {
    /// Returns true if the result is a list.
    pub(super) fn makes_list(self) -> bool {
        matches!(self, Self::Filter | Self::Map | Self::SortBy)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Size,
    Contains,
    StartsWith,
    EndsWith,
    Matches,
    Type,
    Dyn,
    Bool,
    Bytes,
    Double,
    Duration,
    Int,
    String,
    Timestamp,
    Uint,
    Get(TimePart),
    CharAt,
    Format,
    IndexOf,
    Join,
    LastIndexOf,
    LowerAscii,
    Quote,
    Replace,
    Split,
    Substring,
    Trim,
    UpperAscii,
    Quantity,
    IsQuantity,
    IsInteger,
    AsInteger,
    AsApproximateFloat,
    Sign,
    Add,
    Sub,
    IsGreaterThan,
    IsLessThan,
    CompareTo,
    Sum,
    Min,
    Max,
    IsSorted,
    Sort,
    Slice,
    Flatten,
    Range,
    Reverse,
    Distinct,
    First,
    Last,
    SetsContains,
    SetsEquivalent,
    SetsIntersects,
    OptionalOf,
    OptionalOfNonZeroValue,
    OptionalNone,
    OptionalUnwrap,
    UnwrapOpt,
    Value,
    HasValue,
    Or,
    OrValue,
    Find,
    FindAll,
    Url,
    IsUrl,
    GetScheme,
    GetHost,
    GetHostname,
    GetPort,
    GetEscapedPath,
    GetQuery,
    Ip,
    IsIp,
    IsCanonicalIp,
    Family,
    IsUnspecified,
    IsLoopback,
    IsLinkLocalMulticast,
    IsLinkLocalUnicast,
    IsGlobalUnicast,
    Cidr,
    IsCidr,
    ContainsIp,
    ContainsCidr,
    Masked,
    PrefixLength,
    Semver,
    IsSemver,
    Major,
    Minor,
    Patch,
    NamedFormat,
    Validate,
    /// A function such as `format.dns1123Label`.
    ConstantFormat(NamedFormat),
}

/// A group of functions that one module implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Library {
    /// The functions of the language itself.
    Core,
    /// The string functions.
    Strings,
    /// The quantities of Kubernetes.
    Quantities,
    /// The functions of lists and sets.
    Lists,
    /// The functions of optional values.
    Optionals,
    /// `find` and `findAll`, which search with a regular expression.
    Patterns,
    /// URLs, IP addresses and networks.
    Addresses,
    /// Semantic versions.
    Versions,
    /// The named formats of Kubernetes.
    Formats,
}

/// The component of a timestamp or duration that a getter such as `getHours` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimePart {
    FullYear,
    Month,
    DayOfYear,
    DayOfMonth,
    Date,
    DayOfWeek,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
}

/// The functions with their names. Functions such as `format.uri` are not in this list.
static FUNCTIONS: [(&str, Function); 104] = [
    ("size", Function::Size),
    ("contains", Function::Contains),
    ("startsWith", Function::StartsWith),
    ("endsWith", Function::EndsWith),
    ("matches", Function::Matches),
    ("type", Function::Type),
    ("dyn", Function::Dyn),
    ("bool", Function::Bool),
    ("bytes", Function::Bytes),
    ("double", Function::Double),
    ("duration", Function::Duration),
    ("int", Function::Int),
    ("string", Function::String),
    ("timestamp", Function::Timestamp),
    ("uint", Function::Uint),
    ("getFullYear", Function::Get(TimePart::FullYear)),
    ("getMonth", Function::Get(TimePart::Month)),
    ("getDayOfYear", Function::Get(TimePart::DayOfYear)),
    ("getDayOfMonth", Function::Get(TimePart::DayOfMonth)),
    ("getDate", Function::Get(TimePart::Date)),
    ("getDayOfWeek", Function::Get(TimePart::DayOfWeek)),
    ("getHours", Function::Get(TimePart::Hours)),
    ("getMinutes", Function::Get(TimePart::Minutes)),
    ("getSeconds", Function::Get(TimePart::Seconds)),
    ("getMilliseconds", Function::Get(TimePart::Milliseconds)),
    ("charAt", Function::CharAt),
    ("format", Function::Format),
    ("indexOf", Function::IndexOf),
    ("join", Function::Join),
    ("lastIndexOf", Function::LastIndexOf),
    ("lowerAscii", Function::LowerAscii),
    ("strings.quote", Function::Quote),
    ("replace", Function::Replace),
    ("split", Function::Split),
    ("substring", Function::Substring),
    ("trim", Function::Trim),
    ("upperAscii", Function::UpperAscii),
    ("quantity", Function::Quantity),
    ("isQuantity", Function::IsQuantity),
    ("isInteger", Function::IsInteger),
    ("asInteger", Function::AsInteger),
    ("asApproximateFloat", Function::AsApproximateFloat),
    ("sign", Function::Sign),
    ("add", Function::Add),
    ("sub", Function::Sub),
    ("isGreaterThan", Function::IsGreaterThan),
    ("isLessThan", Function::IsLessThan),
    ("compareTo", Function::CompareTo),
    ("sum", Function::Sum),
    ("min", Function::Min),
    ("max", Function::Max),
    ("isSorted", Function::IsSorted),
    ("sort", Function::Sort),
    ("slice", Function::Slice),
    ("flatten", Function::Flatten),
    ("lists.range", Function::Range),
    ("reverse", Function::Reverse),
    ("distinct", Function::Distinct),
    ("first", Function::First),
    ("last", Function::Last),
    ("sets.contains", Function::SetsContains),
    ("sets.equivalent", Function::SetsEquivalent),
    ("sets.intersects", Function::SetsIntersects),
    ("optional.of", Function::OptionalOf),
    ("optional.ofNonZeroValue", Function::OptionalOfNonZeroValue),
    ("optional.none", Function::OptionalNone),
    ("optional.unwrap", Function::OptionalUnwrap),
    ("unwrapOpt", Function::UnwrapOpt),
    ("value", Function::Value),
    ("hasValue", Function::HasValue),
    ("or", Function::Or),
    ("orValue", Function::OrValue),
    ("find", Function::Find),
    ("findAll", Function::FindAll),
    ("url", Function::Url),
    ("isURL", Function::IsUrl),
    ("getScheme", Function::GetScheme),
    ("getHost", Function::GetHost),
    ("getHostname", Function::GetHostname),
    ("getPort", Function::GetPort),
    ("getEscapedPath", Function::GetEscapedPath),
    ("getQuery", Function::GetQuery),
    ("ip", Function::Ip),
    ("isIP", Function::IsIp),
    ("ip.isCanonical", Function::IsCanonicalIp),
    ("family", Function::Family),
    ("isUnspecified", Function::IsUnspecified),
    ("isLoopback", Function::IsLoopback),
    ("isLinkLocalMulticast", Function::IsLinkLocalMulticast),
    ("isLinkLocalUnicast", Function::IsLinkLocalUnicast),
    ("isGlobalUnicast", Function::IsGlobalUnicast),
    ("cidr", Function::Cidr),
    ("isCIDR", Function::IsCidr),
    ("containsIP", Function::ContainsIp),
    ("containsCIDR", Function::ContainsCidr),
    ("masked", Function::Masked),
    ("prefixLength", Function::PrefixLength),
    ("semver", Function::Semver),
    ("isSemver", Function::IsSemver),
    ("major", Function::Major),
    ("minor", Function::Minor),
    ("patch", Function::Patch),
    ("format.named", Function::NamedFormat),
    ("validate", Function::Validate),
];

impl Function {
    /// Returns the names of all functions, except for functions such as `format.uri`.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        FUNCTIONS.iter().map(|(name, _)| *name)
    }

    /// Returns the function with a name such as `size` or `sets.contains`. None if there is no such
    /// function.
    pub(super) fn named(name: &str) -> Option<Self> {
        let mut functions = FUNCTIONS.iter();
        functions
            .find_map(|(own, function)| (*own == name).then_some(*function))
            .or_else(|| constant_format(name).map(Self::ConstantFormat))
    }

    /// Returns the name of the function for error texts. The result is `format` for all functions
    /// such as `format.uri`.
    pub(super) fn full_name(self) -> &'static str {
        let mut functions = FUNCTIONS.iter();
        let found = functions.find(|(_, function)| *function == self);
        found.map_or("format", |(name, _)| name)
    }

    /// Returns the name of the function like [`Self::full_name`], but an empty text for functions
    /// such as `format.uri`.
    pub(super) fn name(self) -> &'static str {
        let mut functions = FUNCTIONS.iter();
        let named = functions.find(|(_, own)| *own == self);
        named.map_or("", |(name, _)| name)
    }

    /// Returns the library that implements the function.
    ///
    /// Some functions belong to two libraries. `indexOf` and `lastIndexOf` are also functions of
    /// lists. `isGreaterThan`, `isLessThan` and `compareTo` are functions of quantities and of
    /// semantic versions. For these functions, the module `eval` chooses the library by the type of
    /// the first argument.
    pub(super) fn library(self) -> Library {
        match self {
            Self::CharAt
            | Self::Format
            | Self::IndexOf
            | Self::Join
            | Self::LastIndexOf
            | Self::LowerAscii
            | Self::Quote
            | Self::Replace
            | Self::Split
            | Self::Substring
            | Self::Trim
            | Self::UpperAscii => Library::Strings,
            Self::Quantity
            | Self::IsQuantity
            | Self::IsInteger
            | Self::AsInteger
            | Self::AsApproximateFloat
            | Self::Sign
            | Self::Add
            | Self::Sub
            | Self::IsGreaterThan
            | Self::IsLessThan
            | Self::CompareTo => Library::Quantities,
            Self::Sum
            | Self::Min
            | Self::Max
            | Self::IsSorted
            | Self::Sort
            | Self::Slice
            | Self::Flatten
            | Self::Range
            | Self::Reverse
            | Self::Distinct
            | Self::First
            | Self::Last
            | Self::SetsContains
            | Self::SetsEquivalent
            | Self::SetsIntersects => Library::Lists,
            Self::OptionalOf
            | Self::OptionalOfNonZeroValue
            | Self::OptionalNone
            | Self::OptionalUnwrap
            | Self::UnwrapOpt
            | Self::Value
            | Self::HasValue
            | Self::Or
            | Self::OrValue => Library::Optionals,
            Self::Find | Self::FindAll => Library::Patterns,
            Self::Url
            | Self::IsUrl
            | Self::GetScheme
            | Self::GetHost
            | Self::GetHostname
            | Self::GetPort
            | Self::GetEscapedPath
            | Self::GetQuery
            | Self::Ip
            | Self::IsIp
            | Self::IsCanonicalIp
            | Self::Family
            | Self::IsUnspecified
            | Self::IsLoopback
            | Self::IsLinkLocalMulticast
            | Self::IsLinkLocalUnicast
            | Self::IsGlobalUnicast
            | Self::Cidr
            | Self::IsCidr
            | Self::ContainsIp
            | Self::ContainsCidr
            | Self::Masked
            | Self::PrefixLength => Library::Addresses,
            Self::Semver | Self::IsSemver | Self::Major | Self::Minor | Self::Patch => {
                Library::Versions
            }
            Self::NamedFormat | Self::Validate | Self::ConstantFormat(_) => Library::Formats,
            _ => Library::Core,
        }
    }

    /// Returns true for a string function that is also a function of lists.
    pub(super) fn is_of_lists(self) -> bool {
        matches!(self, Self::IndexOf | Self::LastIndexOf)
    }

    /// Returns true for a function that converts a value to another type. As in cel-go, the
    /// compiler evaluates a call of such a function if the argument is a literal.
    pub(super) fn is_conversion(self) -> bool {
        matches!(
            self,
            Self::Bool
                | Self::Bytes
                | Self::Double
                | Self::Duration
                | Self::Dyn
                | Self::Int
                | Self::String
                | Self::Timestamp
                | Self::Uint
        )
    }
}
