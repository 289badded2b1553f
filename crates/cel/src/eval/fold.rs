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
        if fold.kind == ComprehensionKind::SortBy && !range.is_list() {
            return Err(Fault::no_overload());
        }
        let depth = self.vars.len();
        let result = self.iterate(fold, &range, depth);
        self.vars.truncate(depth);
        result
    }

    /// Evaluates the condition and the body for each element or entry of `range`, and returns the
    /// result of the comprehension. `depth` is the number of variables of the comprehensions around
    /// this comprehension.
    ///
    /// If the body of `all` is false, or the body of `exists` is true, it decides the result, and
    /// errors of other iterations are ignored.
    #[inline(never)]
    fn iterate(&mut self, fold: &'e Comprehension, range: &V<'e>, depth: usize) -> Outcome<'e> {
        let is_exists = fold.kind == ComprehensionKind::Exists;
        let mut failed = None;
        let mut passed = 0;
        let mut values = Vec::new();
        let mut entries = Vec::new();
        for index in 0..range.len() {
            self.bind(fold, range, depth, index)?;
            if let Some(condition) = &fold.test
                && !self.test(condition)?
            {
                continue;
            }
            match fold.kind {
                ComprehensionKind::All | ComprehensionKind::Exists => match self.test(&fold.body) {
                    Ok(value) if value == is_exists => return Ok(V::Bool(is_exists)),
                    Ok(_) => {}
                    Err(Fault::Budget) => return Err(Fault::Budget),
                    Err(fault) => failed = failed.or(Some(fault)),
                },
                ComprehensionKind::ExistsOne => passed += usize::from(self.test(&fold.body)?),
                ComprehensionKind::Filter => {
                    if self.test(&fold.body)? {
                        values.extend(range.item(index));
                    }
                }
                ComprehensionKind::Map | ComprehensionKind::SortBy => {
                    values.push(self.eval(&fold.body)?);
                }
                ComprehensionKind::TransformMap => {
                    let value = self.eval(&fold.body)?;
                    entries.push((self.comprehension_variable(depth)?, value));
                }
                ComprehensionKind::TransformMapEntry => {
                    let map = self.eval(&fold.body)?;
                    self.add_entries(&mut entries, &map)?;
                }
            }
        }
        match fold.kind {
            ComprehensionKind::All | ComprehensionKind::Exists => {
                failed.map_or(Ok(V::Bool(!is_exists)), Err)
            }
            ComprehensionKind::ExistsOne => Ok(V::Bool(passed == 1)),
            ComprehensionKind::Filter | ComprehensionKind::Map => Ok(V::List(values.into())),
            ComprehensionKind::SortBy => lists::sort_by_keys(range, &values, self.scope.budget),
            ComprehensionKind::TransformMap | ComprehensionKind::TransformMapEntry => {
                Ok(V::Map(entries.into()))
            }
        }
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

    /// Evaluates a condition of a comprehension, which must be a bool.
    fn test(&mut self, op: &'e Op) -> Result<bool, Fault<'e>> {
        match self.eval(op)? {
            V::Bool(value) => Ok(value),
            other => Err(no_bool(&other)),
        }
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
}

/// Returns the error for a condition of a comprehension that is not a bool.
#[cold]
fn no_bool<'e>(value: &V<'e>) -> Fault<'e> {
    Fault::no_overload().about(&["a condition of the type ", value.type_name()])
}
