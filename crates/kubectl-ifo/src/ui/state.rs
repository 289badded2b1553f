//! What the page shows besides the objects: warnings, and the times for which operations may be
//! missing.

use crate::clock;
use jiff::Timestamp;
use serde::Serialize;

/// Number of gaps that the command remembers. It forgets the oldest ones.
const MAX_GAPS: usize = 200;

/// The warnings and the gaps. All tabs share them, so that a tab that is loaded again shows the
/// earlier gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct State {
    /// What could not be read, and why operations may be missing.
    pub(super) warnings: Vec<String>,
    gaps: Vec<Gap>,
}

/// A time for which operations may be missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Gap {
    kind: GapKind,
    from: Timestamp,
    /// The end. None while the gap lasts.
    to: Option<Timestamp>,
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum GapKind {
    /// The cluster does not answer.
    Connection,
    /// The server does not detect all operations.
    Detection,
}

impl State {
    /// Begins, continues or ends the gap of a kind. `reason` is None if there is no gap.
    pub(super) fn set_gap(&mut self, kind: GapKind, reason: Option<&str>) {
        let mut open = self.gaps.iter_mut().filter(|it| it.to.is_none());
        match (open.find(|it| it.kind == kind), reason) {
            (Some(gap), Some(reason)) => reason.clone_into(&mut gap.message),
            (Some(gap), None) => gap.to = Some(clock::now()),
            (None, Some(reason)) => self.gaps.push(Gap {
                kind,
                from: clock::now(),
                to: None,
                message: reason.to_owned(),
            }),
            (None, None) => {}
        }
        let forgotten = self.gaps.len().saturating_sub(MAX_GAPS);
        self.gaps.drain(..forgotten);
    }
}
