//! Divides a bound that all rule sets have together among the components. All rule sets of a
//! component have one share. So an author with many rule sets in one component uses up only the share
//! of this component.
//!
//! A tenth of the bound is reserved for components that use little. Of the other nine tenths, a
//! component can have at most as much as is left for all others. So the first greedy component gets at
//! most a half of them, and the second one at most a half of the rest.

use ifo_api::Text;
use std::collections::HashMap;

/// Returns true if a component may use `own` of the bound `all`. `total` is what all components would
/// then use together. A component with at most `small` may also use the reserve.
pub(crate) fn has_share(own: usize, small: usize, total: usize, all: usize) -> bool {
    let left = (all - all / 10).saturating_sub(total);
    total <= all && (own <= small || own <= left)
}

/// What each component uses of a bound.
#[derive(Debug, Default)]
pub(crate) struct ComponentShares {
    /// Components that use nothing have no entry.
    used: HashMap<Text, usize>,
    total: usize,
}

impl ComponentShares {
    /// Returns true if a component may use `amount` more of the bound `all`. A component that uses at
    /// most a hundredth of the bound counts as small.
    pub fn may_take(&self, component: &str, amount: usize, all: usize) -> bool {
        let own = self.used.get(component).copied().unwrap_or_default() + amount;
        has_share(own, all / 100, self.total + amount, all)
    }

    /// Adds `amount` to what a component uses.
    pub fn take(&mut self, component: &Text, amount: usize) {
        *self.used.entry(component.clone()).or_default() += amount;
        self.total += amount;
    }

    /// Reverts a call of [`ComponentShares::take`] with the same arguments.
    pub fn give_back(&mut self, component: &str, amount: usize) {
        self.total -= amount;
        if let Some(own) = self.used.get_mut(component) {
            *own -= amount;
            if *own == 0 {
                self.used.remove(component);
            }
        }
    }
}
