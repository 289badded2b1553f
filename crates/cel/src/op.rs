//! The op tree, which is the compiled form of an expression. The compiler creates the op tree, and
//! the module `eval` evaluates it. An op tree is immutable, can be shared between threads, and has
//! at most [`super::compile::MAX_DEPTH`] levels.

use super::failure::FixedText;
use super::pattern::Pattern;
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
    /// The variable of a comprehension. The number is the number of comprehensions around this
    /// comprehension: 0 for the outermost one.
    Var(usize),
    /// A chain of field selections, such as `a.b.c`. The whole chain is one op, so that the
    /// evaluation does not recurse for each field.
    Path(Box<Op>, Vec<Box<str>>),
    Has(Box<Op>, Box<str>),
    Index(Box<(Op, Op)>),
    List(Vec<Op>),
    Map(Vec<(Op, Op)>),
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
    /// `matches` with a pattern that is a string literal. If the pattern is invalid, each
    /// evaluation returns the error.
    Matches(Box<Op>, Result<Pattern, FixedText>),
    Call(Function, Vec<Op>),
    Fold(Box<Comprehension>),
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
}

impl PartialEq for Const {
    /// Returns true if the two constants have the same effect in every expression. `0.0` and `-0.0`
    /// are different, because `1.0 / 0.0` and `1.0 / -0.0` are different.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Uint(a), Self::Uint(b)) => a == b,
            (Self::Double(a), Self::Double(b)) => a.to_bits() == b.to_bits(),
            (Self::Str(a), Self::Str(b)) => a == b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::Type(a), Self::Type(b)) => a == b,
            _ => false,
        }
    }
}

impl Const {
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

/// A comprehension, such as `list.exists(x, x > 1)`.
#[derive(Debug, PartialEq)]
pub(super) struct Comprehension {
    pub kind: ComprehensionKind,
    /// The list or map whose elements or keys are visited.
    pub range: Op,
    /// The condition of a `map` with three arguments.
    pub test: Option<Op>,
    /// The last argument, which is evaluated for each element or key.
    pub body: Op,
    /// Number of steps for one element or key.
    pub weight: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComprehensionKind {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
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

impl Function {
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "size" => Self::Size,
            "contains" => Self::Contains,
            "startsWith" => Self::StartsWith,
            "endsWith" => Self::EndsWith,
            "matches" => Self::Matches,
            "type" => Self::Type,
            "dyn" => Self::Dyn,
            "bool" => Self::Bool,
            "bytes" => Self::Bytes,
            "double" => Self::Double,
            "duration" => Self::Duration,
            "int" => Self::Int,
            "string" => Self::String,
            "timestamp" => Self::Timestamp,
            "uint" => Self::Uint,
            "getFullYear" => Self::Get(TimePart::FullYear),
            "getMonth" => Self::Get(TimePart::Month),
            "getDayOfYear" => Self::Get(TimePart::DayOfYear),
            "getDayOfMonth" => Self::Get(TimePart::DayOfMonth),
            "getDate" => Self::Get(TimePart::Date),
            "getDayOfWeek" => Self::Get(TimePart::DayOfWeek),
            "getHours" => Self::Get(TimePart::Hours),
            "getMinutes" => Self::Get(TimePart::Minutes),
            "getSeconds" => Self::Get(TimePart::Seconds),
            "getMilliseconds" => Self::Get(TimePart::Milliseconds),
            "charAt" => Self::CharAt,
            "format" => Self::Format,
            "indexOf" => Self::IndexOf,
            "join" => Self::Join,
            "lastIndexOf" => Self::LastIndexOf,
            "lowerAscii" => Self::LowerAscii,
            "replace" => Self::Replace,
            "split" => Self::Split,
            "substring" => Self::Substring,
            "trim" => Self::Trim,
            "upperAscii" => Self::UpperAscii,
            "quantity" => Self::Quantity,
            "isQuantity" => Self::IsQuantity,
            "isInteger" => Self::IsInteger,
            "asInteger" => Self::AsInteger,
            "asApproximateFloat" => Self::AsApproximateFloat,
            "sign" => Self::Sign,
            "add" => Self::Add,
            "sub" => Self::Sub,
            "isGreaterThan" => Self::IsGreaterThan,
            "isLessThan" => Self::IsLessThan,
            "compareTo" => Self::CompareTo,
            _ => return None,
        })
    }

    /// Returns the name of a function of the extension libraries, for error texts. The result is
    /// empty for other functions, because their errors do not contain the function's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::CharAt => "charAt",
            Self::Format => "format",
            Self::IndexOf => "indexOf",
            Self::Join => "join",
            Self::LastIndexOf => "lastIndexOf",
            Self::LowerAscii => "lowerAscii",
            Self::Replace => "replace",
            Self::Split => "split",
            Self::Substring => "substring",
            Self::Trim => "trim",
            Self::UpperAscii => "upperAscii",
            Self::Quantity => "quantity",
            Self::IsQuantity => "isQuantity",
            Self::IsInteger => "isInteger",
            Self::AsInteger => "asInteger",
            Self::AsApproximateFloat => "asApproximateFloat",
            Self::Sign => "sign",
            Self::Add => "add",
            Self::Sub => "sub",
            Self::IsGreaterThan => "isGreaterThan",
            Self::IsLessThan => "isLessThan",
            Self::CompareTo => "compareTo",
            _ => "",
        }
    }

    /// Returns true for a function of the string library.
    pub(super) fn is_of_strings(self) -> bool {
        matches!(
            self,
            Self::CharAt
                | Self::Format
                | Self::IndexOf
                | Self::Join
                | Self::LastIndexOf
                | Self::LowerAscii
                | Self::Replace
                | Self::Split
                | Self::Substring
                | Self::Trim
                | Self::UpperAscii
        )
    }

    /// Returns true for a function of the quantity library.
    pub(super) fn is_of_quantities(self) -> bool {
        matches!(
            self,
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
                | Self::CompareTo
        )
    }
}
