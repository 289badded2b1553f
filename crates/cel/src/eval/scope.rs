//! The values that expressions can read while they are evaluated on one object: `object`, `now`,
//! `item` and the variables. `item` is one element of a list that another expression returned. A
//! variable is an expression with a name. The first read of a variable evaluates this expression,
//! and later reads return the cached result.

use jiff::Timestamp;

use crate::budget::Budget;
use crate::compile::environment::Environment;
use crate::compile::program::Program;
use crate::document::Doc;
use crate::value::V;
use crate::value::fault::Outcome;

/// The values of all names that an expression can use, for the evaluation on one object.
pub struct EvaluationScope<'a> {
    /// The value of `object`.
    pub doc: &'a Doc<'a>,
    /// The value of `now`.
    pub now: Timestamp,
    /// The budget from which each evaluation subtracts its steps.
    pub budget: &'a mut Budget,
    /// True if an evaluation has read `now`, directly or through a variable.
    pub read_now: bool,
    pub(crate) item: Option<ListElement<'a>>,
    environment: Option<&'a Environment>,
    /// The results of the variables that were read, by their index in the environment. The flag is
    /// true if the evaluation of the variable has read `now`.
    results: Vec<Option<(Outcome<'a>, bool)>>,
}

/// One element of a list that an expression returned.
#[derive(Clone)]
pub struct ListElement<'a>(pub(crate) V<'a>);

impl<'a> EvaluationScope<'a> {
    /// Creates a scope for one object and one time. It has no variables and no `item`.
    pub fn new(doc: &'a Doc<'a>, now: Timestamp, budget: &'a mut Budget) -> Self {
        Self {
            doc,
            now,
            budget,
            read_now: false,
            item: None,
            environment: None,
            results: Vec::new(),
        }
    }

    /// Sets the variables. The previous variables and their results are dropped. After this call,
    /// the scope can evaluate the programs that were compiled with `environment`. A program can be
    /// older than some of these variables: it finds a variable by its index, and a new variable
    /// does not change the indexes of the other variables.
    pub fn set_variables(&mut self, environment: &'a Environment) {
        self.environment = Some(environment);
        self.results.clear();
    }

    /// Sets the value of `item`, and returns the previous value. A program that uses `item` returns
    /// an error if `item` has no value.
    pub fn set_item(&mut self, item: Option<ListElement<'a>>) -> Option<ListElement<'a>> {
        std::mem::replace(&mut self.item, item)
    }

    /// Returns the name and the program of the variable with the index `slot`.
    pub(crate) fn variable(&self, slot: usize) -> Option<(&'a str, &'a Program)> {
        self.environment?.at(slot)
    }

    /// Returns the cached result of a variable, or None if the variable was not read before. If the
    /// evaluation of the variable has read `now`, [`Self::read_now`] becomes true.
    pub(crate) fn cached_result(&mut self, slot: usize) -> Option<Outcome<'a>> {
        let (outcome, read_now) = self.results.get(slot)?.as_ref()?;
        self.read_now |= read_now;
        Some(outcome.clone())
    }

    pub(crate) fn cache_result(&mut self, slot: usize, outcome: Outcome<'a>, read_now: bool) {
        let variables = self.environment.map_or(0, Environment::len);
        self.results.resize_with(variables, || None);
        if let Some(cached) = self.results.get_mut(slot) {
            *cached = Some((outcome, read_now));
        }
    }
}
