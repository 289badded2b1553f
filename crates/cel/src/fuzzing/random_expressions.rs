//! Generates random CEL expressions for the comparison with Kubernetes. Most of them are
//! well-typed: the generator chooses the type of an expression first, then a function that returns
//! this type, and then the arguments. The function `overloads` returns the argument types and
//! result types of each CEL function.

use std::fmt;

use serde_json::Value;

use super::kubernetes_comparison::PolicyVariable;
use super::operands::{self, texts};
use crate::op::Function;
use crate::overloads::{Overload, ParameterType, overloads};
use crate::type_check::Ty;

/// A generator of pseudo-random numbers. The same seed always yields the same numbers.
pub struct Random(u64);

impl Random {
    /// Returns the generator for `seed`.
    pub fn new(seed: u64) -> Self {
        // Seeds such as 1 and 2 differ in two bits only. The multiplication spreads these bits. The
        // operand `| 1` prevents the state 0, in which the generator would return only 0.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number from 0 to `bound - 1`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The upper bits are more random than the lower bits.
        usize::try_from((self.0 >> 11) % bound.max(1) as u64).unwrap_or_default()
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn pick<'p, T>(&mut self, list: &'p [T]) -> &'p T {
        &list[self.below(list.len())]
    }
}

/// An expression as text, with its sub-expressions.
#[derive(Clone, Debug)]
pub struct Expression(Vec<ExpressionPart>);

#[derive(Clone, Debug)]
enum ExpressionPart {
    Text(String),
    Child(Expression),
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.0 {
            match part {
                ExpressionPart::Text(text) => f.write_str(text)?,
                ExpressionPart::Child(child) => child.fmt(f)?,
            }
        }
        Ok(())
    }
}

/// The literals with which [`Expression::smaller`] replaces sub-expressions.
const SMALLEST: [&str; 8] = ["null", "true", "0", "1", "''", "'a'", "[]", "{}"];

impl Expression {
    /// Returns an expression without sub-expressions.
    pub fn text(text: impl Into<String>) -> Self {
        Self(vec![ExpressionPart::Text(text.into())])
    }

    /// Replaces each `$` of `template` with the next of `children`.
    fn filled(template: &str, children: Vec<Expression>) -> Self {
        let mut texts = template.split('$');
        let mut parts = Vec::new();
        parts.extend(
            texts
                .next()
                .map(|text| ExpressionPart::Text(text.to_owned())),
        );
        for (text, child) in texts.zip(children) {
            parts.extend([
                ExpressionPart::Child(child),
                ExpressionPart::Text(text.to_owned()),
            ]);
        }
        Self(parts)
    }

    /// Returns smaller expressions. Each of them results from one change of this expression or of
    /// one of its sub-expressions:
    ///
    /// - A part of the expression replaces the expression: `a + b` becomes `a`.
    /// - A short literal replaces the expression: `a + b` becomes `0`.
    /// - An argument is left out: `f(a, b)` becomes `f(a)`.
    ///
    /// Some of the returned expressions are not valid.
    pub fn smaller(&self) -> Vec<Expression> {
        let mut all: Vec<_> = self.children().cloned().collect();
        let own = self.to_string();
        all.extend(
            (SMALLEST.iter().filter(|text| text.len() < own.len())).map(|text| Self::text(*text)),
        );
        for (at, part) in self.0.iter().enumerate() {
            match part {
                ExpressionPart::Child(child) => {
                    for other in child.smaller() {
                        let mut parts = self.0.clone();
                        parts[at] = ExpressionPart::Child(other);
                        all.push(Self(parts));
                    }
                }
                // This change drops a comma and the argument after the comma.
                ExpressionPart::Text(text) if text == ", " && at + 1 < self.0.len() => {
                    let mut parts = self.0.clone();
                    parts.drain(at..at + 2);
                    all.push(Self(parts));
                }
                ExpressionPart::Text(_) => {}
            }
        }
        all
    }

    fn children(&self) -> impl Iterator<Item = &Expression> {
        self.0.iter().filter_map(|part| match part {
            ExpressionPart::Child(child) => Some(child),
            ExpressionPart::Text(_) => None,
        })
    }

    /// Returns the template that inserts this expression where a dot or an index follows, as in
    /// `$.size()` or `$[0]`. The template is `$` or `($)`. An expression that begins with a digit,
    /// `-` or `!` needs the parentheses: `-1` becomes `(-1)`.
    fn before_dot(&self) -> &'static str {
        let is_simple = |char: char| !char.is_ascii_digit() && !"-!".contains(char);
        if self.to_string().starts_with(is_simple) {
            "$"
        } else {
            "($)"
        }
    }
}

/// A random expression, with the object and the variables that it reads.
#[derive(Clone, Debug)]
pub struct Case {
    /// The expression.
    pub expression: Expression,
    /// The index of the object in the `objects` of [`Generator::new`]. If the index is None, the
    /// value of the name `object` is null.
    pub object: Option<usize>,
    /// The variables that the expression can read.
    pub variables: Vec<PolicyVariable>,
}

/// A name in scope.
struct Name {
    text: String,
    ty: Ty,
    /// A JSON value that the name can have. The generator uses this value to make paths that exist,
    /// such as `object.list[0]`. None if no value is known.
    sample: Option<Value>,
}

/// The range of a comprehension, which is the list or map that the comprehension visits. `key` is
/// the type of the indexes or keys, and `value` is the type of the elements or members. `sample` is
/// one element or member, if the generator knows one.
struct Range {
    expression: Expression,
    key: Ty,
    value: Ty,
    sample: Option<Value>,
    is_list: bool,
}

/// The name of a function or operator, with one of its overloads.
type Signature = (String, &'static Overload);

/// Generates random cases.
pub struct Generator {
    random: Random,
    /// The objects as JSON.
    objects: Vec<Value>,
    signatures: Vec<Signature>,
    names: Vec<Name>,
}

const OPERATORS: [&str; 17] = [
    "_+_", "_-_", "_*_", "_/_", "_%_", "-_", "!_", "_==_", "_!=_", "_?_:_", "_<_", "_<=_", "_>_",
    "_>=_", "_[_]", "_[?_]", "@in",
];

/// Types whose values have an order.
const ORDERED: [Ty; 8] = [
    Ty::Int,
    Ty::Uint,
    Ty::Double,
    Ty::Bool,
    Ty::Duration,
    Ty::Timestamp,
    Ty::String,
    Ty::Bytes,
];

impl Generator {
    /// Returns the generator for `seed`. The expressions read fields of `objects`.
    pub fn new(seed: u64, objects: Vec<Value>) -> Self {
        let functions = Function::names().map(str::to_owned);
        let formats = texts(operands::FORMATS).into_iter();
        let formats = formats.map(|name| format!("format.{name}"));
        let operators = OPERATORS.map(str::to_owned);
        let names = functions.chain(formats).chain(operators);
        let signatures = names.flat_map(|name| {
            let all = overloads(&name).iter();
            all.map(move |overload| (name.clone(), overload))
        });
        Self {
            random: Random::new(seed),
            objects,
            signatures: signatures.collect(),
            names: Vec::new(),
        }
    }

    /// Returns the next case.
    pub fn case(&mut self) -> Case {
        self.names.clear();
        let object = (!self.random.one_in(40)).then(|| self.random.below(self.objects.len()));
        self.names.push(Name {
            text: "object".to_owned(),
            ty: Ty::Dyn,
            sample: object.map(|at| self.objects[at].clone()),
        });
        let mut variables = Vec::new();
        // Only few cases have variables. For each of these cases, Kubernetes makes an environment,
        // which takes some milliseconds.
        if self.random.one_in(30) {
            for name in ["first", "second"] {
                let ty = self.ty(1);
                let expression = self.expression(&ty, 1).to_string();
                variables.push(PolicyVariable {
                    name: name.to_owned(),
                    expression,
                });
                self.names.push(Name {
                    text: format!("variables.{name}"),
                    ty,
                    sample: None,
                });
            }
        }
        let ty = self.ty(2);
        let depth = 1 + self.random.below(4);
        Case {
            expression: self.expression(&ty, depth),
            object,
            variables,
        }
    }

    /// Returns a random type. `depth` limits the nesting of types: `list(list(int))` has the depth
    /// 2. Types such as `type(int)` are left out, because cel-go, the CEL implementation of
    /// Kubernetes, loses these types in some expressions.
    fn ty(&mut self, depth: usize) -> Ty {
        let deeper = if depth == 0 { 0 } else { 8 };
        match self.random.below(30 + deeper) {
            0..=4 => Ty::String,
            5..=8 => Ty::Int,
            9..=12 => Ty::Bool,
            13 | 14 => Ty::Double,
            15 => Ty::Uint,
            16 => Ty::Bytes,
            17 | 18 => Ty::Duration,
            19 | 20 => Ty::Timestamp,
            21 => Ty::Quantity,
            22 => Ty::Url,
            23 => Ty::Ip,
            24 => Ty::Cidr,
            25 => Ty::Semver,
            26 => Ty::NamedFormat,
            27 => Ty::Null,
            28 | 29 => Ty::Dyn,
            30..=33 => Ty::list(self.ty(depth - 1)),
            34 | 35 => Ty::map(self.key_ty(), self.ty(depth - 1)),
            // The value of an optional is not an optional, because cel-go loses nested optionals in
            // some expressions.
            _ => match self.ty(depth - 1) {
                Ty::Optional(of) => Ty::Optional(of),
                of => Ty::optional(of),
            },
        }
    }

    fn key_ty(&mut self) -> Ty {
        match self.random.below(8) {
            0 => Ty::Int,
            1 => Ty::Bool,
            2 => Ty::Uint,
            _ => Ty::String,
        }
    }

    /// Returns an expression of the type `ty`, or seldom an expression of another type. `depth`
    /// limits the nesting of calls.
    fn expression(&mut self, ty: &Ty, depth: usize) -> Expression {
        if self.random.one_in(80) {
            let other = self.ty(1);
            return self.typed(&other, depth);
        }
        self.typed(ty, depth)
    }

    fn typed(&mut self, ty: &Ty, depth: usize) -> Expression {
        if depth == 0 {
            return self.leaf(ty, 0);
        }
        match self.random.below(10) {
            0 => self.leaf(ty, depth - 1),
            1..=3 => self.macro_call(ty, depth - 1),
            _ => self.call(ty, depth - 1),
        }
    }

    /// Returns a name, a field or a literal. A list or map literal can contain calls with at most
    /// `depth` levels.
    fn leaf(&mut self, ty: &Ty, depth: usize) -> Expression {
        if self.random.one_in(3) {
            let fitting: Vec<_> = (self.names.iter())
                .filter(|name| name.ty.fits(ty) && name.text != "object")
                .map(|name| name.text.clone())
                .collect();
            if !fitting.is_empty() {
                return Expression::text(self.random.pick(&fitting).as_str());
            }
        }
        if self.random.one_in(3)
            && let Some((path, _)) = self.path(ty)
        {
            return path;
        }
        self.literal(ty, depth)
    }

    /// Returns a literal, or the call of a conversion with a literal, such as `duration('1h')`. A
    /// list or map can contain calls with at most `depth` levels.
    fn literal(&mut self, ty: &Ty, depth: usize) -> Expression {
        let (function, list) = match ty {
            Ty::Int => ("", operands::INTS),
            Ty::Uint => ("", operands::UINTS),
            Ty::Double => ("", operands::DOUBLES),
            Ty::String => ("", operands::STRINGS),
            Ty::Bytes => ("", operands::BYTES),
            Ty::Bool => ("", "true ;; false"),
            Ty::Null => ("", "null"),
            Ty::Duration => ("duration", operands::DURATIONS),
            Ty::Timestamp => ("timestamp", operands::TIMES),
            Ty::Quantity => ("quantity", operands::QUANTITIES),
            Ty::Url => ("url", operands::URLS),
            Ty::Ip => ("ip", operands::IPS),
            Ty::Cidr => ("cidr", operands::CIDRS),
            Ty::Semver => ("semver", operands::SEMVERS),
            Ty::NamedFormat => {
                let name = *self.random.pick(&texts(operands::FORMATS));
                return Expression::text(format!("format.{name}()"));
            }
            Ty::Type(_) => {
                let names = "int ;; string ;; list ;; map ;; type ;; bool ;; null_type ;; net.IP";
                ("", names)
            }
            Ty::Error | Ty::Unknown | Ty::Dyn | Ty::Schema(_) => {
                let of = self.ty(1);
                if matches!(of, Ty::Dyn) {
                    return Expression::text("dyn(1)");
                }
                return Expression::filled("dyn($)", vec![self.literal(&of, depth)]);
            }
            Ty::List(of) => return self.list(of, depth),
            Ty::Map(key, value) => return self.map(key, value, depth),
            Ty::Optional(of) => {
                let value = self.literal(of, depth);
                return match self.random.below(5) {
                    0 => Expression::text("optional.none()"),
                    1 => Expression::filled("optional.ofNonZeroValue($)", vec![value]),
                    _ => Expression::filled("optional.of($)", vec![value]),
                };
            }
        };
        let text = *self.random.pick(&texts(list));
        Expression::text(if function.is_empty() {
            text.to_owned()
        } else {
            format!("{function}('{text}')")
        })
    }

    /// Returns an element of a list literal or a value of a map literal. In Kubernetes, all
    /// elements of a list literal must have the same type. [`Self::expression`] sometimes returns
    /// another type than `ty`, but [`Self::literal`] does not. So most elements are literals.
    fn element(&mut self, ty: &Ty, depth: usize) -> Expression {
        if depth > 0 && self.random.one_in(6) {
            self.expression(ty, depth - 1)
        } else {
            self.literal(ty, depth)
        }
    }

    fn list(&mut self, of: &Ty, depth: usize) -> Expression {
        let mut template = "[".to_owned();
        let mut children = Vec::new();
        let len = match self.random.below(10) {
            0 => 0,
            9 => 5 + self.random.below(12),
            _ => 1 + self.random.below(4),
        };
        for index in 0..len {
            template.push_str(if index > 0 { ", " } else { "" });
            if self.random.one_in(25) {
                template.push_str("?$");
                children.push(self.element(&Ty::optional(of.clone()), depth));
            } else {
                template.push('$');
                children.push(self.element(of, depth));
            }
        }
        template.push(']');
        Expression::filled(&template, children)
    }

    fn map(&mut self, key: &Ty, value: &Ty, depth: usize) -> Expression {
        let mut template = "{".to_owned();
        let mut children = Vec::new();
        for index in 0..self.random.below(4) {
            template.push_str(if index > 0 { ", " } else { "" });
            let optional = self.random.one_in(15);
            template.push_str(if optional { "?$: $" } else { "$: $" });
            children.push(self.literal(key, 0));
            children.push(if optional {
                self.element(&Ty::optional(value.clone()), depth)
            } else {
                self.element(value, depth)
            });
        }
        template.push('}');
        Expression::filled(&template, children)
    }

    /// Returns a path such as `object.list[0]`, with the value at this path. Most values have the
    /// type `wanted`. In a few paths, the last step is the field `missing`, and the value is None.
    /// If `wanted` is an optional type, one step is optional, as in `object.?list[0]`. Returns None
    /// if no path is found.
    fn path(&mut self, wanted: &Ty) -> Option<(Expression, Option<Value>)> {
        let with_sample = self.names.iter().filter(|name| name.sample.is_some());
        let roots: Vec<_> = with_sample
            .map(|name| (name.text.clone(), name.sample.clone()))
            .collect();
        if roots.is_empty() {
            return None;
        }
        let (root, sample) = self.random.pick(&roots).clone();
        let mut paths = Vec::new();
        collect_paths(&sample?, &mut Vec::new(), &mut paths);
        let (optional, wanted) = match wanted {
            Ty::Optional(of) => (true, &**of),
            wanted => (self.random.one_in(40), wanted),
        };
        if !self.random.one_in(8) {
            paths.retain(|(_, value)| has_type(value, wanted));
        }
        if paths.is_empty() {
            return None;
        }
        let (mut steps, value) = self.random.pick(&paths).clone();
        let mut value = Some(value);
        if self.random.one_in(12) {
            steps.pop();
            steps.push(Step::Field("missing".to_owned()));
            value = None;
        }
        let at = optional.then(|| self.random.below(steps.len()));
        let mut text = root;
        for (index, step) in steps.iter().enumerate() {
            let mark = if at == Some(index) { "?" } else { "" };
            match step {
                Step::Field(name) if is_identifier(name) && !self.random.one_in(20) => {
                    text = format!("{text}.{mark}{name}");
                }
                Step::Field(name) => {
                    let name = name.replace('\\', "\\\\").replace('\'', "\\'");
                    text = format!("{text}[{mark}'{}']", name.replace('\n', "\\n"));
                }
                Step::Index(index) => text = format!("{text}[{mark}{index}]"),
            }
        }
        Some((Expression::text(text), value))
    }

    /// Returns a call of a function or operator that returns the type `ty`.
    fn call(&mut self, ty: &Ty, depth: usize) -> Expression {
        let mut fitting: Vec<(Signature, [Option<Ty>; 2])> = Vec::new();
        for signature in &self.signatures {
            let mut bound = [None, None];
            if returns(signature.1.result, ty, &mut bound) {
                fitting.push((signature.clone(), bound));
            }
        }
        // The generator chooses a name first, and then one of its overloads. Operators have many
        // overloads. With a direct choice of an overload, most calls would be calls of operators.
        let mut names: Vec<_> = fitting.iter().map(|((name, _), _)| name.clone()).collect();
        names.dedup();
        if names.is_empty() {
            return self.leaf(ty, depth);
        }
        let name = self.random.pick(&names).clone();
        fitting.retain(|((own, _), _)| *own == name);
        let ((_, overload), mut bound) = self.random.pick(&fitting).clone();
        if name == "format" {
            return self.format(depth);
        }
        let mut args = Vec::new();
        if overload.args.iter().any(|wanted| {
            matches!(
                wanted,
                ParameterType::Map(..) | ParameterType::Optional(ParameterType::Map(..))
            )
        }) {
            bound[0].get_or_insert_with(|| self.key_ty());
        }
        for (index, wanted) in overload.args.iter().enumerate() {
            let pool = texts_for(&name, index);
            if matches!(wanted, ParameterType::String) && !pool.is_empty() && !self.random.one_in(4)
            {
                args.push(Expression::text(format!(
                    "'{}'",
                    self.random.pick(&texts(pool))
                )));
            } else if name == "lists.range"
                || (matches!(wanted, ParameterType::Int) && self.random.one_in(2))
            {
                // Kubernetes makes the whole list of `lists.range` before it checks its cost limit.
                // So the argument must be a small number.
                let small = texts(operands::SMALL_INTS);
                args.push(Expression::text(*self.random.pick(&small)));
            } else {
                let ty = self.instance(*wanted, &mut bound);
                args.push(self.expression(&ty, depth));
            }
        }
        call_expression(&name, overload.member, args)
    }

    /// Returns the type of an argument for the parameter `wanted` of an overload. `bound` contains
    /// the types of the type parameters `A` and `B`. A type parameter that has no type yet gets a
    /// random type.
    fn instance(&mut self, wanted: ParameterType, bound: &mut [Option<Ty>; 2]) -> Ty {
        match wanted {
            ParameterType::A => bound[0].get_or_insert_with(|| self.ty(1)).clone(),
            ParameterType::B => bound[1].get_or_insert_with(|| self.ty(1)).clone(),
            ParameterType::Map(key, value) => {
                let key = self.instance(*key, bound);
                Ty::map(key, self.instance(*value, bound))
            }
            ParameterType::List(of) => Ty::list(self.instance(*of, bound)),
            ParameterType::Optional(of) => Ty::optional(self.instance(*of, bound)),
            ParameterType::Type(of) => Ty::Type(Box::new(self.instance(*of, bound))),
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
        }
    }

    /// Returns a call of `format` with one argument for each verb (a clause such as `%s`). In a few
    /// calls, the last argument is missing.
    fn format(&mut self, depth: usize) -> Expression {
        let mut text = String::new();
        let mut args = Vec::new();
        for _ in 0..=self.random.below(3) {
            let verb = *self.random.pick(&texts(operands::VERBS));
            text.push_str(verb);
            let separator = *self.random.pick(&["", " ", ":"]);
            text.push_str(separator);
            let ty = match verb.chars().last() {
                Some('%' | 'é') => continue,
                Some('s') => self.ty(2),
                Some('f' | 'e') => Ty::Double,
                Some('x' | 'X') if self.random.one_in(2) => Ty::String,
                _ if self.random.one_in(6) => self.ty(1),
                _ => Ty::Int,
            };
            args.push(self.expression(&ty, depth));
        }
        if self.random.one_in(20) {
            args.pop();
        }
        let marks = vec!["$"; args.len()].join(", ");
        Expression::filled(&format!("'{text}'.format([{marks}])"), args)
    }

    /// Returns a call of a macro or of a logical operator that returns the type `ty`. If no macro
    /// returns this type, returns a call of a function.
    fn macro_call(&mut self, ty: &Ty, depth: usize) -> Expression {
        match ty {
            Ty::Bool => self.bool_macro(depth),
            Ty::List(of) => self.list_macro(of, depth),
            Ty::Map(key, value) => self.map_macro(key, value, depth),
            Ty::Optional(of) => self.optional_macro(of, depth),
            _ => self.call(ty, depth),
        }
    }

    fn bool_macro(&mut self, depth: usize) -> Expression {
        match self.random.below(10) {
            0..=2 => {
                let operator = *self.random.pick(&["&&", "||"]);
                let terms = vec![
                    self.expression(&Ty::Bool, depth),
                    self.expression(&Ty::Bool, depth),
                ];
                Expression::filled(&format!("($ {operator} $)"), terms)
            }
            4 => {
                let (a, b) = (self.ty(1), self.ty(1));
                let args = [a, b].map(|ty| self.expression(&ty, depth));
                Expression::filled("(type($) == type($))", args.into())
            }
            3 => match self.path(&Ty::Dyn) {
                Some((path, _)) => Expression::filled("has($)", vec![path]),
                None => self.leaf(&Ty::Bool, depth),
            },
            _ => {
                let name = *self
                    .random
                    .pick(&["all", "exists", "exists_one", "existsOne"]);
                let has_two_variables = name == "existsOne" || self.random.one_in(2);
                let range = self.range(depth);
                self.comprehension(name, range, has_two_variables, &[(Ty::Bool, depth)])
            }
        }
    }

    fn list_macro(&mut self, of: &Ty, depth: usize) -> Expression {
        let result = (of.clone(), depth);
        match self.random.below(6) {
            0 => {
                let range = self.list_range(of, depth);
                self.comprehension("filter", range, false, &[(Ty::Bool, depth)])
            }
            1 => {
                let range = self.list_range(of, depth);
                let key = self.random.pick(&ORDERED).clone();
                self.comprehension("sortBy", range, false, &[(key, depth)])
            }
            2 => {
                let range = self.range(depth);
                self.comprehension("transformList", range, true, &[result])
            }
            3 => {
                let range = self.range(depth);
                self.comprehension("transformList", range, true, &[(Ty::Bool, depth), result])
            }
            4 => {
                let range = self.range(depth);
                self.comprehension("map", range, false, &[(Ty::Bool, depth), result])
            }
            _ => {
                let range = self.range(depth);
                self.comprehension("map", range, false, &[result])
            }
        }
    }

    fn map_macro(&mut self, key: &Ty, value: &Ty, depth: usize) -> Expression {
        let tests = if self.random.one_in(3) {
            vec![(Ty::Bool, depth)]
        } else {
            vec![]
        };
        if self.random.one_in(2) {
            let range = self.range(depth);
            let entries = Ty::map(key.clone(), value.clone());
            let bodies = [tests, vec![(entries, 0)]].concat();
            return self.comprehension("transformMapEntry", range, true, &bodies);
        }
        let of = self.ty(1);
        let range = if matches!(key, Ty::Int) {
            self.list_range(&of, depth)
        } else {
            let range = Ty::map(key.clone(), of.clone());
            Range {
                expression: self.expression(&range, depth),
                key: key.clone(),
                value: of,
                sample: None,
                is_list: false,
            }
        };
        let bodies = [tests, vec![(value.clone(), depth)]].concat();
        self.comprehension("transformMap", range, true, &bodies)
    }

    fn optional_macro(&mut self, of: &Ty, depth: usize) -> Expression {
        if self.random.one_in(3)
            && let Some((path, _)) = self.path(&Ty::optional(of.clone()))
        {
            return path;
        }
        let flat = self.random.one_in(3);
        let source = self.ty(1);
        let target = self.expression(&Ty::optional(source.clone()), depth);
        let result = if flat {
            Ty::optional(of.clone())
        } else {
            of.clone()
        };
        let name = self.fresh_name();
        self.names.push(Name {
            text: name.clone(),
            ty: source,
            sample: None,
        });
        let body = self.expression(&result, depth);
        self.names.pop();
        let function = if flat { "optFlatMap" } else { "optMap" };
        let template = format!("{}.{function}({name}, $)", target.before_dot());
        Expression::filled(&template, vec![target, body])
    }

    /// Returns any list or map as the range of a comprehension.
    fn range(&mut self, depth: usize) -> Range {
        if self.random.one_in(2) {
            let wanted = if self.random.one_in(3) {
                Ty::map(Ty::String, Ty::Dyn)
            } else {
                Ty::list(Ty::Dyn)
            };
            if let Some((expression, Some(value))) = self.path(&wanted) {
                let sample = match &value {
                    Value::Array(elements) => elements.first().cloned(),
                    Value::Object(members) => members.values().next().cloned(),
                    _ => None,
                };
                return Range {
                    expression,
                    key: Ty::Dyn,
                    value: Ty::Dyn,
                    sample,
                    is_list: value.is_array(),
                };
            }
        }
        let of = self.ty(1);
        if self.random.one_in(3) {
            let key = self.key_ty();
            let range = Ty::map(key.clone(), of.clone());
            return Range {
                expression: self.expression(&range, depth),
                key,
                value: of,
                sample: None,
                is_list: false,
            };
        }
        self.list_range(&of, depth)
    }

    fn list_range(&mut self, of: &Ty, depth: usize) -> Range {
        Range {
            expression: self.expression(&Ty::list(of.clone()), depth),
            key: Ty::Int,
            value: of.clone(),
            sample: None,
            is_list: true,
        }
    }

    /// Returns a call of the comprehension `name`, such as `list.map(x, x + 1)`. The first
    /// arguments of the call are the names of its variables: two names if `has_two_variables` is
    /// true, and one name if it is false. `bodies` contains the type and the depth of each further
    /// argument.
    fn comprehension(
        &mut self,
        name: &str,
        range: Range,
        has_two_variables: bool,
        bodies: &[(Ty, usize)],
    ) -> Expression {
        let outer = self.names.len();
        let mut names = Vec::new();
        let mut declare = |generator: &mut Self, ty: Ty, sample: Option<Value>| {
            let text = generator.fresh_name();
            names.push(text.clone());
            generator.names.push(Name { text, ty, sample });
        };
        if has_two_variables {
            declare(self, range.key, None);
            declare(self, range.value, range.sample);
        } else if range.is_list {
            declare(self, range.value, range.sample);
        } else {
            declare(self, range.key, None);
        }
        let bodies: Vec<_> = bodies
            .iter()
            .map(|(ty, depth)| self.expression(ty, *depth))
            .collect();
        self.names.truncate(outer);
        let marks = vec!["$"; bodies.len()].join(", ");
        let base = range.expression.before_dot();
        let template = format!("{base}.{name}({}, {marks})", names.join(", "));
        Expression::filled(&template, [vec![range.expression], bodies].concat())
    }

    fn fresh_name(&mut self) -> String {
        if self.random.one_in(60) {
            return (*self.random.pick(&["object", "x", "int", "size"])).to_owned();
        }
        let at = self.names.len();
        ["x", "y", "k", "v", "e", "z"]
            .get(at - 1)
            .map_or_else(|| format!("x{at}"), |name| (*name).to_owned())
    }
}

/// A step from a JSON value to a part of it.
#[derive(Clone)]
enum Step {
    Field(String),
    Index(usize),
}

/// Adds all parts of `value` to `paths`, each with its path. `path` is the path of `value` itself.
/// A path has at most 9 steps. Deeper parts are left out.
fn collect_paths(value: &Value, path: &mut Vec<Step>, paths: &mut Vec<(Vec<Step>, Value)>) {
    if path.len() > 8 {
        return;
    }
    let mut visit = |step: Step, part: &Value| {
        path.push(step);
        paths.push((path.clone(), part.clone()));
        collect_paths(part, path, paths);
        path.pop();
    };
    match value {
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                visit(Step::Index(index), element);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                visit(Step::Field(name.clone()), member);
            }
        }
        _ => {}
    }
}

/// Returns true if a JSON value can have the type `ty`.
fn has_type(value: &Value, ty: &Ty) -> bool {
    match ty {
        Ty::Bool => value.is_boolean(),
        Ty::Int => value.is_i64(),
        Ty::Double => value.is_f64(),
        Ty::String => value.is_string(),
        Ty::Null => value.is_null(),
        Ty::List(of) => (value.as_array()).is_some_and(|all| all.iter().all(|it| has_type(it, of))),
        Ty::Map(key, of) => {
            matches!(**key, Ty::String | Ty::Dyn)
                && (value.as_object()).is_some_and(|all| all.values().all(|it| has_type(it, of)))
        }
        ty => ty.is_dynamic(),
    }
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
        && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
}

/// Returns true if the result type `result` of an overload can be `ty`. Sets the type parameters in
/// `bound`: if `result` is `list(A)` and `ty` is `list(int)`, `A` becomes `int`.
fn returns(result: ParameterType, ty: &Ty, bound: &mut [Option<Ty>; 2]) -> bool {
    let mut bind = |at: usize| {
        let own = bound[at].get_or_insert_with(|| ty.clone());
        own == ty
    };
    match (result, ty) {
        (ParameterType::A, _) => bind(0),
        (ParameterType::B, _) => bind(1),
        (ParameterType::List(of), Ty::List(ty))
        | (ParameterType::Optional(of), Ty::Optional(ty))
        | (ParameterType::Type(of), Ty::Type(ty)) => returns(*of, ty, bound),
        (ParameterType::Map(key, value), Ty::Map(key_ty, value_ty)) => {
            returns(*key, key_ty, bound) && returns(*value, value_ty, bound)
        }
        (ParameterType::Dyn, Ty::Dyn)
        | (ParameterType::Bool, Ty::Bool)
        | (ParameterType::Int, Ty::Int)
        | (ParameterType::Uint, Ty::Uint)
        | (ParameterType::Double, Ty::Double)
        | (ParameterType::String, Ty::String)
        | (ParameterType::Bytes, Ty::Bytes)
        | (ParameterType::Duration, Ty::Duration)
        | (ParameterType::Timestamp, Ty::Timestamp)
        | (ParameterType::Quantity, Ty::Quantity)
        | (ParameterType::Url, Ty::Url)
        | (ParameterType::Ip, Ty::Ip)
        | (ParameterType::Cidr, Ty::Cidr)
        | (ParameterType::Semver, Ty::Semver)
        | (ParameterType::NamedFormat, Ty::NamedFormat) => true,
        _ => false,
    }
}

/// Returns typical texts for an argument of a function, without quotes and separated by ` ;; `.
/// Returns an empty text for an argument that needs no typical text.
fn texts_for(name: &str, index: usize) -> &'static str {
    match (name, index) {
        ("duration", 0) => operands::DURATIONS,
        ("timestamp", 0) => operands::TIMES,
        ("quantity" | "isQuantity", 0) => operands::QUANTITIES,
        ("url" | "isURL", 0) => operands::URLS,
        ("ip" | "isIP" | "ip.isCanonical", 0) | ("containsIP", 1) => operands::IPS,
        ("cidr" | "isCIDR", 0) | ("containsCIDR", 1) => operands::CIDRS,
        ("semver" | "isSemver", 0) => operands::SEMVERS,
        ("format.named", 0) => operands::FORMATS,
        ("validate", 1) => operands::FORMAT_TEXTS,
        ("matches" | "find" | "findAll", 1) => operands::PATTERNS,
        (_, 1) if name.starts_with("get") => operands::ZONES,
        ("int" | "uint", 0) => "1 ;; -1 ;; +1 ;; 9223372036854775808 ;; 1.5 ;;  1 ;; 0x1",
        ("double", 0) => "1 ;; 1.5 ;; NaN ;; Infinity ;; -Inf ;; 1e400 ;; .5 ;; 1e-400 ;; 1.",
        ("bool", 0) => "true ;; True ;; tRUE ;; t ;; 0 ;; yes ;; ",
        _ => "",
    }
}

/// Returns the call of a function or operator.
fn call_expression(name: &str, member: bool, args: Vec<Expression>) -> Expression {
    let base = args.first().map_or("$", Expression::before_dot);
    let marks = |count: usize| vec!["$"; count].join(", ");
    let template = match name {
        "_?_:_" => "($ ? $ : $)".to_owned(),
        "_[_]" => format!("{base}[$]"),
        "_[?_]" => format!("{base}[?$]"),
        "@in" => "($ in $)".to_owned(),
        "!_" => "!($)".to_owned(),
        "-_" => "-($)".to_owned(),
        _ if name.starts_with('_') => format!("($ {} $)", name.trim_matches('_')),
        _ if member => format!("{base}.{name}({})", marks(args.len() - 1)),
        _ => format!("{name}({})", marks(args.len())),
    };
    Expression::filled(&template, args)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{compile_all, whole_object};
    use crate::{Environment, Projection};

    /// Returns the texts of the first 1,000 expressions for a seed, without the cases that have
    /// variables.
    fn expressions(seed: u64) -> Vec<String> {
        let object = serde_json::json!({"list": [1, 2], "map": {"a": "x"}, "text": "y", "n": null});
        let mut generator = Generator::new(seed, vec![object]);
        let cases = (0..1_000).map(|_| generator.case());
        let cases = cases.filter(|case| case.variables.is_empty());
        cases.map(|case| case.expression.to_string()).collect()
    }

    #[test]
    fn a_seed_yields_the_same_expressions_again_and_most_of_them_compile() {
        let texts = expressions(1);
        assert_eq!(texts, expressions(1));
        assert_ne!(texts, expressions(2));
        let programs = compile_all(&texts, &Environment::default());
        let compiled: Vec<_> = programs.into_iter().flatten().collect();
        assert!(compiled.len() > 700, "only {} compile", compiled.len());
        let reads = |projection: &Projection| {
            *projection != Projection::default() && *projection != whole_object()
        };
        let reading = compiled.iter().filter(|program| reads(&program.projection));
        assert!(reading.count() > 100, "few expressions read the object");
    }

    #[test]
    fn an_element_of_a_list_literal_can_be_a_call() {
        let mut generator = Generator::new(1, vec![serde_json::json!({"number": 1})]);
        generator.case();
        let of = Ty::List(Box::new(Ty::Int));
        let expressions = (0..10_000).map(|_| generator.typed(&of, 3));
        // Lists with optional elements are left out.
        let is_list = |part: &ExpressionPart| match part {
            ExpressionPart::Text(text) => ["[", ", ", "]"].contains(&text.as_str()),
            ExpressionPart::Child(_) => true,
        };
        let lists = expressions.filter(|it| it.0.iter().all(is_list));
        let is_call = |element: &Expression| element.to_string().contains('(');
        let with_call = lists.filter(|list| list.children().any(is_call));
        assert!(with_call.count() > 10, "few elements are calls");
    }

    #[test]
    fn a_smaller_expression_is_made_by_one_change() {
        let children = ["object.a", "1"].map(Expression::text).into();
        let sum = Expression::filled("f($, $)", children);
        let smaller: Vec<_> = sum.smaller().iter().map(ToString::to_string).collect();
        for expected in ["object.a", "1", "0", "f(0, 1)", "f(object.a)"] {
            assert!(smaller.iter().any(|text| text == expected), "{smaller:?}");
        }
        assert!(
            smaller
                .iter()
                .all(|text| text.len() < sum.to_string().len())
        );
    }
}
