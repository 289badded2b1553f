//! Evaluates comprehensions, such as `exists` and `map`.

use super::Context;
use crate::budget::{charge, steps};
use crate::compile::op::{Comprehension, ComprehensionKind, Op};
use crate::library::lists;
use crate::value::compare::key_cost;
use crate::value::fault::{Fault, Outcome};
use crate::value::{V, same_key};

impl<'e, 'a: 'e> Context<'e, '_, 'a> {
    #[inline(never)]
    pub(super) fn fold(&mut self, fold: &'e Comprehension) -> Outcome<'e> {
        let range = self.eval(&fold.range)?;
        if !range.is_list() && !range.is_map() {
            let found = range.type_name();
            return Err(Fault::words(&["got '", found, "', expected iterable type"]));
        }
        let depth = self.vars.len();
        let result = match fold.kind {
            ComprehensionKind::All => self.quantify(fold, &range, false),
            ComprehensionKind::Exists => self.quantify(fold, &range, true),
            ComprehensionKind::ExistsOne => self.exists_one(fold, &range),
            ComprehensionKind::Filter | ComprehensionKind::Map => self.collect(fold, &range),
            ComprehensionKind::TransformMap => self.transform_map(fold, &range),
            ComprehensionKind::TransformMapEntry => self.merge_entries(fold, &range),
            ComprehensionKind::SortBy => self.sort_by(fold, &range),
        };
        self.vars.truncate(depth);
        result
    }

    /// Charges the steps of one iteration, and sets the variables of a comprehension to the element
    /// or entry at `index` of `range`. `depth` is the number of variables of the comprehensions
    /// around this comprehension.
    fn bind(
        &mut self,
        fold: &Comprehension,
        range: &V<'e>,
        depth: usize,
        index: usize,
    ) -> Result<(), Fault<'e>> {
        charge(self.scope.budget, fold.weight)?;
        self.vars.truncate(depth);
        if !fold.two_variables {
            self.vars.extend(range.item(index));
        } else if range.is_list() {
            self.vars
                .push(V::Int(i64::try_from(index).unwrap_or(i64::MAX)));
            self.vars.extend(range.element(index));
        } else if let Some((key, value)) = range.entry(index) {
            self.vars.extend([key, value]);
        }
        Ok(())
    }

    /// Evaluates `all` if `decides` is false, or `exists` if `decides` is true. If an iteration
    /// returns `decides`, this value is the result, and errors of other iterations are ignored.
    #[inline(never)]
    fn quantify(&mut self, fold: &'e Comprehension, range: &V<'e>, decides: bool) -> Outcome<'e> {
        let depth = self.vars.len();
        let mut failed = None;
        for index in 0..range.len() {
            self.bind(fold, range, depth, index)?;
            match self.eval(&fold.body) {
                Ok(V::Bool(value)) if value == decides => return Ok(V::Bool(decides)),
                Ok(V::Bool(_)) => {}
                Err(Fault::Budget) => return Err(Fault::Budget),
                Ok(other) => failed = failed.or_else(|| Some(no_bool(&other))),
                Err(fault) => failed = failed.or(Some(fault)),
            }
        }
        failed.map_or(Ok(V::Bool(!decides)), Err)
    }

    /// Evaluates a condition of a comprehension, which must be a bool.
    fn test(&mut self, op: &'e Op) -> Result<bool, Fault<'e>> {
        match self.eval(op)? {
            V::Bool(value) => Ok(value),
            other => Err(no_bool(&other)),
        }
    }

    #[inline(never)]
    fn exists_one(&mut self, fold: &'e Comprehension, range: &V<'e>) -> Outcome<'e> {
        let depth = self.vars.len();
        let mut found = 0;
        for index in 0..range.len() {
            self.bind(fold, range, depth, index)?;
            found += usize::from(self.test(&fold.body)?);
        }
        Ok(V::Bool(found == 1))
    }

    #[inline(never)]
    fn collect(&mut self, fold: &'e Comprehension, range: &V<'e>) -> Outcome<'e> {
        let depth = self.vars.len();
        let mut items = Vec::new();
        for index in 0..range.len() {
            self.bind(fold, range, depth, index)?;
            items.extend(self.collected(fold, range, index)?);
        }
        Ok(V::List(items.into()))
    }

    /// Returns the value that the iteration `index` adds to the result of the comprehension, or
    /// None if the condition is false.
    fn collected(
        &mut self,
        fold: &'e Comprehension,
        range: &V<'e>,
        index: usize,
    ) -> Result<Option<V<'e>>, Fault<'e>> {
        if fold.kind == ComprehensionKind::Filter {
            let passed = self.test(&fold.body)?;
            return Ok(passed.then(|| range.item(index)).flatten());
        }
        match &fold.test {
            Some(condition) if !self.test(condition)? => Ok(None),
            _ => self.eval(&fold.body).map(Some),
        }
    }

    #[inline(never)]
    fn transform_map(&mut self, fold: &'e Comprehension, range: &V<'e>) -> Outcome<'e> {
        let depth = self.vars.len();
        let mut entries = Vec::new();
        for index in 0..range.len() {
            self.bind(fold, range, depth, index)?;
            if let Some(value) = self.collected(fold, range, index)? {
                entries.push((self.comprehension_variable(depth)?, value));
            }
        }
        Ok(V::Map(entries.into()))
    }

    #[inline(never)]
    fn merge_entries(&mut self, fold: &'e Comprehension, range: &V<'e>) -> Outcome<'e> {
        let depth = self.vars.len();
        let mut entries: Vec<(V<'e>, V<'e>)> = Vec::new();
        for index in 0..range.len() {
            self.bind(fold, range, depth, index)?;
            if let Some(map) = self.collected(fold, range, index)? {
                self.add_entries(&mut entries, &map)?;
            }
        }
        Ok(V::Map(entries.into()))
    }

    /// Adds the entries of `map` to `entries`. Returns an error if `entries` already contains a key
    /// of `map`.
    fn add_entries(
        &mut self,
        entries: &mut Vec<(V<'e>, V<'e>)>,
        map: &V<'e>,
    ) -> Result<(), Fault<'e>> {
        if !map.is_map() {
            return Err(Fault::no_overload());
        }
        for (key, value) in map.entries() {
            // The new key is compared with all previous keys.
            let compared = steps(entries.len(), 16) + key_cost(entries.len(), &key);
            charge(self.scope.budget, 1 + compared)?;
            if entries.iter().any(|(own, _)| same_key(own, &key)) {
                return Err(Fault::error("insert failed: key already exists"));
            }
            entries.push((key, value));
        }
        Ok(())
    }

    #[inline(never)]
    fn sort_by(&mut self, fold: &'e Comprehension, range: &V<'e>) -> Outcome<'e> {
        if !range.is_list() {
            return Err(Fault::no_overload());
        }
        let depth = self.vars.len();
        let mut keys = Vec::with_capacity(range.len());
        for index in 0..range.len() {
            self.bind(fold, range, depth, index)?;
            keys.push(self.eval(&fold.body)?);
        }
        lists::sort_by_keys(range, &keys, self.scope.budget)
    }
}

/// Returns the error for a condition of a comprehension that is not a bool.
#[cold]
fn no_bool<'e>(value: &V<'e>) -> Fault<'e> {
    Fault::no_overload().about(&["a condition of the type ", value.type_name()])
}
