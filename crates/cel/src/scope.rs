//! What expressions see while one object is evaluated. Enters: the object, the time,
//! the variables of an environment. Leaves: their values, each made at most once.

use jiff::Timestamp;

use super::value::{Fault, V};
use super::{Budget, Doc, Environment, Program};

/// The names that an expression reads, with their values, for one object.
pub struct EvaluationScope<'a> {
    /// `object`.
    pub doc: &'a Doc<'a>,
    /// `now`.
    pub now: Timestamp,
    /// The steps that evaluations may still take.
    pub budget: &'a mut Budget,
    /// Whether an evaluation read `now`.
    pub read_now: bool,
    pub(super) item: Option<ListElement<'a>>,
    environment: Option<&'a Environment>,
    /// The variables that were read, by their place in the environment.
    known: Vec<Option<VariableOutcome<'a>>>,
}

/// The outcome of a variable.
struct VariableOutcome<'a> {
    outcome: Result<V<'a>, Fault<'a>>,
    read_now: bool,
}

/// One element of a list that an expression yielded.
#[derive(Clone)]
pub struct ListElement<'a>(pub(super) V<'a>);

impl<'a> EvaluationScope<'a> {
    /// For one object and one time, without variables and `item`.
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

    /// Sets the variables, for programs that were compiled with `environment` or with a part of
    /// it. A variable is evaluated when it is first read. The values of earlier ones are lost.
    pub fn set_variables(&mut self, environment: &'a Environment) {
        self.environment = Some(environment);
        self.known.clear();
    }

    /// Sets `item`, for programs that were compiled with it. Returns the previous one.
    pub fn set_item(&mut self, item: Option<ListElement<'a>>) -> Option<ListElement<'a>> {
        std::mem::replace(&mut self.item, item)
    }

    pub(super) fn variable(&self, slot: usize) -> Option<&'a Program> {
        self.environment?.at(slot)
    }

    /// The outcome of a variable that was read before.
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
