//! Random calls of macros, such as `exists` and `optMap`.

use serde_json::Value;

use super::expression::Expression;
use super::random_expressions::{Generator, Name};
use crate::types::Ty;

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

impl Generator {
    /// Returns a call of a macro or of a logical operator that returns the type `ty`. If no macro
    /// returns this type, returns a call of a function.
    pub(super) fn macro_call(&mut self, ty: &Ty, depth: usize) -> Expression {
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
}
