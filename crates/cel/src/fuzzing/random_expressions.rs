//! Generates random CEL expressions for the comparison with Kubernetes. Most of them are
//! well-typed: the generator chooses the type of an expression first, then a function that returns
//! this type, and then the arguments. The function `overloads` returns the argument types and
//! result types of each CEL function.

use serde_json::Value;

use super::expression::{Expression, Random};
use super::kubernetes_comparison::PolicyVariable;
use super::operands::{self, texts};
use crate::library::{Function, Overload, overloads};
use crate::types::Ty;

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
pub(super) struct Name {
    pub text: String,
    pub ty: Ty,
    /// A JSON value that the name can have. The generator uses this value to make paths that exist,
    /// such as `object.list[0]`. None if no value is known.
    pub sample: Option<Value>,
}

/// The name of a function or operator, with one of its overloads.
pub(super) type NamedOverload = (&'static str, &'static Overload);

/// Generates random cases.
pub struct Generator {
    pub(super) random: Random,
    /// The objects as JSON.
    pub(super) objects: Vec<Value>,
    pub(super) signatures: Vec<NamedOverload>,
    pub(super) names: Vec<Name>,
}

const OPERATORS: [&str; 17] = [
    "_+_", "_-_", "_*_", "_/_", "_%_", "-_", "!_", "_==_", "_!=_", "_?_:_", "_<_", "_<=_", "_>_",
    "_>=_", "_[_]", "_[?_]", "@in",
];

impl Generator {
    /// Returns the generator for `seed`. The expressions read fields of `objects`.
    pub fn new(seed: u64, objects: Vec<Value>) -> Self {
        let functions = Function::all().map(|function| function.name);
        let signatures = functions.chain(OPERATORS).flat_map(|name| {
            let all = overloads(name).iter();
            all.map(move |overload| (name, overload))
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
    pub(super) fn ty(&mut self, depth: usize) -> Ty {
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

    pub(super) fn key_ty(&mut self) -> Ty {
        match self.random.below(8) {
            0 => Ty::Int,
            1 => Ty::Bool,
            2 => Ty::Uint,
            _ => Ty::String,
        }
    }

    /// Returns an expression of the type `ty`, or seldom an expression of another type. `depth`
    /// limits the nesting of calls.
    pub(super) fn expression(&mut self, ty: &Ty, depth: usize) -> Expression {
        if self.random.one_in(80) {
            let other = self.ty(1);
            return self.typed(&other, depth);
        }
        self.typed(ty, depth)
    }

    pub(super) fn typed(&mut self, ty: &Ty, depth: usize) -> Expression {
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
    pub(super) fn leaf(&mut self, ty: &Ty, depth: usize) -> Expression {
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
            Ty::Error | Ty::Unknown | Ty::Dyn | Ty::Schema(_) | Ty::A | Ty::B => {
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
    pub(super) fn path(&mut self, wanted: &Ty) -> Option<(Expression, Option<Value>)> {
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

    pub(super) fn fresh_name(&mut self) -> String {
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
