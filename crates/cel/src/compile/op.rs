//! The op tree, which is the compiled form of an expression. Each node of the tree is an op. The
//! compiler creates the op tree, and the module `eval` evaluates it. An op tree is immutable, can
//! be shared between threads, and has at most 250 levels.

use crate::library::Function;
use crate::value::constant::Const;

#[derive(Debug)]
pub(crate) enum Op {
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
    /// A list literal. The flag is true for an optional element, such as `b` in `[a, ?b]`.
    List(Vec<(Op, bool)>),
    /// A map literal. The flag is true for an optional entry, as in `{?'a': b}`.
    Map(Vec<(Op, Op, bool)>),
    And(Vec<Op>),
    Or(Vec<Op>),
    Cond(Box<(Op, Op, Op)>),
    /// The operator `in` with a list of literals.
    InSet(Box<Op>, Vec<Const>),
    /// A call of a function, or an operator such as `==`.
    Call(&'static Function, Vec<Op>),
    /// `or` if the flag is false, or `orValue` if the flag is true. The second operand is evaluated
    /// only if the first operand is an optional without a value.
    Otherwise(Box<(Op, Op)>, bool),
    Fold(Box<Comprehension>),
    /// `optMap` or `optFlatMap`.
    OptionalTransform(Box<OptionalTransform>),
}

impl Op {
    pub(crate) fn call(name: &str, args: Vec<Op>) -> Self {
        let function = Function::named(name);
        Self::Call(function.expect("the function exists"), args)
    }

    /// Returns the operands. The body of a comprehension is left out, because it has a separate
    /// value in each iteration.
    pub(crate) fn operands(&self) -> Vec<&Op> {
        match self {
            Self::Const(_)
            | Self::Object
            | Self::Now
            | Self::Item
            | Self::Variable(_)
            | Self::LocalVariable(_) => Vec::new(),
            Self::Path(operand, _)
            | Self::OptionalPath(operand, _)
            | Self::Has(operand, _)
            | Self::InSet(operand, _) => vec![operand],
            Self::Index(pair) | Self::OptionalIndex(pair) | Self::Otherwise(pair, _) => {
                vec![&pair.0, &pair.1]
            }
            Self::Cond(parts) => vec![&parts.0, &parts.1, &parts.2],
            Self::List(items) => items.iter().map(|(op, _)| op).collect(),
            Self::Map(entries) => {
                let entries = entries.iter();
                entries.flat_map(|(key, value, _)| [key, value]).collect()
            }
            Self::And(ops) | Self::Or(ops) | Self::Call(_, ops) => ops.iter().collect(),
            Self::Fold(fold) => vec![&fold.range],
            Self::OptionalTransform(transform) => vec![&transform.target],
        }
    }
}

/// A call of `optMap` or `optFlatMap`. The body reads the value of the optional through a variable,
/// as in a comprehension.
#[derive(Debug)]
pub(crate) struct OptionalTransform {
    pub target: Op,
    pub body: Op,
    /// True for `optFlatMap`, whose body returns an optional.
    pub flat: bool,
    /// Number of budget steps that each evaluation of the body takes. Comprehensions in the body
    /// take further steps.
    pub weight: u64,
}

/// A comprehension, such as `list.exists(x, x > 1)` or `list.exists(i, x, x > i)`.
#[derive(Debug)]
pub(crate) struct Comprehension {
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
pub(crate) enum ComprehensionKind {
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
    /// Returns true if a condition can precede the body, as in `map(x, condition, body)`.
    pub(crate) fn can_have_condition(self) -> bool {
        matches!(
            self,
            Self::Map | Self::TransformMap | Self::TransformMapEntry
        )
    }
}
