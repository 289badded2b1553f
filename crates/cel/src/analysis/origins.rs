//! The fields of the object from which a value can come.

use cel::IdedExpr;
use cel::common::ast::Expr;

use crate::types::PathStep;

/// The fields of `object` from which the value of an expression can come, as paths. For example,
/// `object.spec.a` has the path `spec.a`, and `x ? object.spec.a : object.spec.b` has two paths:
/// `spec.a` and `spec.b`. A computed value, such as `1 + 2`, has no path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueOrigins(Vec<OriginPlace>);

/// One origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum OriginPlace {
    /// The value comes from this path.
    At(Vec<PathStep>),
    /// The value is a list, and its elements come from these paths.
    ListOf(ValueOrigins),
}

/// Maximum number of origins of one value, including the origins of its elements. Further origins
/// are ignored. Without this limit, a value of nested conditionals or nested lists could have very
/// many origins.
const MAX_ORIGINS: usize = 16;

/// Maximum number of steps of a path. The fields of a value with a longer path are ignored. The
/// deepest fields of Kubernetes' types have about 15 steps.
const MAX_STEPS: usize = 32;

impl ValueOrigins {
    /// Returns the origins of a value that comes from one path of `object`.
    pub fn at(path: Vec<PathStep>) -> Self {
        Self(vec![OriginPlace::At(path)])
    }

    /// Returns the paths from which the value can come, without the paths of list elements.
    pub fn paths(&self) -> impl Iterator<Item = &[PathStep]> {
        self.0.iter().filter_map(|place| match place {
            OriginPlace::At(path) => Some(&**path),
            OriginPlace::ListOf(_) => None,
        })
    }

    /// Returns the origins of the elements if this value is a list. Returns the origins of the keys
    /// if this value is a map.
    #[must_use]
    pub fn elements(&self) -> Self {
        self.inner(&PathStep::Each)
    }

    /// Returns the origins of the element or member at an index.
    pub(super) fn indexed(&self) -> Self {
        self.inner(&PathStep::Index)
    }

    fn inner(&self, step: &PathStep) -> Self {
        let mut elements = Self::default();
        for part in &self.0 {
            match part {
                OriginPlace::At(_) => elements.add(part.then(step.clone())),
                OriginPlace::ListOf(origin) => elements.join(origin.clone()),
            }
        }
        elements
    }

    pub(super) fn field(&self, name: &str) -> Self {
        let parts = self.0.iter();
        let fields = parts.filter_map(|part| part.then(PathStep::Field(name.to_owned())));
        Self(fields.collect())
    }

    pub(super) fn into_list_origins(self) -> Self {
        let mut list = Self::default();
        list.add(Some(OriginPlace::ListOf(self)));
        list
    }

    fn add(&mut self, part: Option<OriginPlace>) {
        self.join(Self(part.into_iter().collect()));
    }

    pub(super) fn join(&mut self, other: Self) {
        let mut count = self.count();
        for part in other.0 {
            let more = part.count();
            if count + more <= MAX_ORIGINS && !self.0.contains(&part) {
                count += more;
                self.0.push(part);
            }
        }
    }

    fn count(&self) -> usize {
        self.0.iter().map(OriginPlace::count).sum()
    }
}

impl OriginPlace {
    fn count(&self) -> usize {
        match self {
            Self::At(_) => 1,
            Self::ListOf(elements) => elements.count().max(1),
        }
    }

    fn then(&self, step: PathStep) -> Option<Self> {
        let Self::At(path) = self else { return None };
        if path.len() == MAX_STEPS {
            return None;
        }
        let mut path = path.clone();
        path.push(step);
        Some(Self::At(path))
    }
}

/// The origins of the names that an expression can use in addition to `object`.
#[derive(Clone, Debug, Default)]
pub struct NameOrigins {
    /// The origins of `item`, which is one element of a list that another expression returns.
    pub item: ValueOrigins,
    /// The origins of the variables, by name.
    pub variables: Vec<(String, ValueOrigins)>,
}

/// Returns true for the functions `optional.of` and `optional.ofNonZeroValue`.
pub(super) fn is_optional_of(prefix: &IdedExpr, name: &str) -> bool {
    matches!(&prefix.expr, Expr::Ident(prefix) if prefix == "optional")
        && matches!(name, "of" | "ofNonZeroValue")
}
