//! Which rule sets may miss operations, at any replica. Enters: the report of this replica,
//! and what the leader said. Leaves: the answers from which the warning on lists is made.

use super::View;
use crate::rules::{Coverage, Reporter};
use ifo_api::completeness::{Completeness, Gaps};

/// Answers about completeness at any replica: those of its own rule sets where it leads and
/// has read them, else those of the leader.
#[derive(Clone, Debug)]
pub struct Covered {
    own: Reporter,
    view: View,
}

impl Covered {
    /// `own`: the report of this replica, which counts while it leads.
    pub fn new(own: Reporter, view: View) -> Self {
        Self { own, view }
    }

    /// What this replica tells the others.
    pub fn coverage(&self) -> Coverage {
        self.own.coverage()
    }
}

impl Completeness for Covered {
    fn gaps(&self, namespace: &str) -> Gaps {
        let own = self.own.gaps(namespace);
        if own.read {
            return own;
        }
        let mirrored = self.view.coverage();
        mirrored.map_or(own, |mirrored| mirrored.gaps(self.own.wanted(namespace)))
    }
}
