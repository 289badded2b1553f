//! Random paths of fields that exist in the object.

use serde_json::Value;

use super::expression::Expression;
use super::random_expressions::Generator;
use crate::types::Ty;

impl Generator {
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
