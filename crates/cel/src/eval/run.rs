//! The methods that evaluate a program.

use std::time::Duration;

use jiff::Timestamp;

use super::Context;
use super::result::{self, TypedValue, unexpected};
use super::scope::{EvaluationScope, ListElement};
use crate::budget::{charge, steps};
use crate::compile::program::Program;
use crate::result_kind::ResultKind;
use crate::value::V;
use crate::value::failure::EvaluationFault;
use crate::value::fault::Fault;

impl Program {
    /// Evaluates a [`ResultKind::Bool`] program.
    ///
    /// # Errors
    /// The evaluation fails, for example because a field is missing or a value has a wrong type, or
    /// the budget is exhausted.
    pub fn test(&self, scope: &mut EvaluationScope<'_>) -> Result<bool, EvaluationFault> {
        match self.run(scope)? {
            V::Bool(value) => Ok(value),
            other => Err(self.at_root(unexpected(ResultKind::Bool, &other))),
        }
    }

    /// Evaluates a [`ResultKind::String`] program.
    ///
    /// # Errors
    /// The errors of [`Self::test`].
    pub fn text(&self, scope: &mut EvaluationScope<'_>) -> Result<String, EvaluationFault> {
        match self.run(scope)? {
            V::Str(text) => Ok(text.to_string()),
            other => Err(self.at_root(unexpected(ResultKind::String, &other))),
        }
    }

    /// Evaluates a [`ResultKind::Progress`] program. Returns whole percent, rounded down. A number
    /// below 0 becomes 0, and a number above 100 becomes 100. Returns None for null and for text
    /// that is neither a plain number nor a percentage, such as `N/A`.
    ///
    /// # Errors
    /// The errors of [`Self::test`], and in addition a double that is not finite.
    pub fn progress(&self, scope: &mut EvaluationScope<'_>) -> Result<Option<u8>, EvaluationFault> {
        result::progress(&self.run(scope)?).map_err(|fault| self.at_root(fault))
    }

    /// Evaluates a [`ResultKind::Time`] program. Returns None for null and for empty text.
    ///
    /// # Errors
    /// The errors of [`Self::test`]. In addition, a text is neither empty nor a time in RFC 3339,
    /// or the time is in about the last 26 hours of the year 9999, which [`Timestamp`] does not
    /// support.
    pub fn time(
        &self,
        scope: &mut EvaluationScope<'_>,
    ) -> Result<Option<Timestamp>, EvaluationFault> {
        result::time(&self.run(scope)?).map_err(|fault| self.at_root(fault))
    }

    /// Evaluates a [`ResultKind::Duration`] program. A negative duration becomes zero.
    ///
    /// # Errors
    /// The errors of [`Self::test`].
    pub fn duration(&self, scope: &mut EvaluationScope<'_>) -> Result<Duration, EvaluationFault> {
        result::duration(&self.run(scope)?).map_err(|fault| self.at_root(fault))
    }

    /// Evaluates a [`ResultKind::Amount`] program. The result is finite. For a quantity, the result
    /// equals that of the CEL function `asApproximateFloat`.
    ///
    /// # Errors
    /// The errors of [`Self::test`], and in addition a double that is not finite.
    pub fn amount(&self, scope: &mut EvaluationScope<'_>) -> Result<f64, EvaluationFault> {
        result::amount(&self.run(scope)?).map_err(|fault| self.at_root(fault))
    }

    /// Evaluates a [`ResultKind::Strings`] program. Each element costs one step.
    ///
    /// # Errors
    /// The errors of [`Self::test`], and in addition an element that is not a string.
    pub fn strings<T: for<'t> From<&'t str>>(
        &self,
        scope: &mut EvaluationScope<'_>,
    ) -> Result<Vec<T>, EvaluationFault> {
        let list = self.run(scope)?;
        result::strings(&list, scope.budget).map_err(|fault| self.at_root(fault))
    }

    /// Evaluates a [`ResultKind::Key`] program. An integer is formatted as text.
    ///
    /// # Errors
    /// The errors of [`Self::test`].
    pub fn key(&self, scope: &mut EvaluationScope<'_>) -> Result<String, EvaluationFault> {
        result::key(&self.run(scope)?).map_err(|fault| self.at_root(fault))
    }

    /// Evaluates a [`ResultKind::List`] program. Returns the elements. Each element costs one step.
    ///
    /// # Errors
    /// The errors of [`Self::test`].
    pub fn items<'a>(
        &'a self,
        scope: &mut EvaluationScope<'a>,
    ) -> Result<Vec<ListElement<'a>>, EvaluationFault> {
        let list = self.run(scope)?;
        if !list.is_list() {
            return Err(self.at_root(unexpected(ResultKind::List, &list)));
        }
        charge(scope.budget, steps(list.len(), 1))?;
        let elements = list.elements();
        Ok(elements.map(ListElement).collect())
    }

    /// Evaluates a program of any kind. Returns the value as JSON, with the name of its CEL type.
    ///
    /// # Errors
    /// The errors of [`Self::test`].
    pub fn value(&self, scope: &mut EvaluationScope<'_>) -> Result<TypedValue, EvaluationFault> {
        let value = self.run(scope)?;
        Ok(TypedValue {
            type_name: value.type_name().to_owned(),
            value: result::json(&value, scope.budget)?,
        })
    }

    pub(crate) fn run<'e, 'a: 'e>(
        &'e self,
        scope: &mut EvaluationScope<'a>,
    ) -> Result<V<'e>, EvaluationFault> {
        charge(scope.budget, self.0.weight)?;
        Ok(Context::new(scope, &self.0).eval(&self.0.op)?)
    }

    /// Adds the position of the whole expression to an error without a position.
    fn at_root(&self, fault: Fault<'_>) -> EvaluationFault {
        fault.located(&self.0.source, self.0.root_at).into()
    }
}
