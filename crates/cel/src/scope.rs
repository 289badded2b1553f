//! The values that expressions can read during the evaluation on one object.
//!
//! Input: the object, the time, and the variables of an environment. Output: their values, each
//! computed at most once.

use jiff::Timestamp;

use super::value::{Fault, V};
use super::{Budget, Doc, Environment, Program};

/// The names that an expression can read, with their values for one object.
pub struct EvaluationScope<'a> {
    /// `object`.
    pub doc: &'a Doc<'a>,
    /// `now`.
    pub now: Timestamp,
    /// The remaining budget.
    pub budget: &'a mut Budget,
    /// True if an evaluation has read `now`.
    pub read_now: bool,
    pub(super) item: Option<ListElement<'a>>,
    environment: Option<&'a Environment>,
    /// The results of the variables that were read, by index in the environment.
    known: Vec<Option<VariableOutcome<'a>>>,
}

/// The result of a variable.
struct VariableOutcome<'a> {
    outcome: Result<V<'a>, Fault<'a>>,
    read_now: bool,
}

/// One element of a list that an expression yielded.
#[derive(Clone)]
pub struct ListElement<'a>(pub(super) V<'a>);

impl<'a> EvaluationScope<'a> {
    /// Creates a scope for one object and one time, without variables and `item`.
    pub fn new(doc: &'a Doc<'a>, now: Timestamp, budget: &'a mut Budget) -> Self {
        Self {
            doc,
            now,
            budget,
            read_now: false,
            item: None,
            environment: None,
            known: Vec::new(),
        }
    }

    /// Sets the variables, for programs that were compiled with `environment` or a part of it. A
    /// variable is evaluated when it is first read. Earlier variables and their values are dropped.
    pub fn set_variables(&mut self, environment: &'a Environment) {
        self.environment = Some(environment);
        self.known.clear();
    }

    /// Sets `item`, for programs that were compiled with it. Returns the previous item.
    pub fn set_item(&mut self, item: Option<ListElement<'a>>) -> Option<ListElement<'a>> {
        std::mem::replace(&mut self.item, item)
    }

    pub(super) fn variable(&self, slot: usize) -> Option<&'a Program> {
        self.environment?.at(slot)
    }

    /// Returns the result of a variable that was read before.
    pub(super) fn known(&mut self, slot: usize) -> Option<Result<V<'a>, Fault<'a>>> {
        let known = self.known.get(slot)?.as_ref()?;
        self.read_now |= known.read_now;
        Some(known.outcome.clone())
    }

    pub(super) fn learn(&mut self, slot: usize, outcome: Result<V<'a>, Fault<'a>>, read_now: bool) {
        let variables = self.environment.map_or(0, Environment::len);
        self.known.resize_with(variables, || None);
        if let Some(place) = self.known.get_mut(slot) {
            *place = Some(VariableOutcome { outcome, read_now });
        }
    }
}
