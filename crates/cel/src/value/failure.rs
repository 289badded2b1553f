//! The errors of the evaluation of an expression on an object. An [`EvaluationFault`] contains only
//! fixed words and parts of the expression. It never contains a value of the object, because users
//! who cannot read the object may see the error.

/// The reason why an evaluation has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationFault {
    /// A field, key or index does not exist. Most callers treat this error like the result `false`.
    /// Contains the key or index if the expression contains it as a name or a literal. A computed
    /// key is left out, because it can be a value of the object.
    #[error("no such key{}", .0.as_ref().map(|key| format!(": {key}")).unwrap_or_default())]
    Missing(Option<Box<str>>),
    /// Another error, such as a wrong type, an overflow or a failed conversion.
    #[error("{text}")]
    Error {
        /// The whole text, such as `1:3: no such overload: string + int`. If the error is in the
        /// expression of a variable, the text begins with the name of the variable.
        text: Box<str>,
        /// Line and column in the evaluated expression, from 1. The column counts characters. None if
        /// the error is in the expression of a variable.
        place: Option<(usize, usize)>,
    },
    /// The evaluation needs more steps than its [`Budget`](crate::Budget) has left.
    #[error("evaluation cost limit exceeded")]
    Budget,
}

/// Returns the line and the column of the byte `offset` of `source`. Both count from 1. The column
/// counts characters.
pub(crate) fn line_and_column(source: &str, offset: usize) -> (usize, usize) {
    let before = source.get(..offset).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}
