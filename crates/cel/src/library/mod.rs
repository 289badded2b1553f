//! The functions and operators of the expressions of a `ValidatingAdmissionPolicy` in Kubernetes
//! 1.36. Each module of this folder has the signatures of some functions, and implements these
//! functions.

mod addresses;
pub(crate) mod conversions;
mod format;
pub(crate) mod format_string;
mod ip;
pub(crate) mod lists;
mod named_formats;
pub(crate) mod operators;
mod optionals;
mod quantities;
mod regex;
mod semver;
mod standard;
mod strings;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use crate::budget::Budget;
use crate::types::Ty;
use crate::value::V;
use crate::value::fault::{Fault, Outcome};

/// Calls the function with this name, which must be one of the functions of a module.
type Call = for<'e> fn(&str, &[V<'e>], &mut Budget) -> Outcome<'e>;

/// The signatures of functions, with their implementation. If a function is in two lists, such as
/// `indexOf` of strings and lists, the first implementation that accepts the arguments is used.
static IMPLEMENTATIONS: [(&str, Call); 21] = [
    (operators::ADD, operators::add),
    (operators::SUBTRACT, operators::subtract),
    (operators::MULTIPLY, operators::multiply),
    (operators::DIVIDE, operators::divide),
    (operators::MODULO, operators::modulo),
    (operators::NEGATE, operators::negate),
    (operators::NOT, operators::not),
    (operators::EQUAL, operators::equal),
    (operators::ORDER, operators::order),
    (operators::IN, operators::contained),
    (operators::MACROS, operators::of_macro),
    (standard::SIGNATURES, standard::call),
    (conversions::SIGNATURES, conversions::call),
    (regex::SIGNATURES, regex::call),
    (strings::SIGNATURES, strings::call),
    (lists::SIGNATURES, lists::call),
    (optionals::SIGNATURES, optionals::call),
    (quantities::SIGNATURES, quantities::call),
    (semver::SIGNATURES, semver::call),
    (addresses::SIGNATURES, addresses::call),
    (named_formats::SIGNATURES, named_formats::call),
];

/// The types that have an order. In a signature, `T: comparable` stands for them.
const COMPARABLE: &str = "int|uint|double|bool|duration|timestamp|string|bytes";

static FUNCTIONS: LazyLock<BTreeMap<&str, Function>> = LazyLock::new(|| {
    let mut functions: BTreeMap<&str, Function> = BTreeMap::new();
    for (signatures, call) in &IMPLEMENTATIONS {
        for line in signatures.lines().filter(|line| !line.is_empty()) {
            let signature = Signature::parse(line);
            for name in signature.names.split('|') {
                let function = functions.entry(name).or_insert_with(|| Function {
                    name,
                    overloads: Vec::new(),
                    calls: Vec::new(),
                });
                function.overloads.extend(signature.overloads());
                if !function.calls.contains(call) {
                    function.calls.push(*call);
                }
            }
        }
    }
    functions
});

/// A function or an operator.
pub(crate) struct Function {
    pub name: &'static str,
    pub overloads: Vec<Overload>,
    calls: Vec<Call>,
}

/// The types of the arguments and of the result of one variant of a function.
pub(crate) struct Overload {
    /// True for `receiver.name(..)`, and false for `name(..)`.
    pub is_member: bool,
    /// The types of the arguments. The receiver of a member call is the first argument.
    pub args: Vec<Ty>,
    pub result: Ty,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Function {
    /// Returns the function with a name such as `size` or `sets.contains`, or the operator with the
    /// name that the parser gives to it, such as `_+_`.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        FUNCTIONS.get(name)
    }

    /// Returns all functions, without the operators.
    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        FUNCTIONS.values().filter(|it| !it.is_operator())
    }

    /// Returns true for operators, and for the internal functions of macros, which cannot be called.
    pub(crate) fn is_operator(&self) -> bool {
        self.name.contains(['_', '@'])
    }

    pub(crate) fn call<'e>(&self, args: &[V<'e>], budget: &mut Budget) -> Outcome<'e> {
        let mut fault = Fault::no_overload();
        for call in &self.calls {
            match call(self.name, args, budget) {
                Ok(value) => return Ok(value),
                Err(other) => fault = other,
            }
            if !fault.is_no_overload() {
                break;
            }
        }
        Err(fault.about(&self.operation(args)))
    }

    /// Returns the operator or function with the types of its operands, such as `string + int` or
    /// `string.split(int)`.
    #[cold]
    fn operation(&self, args: &[V<'_>]) -> Vec<&'static str> {
        let types = args.iter().map(V::type_name);
        if self.name == "@in" {
            return types.flat_map(|ty| [ty, " in "]).take(3).collect();
        }
        if self.is_operator() {
            // The name of an operator has `_` in place of its operands.
            let spaces = if args.len() > 1 { " " } else { "" };
            let signs = self.name.split('_').filter(|sign| !sign.is_empty());
            let sign = signs.flat_map(|sign| [spaces, sign, spaces]);
            let (left, right) = args.split_at(args.len() - 1);
            let left = left.iter().map(V::type_name);
            let right = right.iter().map(V::type_name);
            return left.chain(sign).chain(right).collect();
        }
        // An expression can contain `size(x)` or `x.size()`. The error always shows the first form,
        // which is more usual.
        let is_member = self.name != "size" && self.overloads.iter().any(|it| it.is_member);
        // The compiler can add an argument to `sum`, which the author has not written.
        let written = self.overloads.iter().map(|it| it.args.len()).max();
        let types: Vec<_> = types.take(written.unwrap_or_default()).collect();
        let (receiver, args) = types.split_at(usize::from(is_member).min(types.len()));
        let receiver = receiver.iter().flat_map(|receiver| [receiver, "."]);
        let mut words: Vec<_> = receiver.chain([self.name, "("]).collect();
        for (at, arg) in args.iter().enumerate() {
            words.extend([if at > 0 { ", " } else { "" }, arg]);
        }
        words.push(")");
        words
    }
}

/// The signature of one or more functions, such as `<list(A)>.first|last() -> <optional_type(A)>`.
/// The receiver, the arguments and the result are types in angle brackets. A signature such as
/// `<list(T)>.sum() -> <T> where T: int|uint` stands for one signature for each type after `where`.
struct Signature {
    /// The names, with `|` between them.
    names: &'static str,
    receiver: Option<&'static str>,
    args: &'static str,
    result: &'static str,
    /// The types that `T` stands for, with `|` between them.
    types: &'static str,
}

impl Signature {
    fn parse(line: &'static str) -> Self {
        let (signature, types) = line.split_once(" where T: ").unwrap_or((line, ""));
        let parts = signature.split_once(") -> ").and_then(|(call, result)| {
            let member = call.strip_prefix('<').and_then(|it| it.split_once(">."));
            let (receiver, call) = member.map_or((None, call), |(own, it)| (Some(own), it));
            let (names, args) = call.split_once('(')?;
            Some(Self {
                names,
                receiver,
                args,
                result,
                types: if types == "comparable" {
                    COMPARABLE
                } else {
                    types
                },
            })
        });
        parts.unwrap_or_else(|| panic!("{line:?} is not a signature"))
    }

    /// Returns one overload, or one for each type that `T` stands for.
    fn overloads(&self) -> impl Iterator<Item = Overload> {
        self.types.split('|').map(|chosen| {
            let ty = |text: &str| Ty::parse(&text.trim_matches(['<', '>']).replace('T', chosen));
            let args = self.args.split(">, <").filter(|arg| !arg.is_empty());
            Overload {
                is_member: self.receiver.is_some(),
                args: self.receiver.into_iter().chain(args).map(ty).collect(),
                result: ty(self.result),
            }
        })
    }
}

/// Returns the overloads of a function or operator, or an empty slice for an unknown name.
pub(crate) fn overloads(name: &str) -> &'static [Overload] {
    Function::named(name).map_or(&[], |function| &function.overloads)
}
