//! Divides a bound among the components of the rule sets. All rule sets of a component use one
//! share. So an author with many rule sets in one component uses up only the share of this
//! component.
//!
//! A tenth of the bound is reserved for components that use little. A component may use more of the
//! other nine tenths only while at least as much stays free as the component uses. So the first
//! greedy component gets at most half of the nine tenths. The second greedy component gets at most
//! half of the rest.

use ifo_api::Text;
use std::collections::HashMap;

/// What each owner uses of a bound. An owner is a component or a rule set.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// Owners that use nothing have no entry.
    used: HashMap<Text, usize>,
    total: usize,
}

impl Shares {
    /// Returns what an owner uses.
    pub fn used_by(&self, owner: &str) -> usize {
        self.used.get(owner).copied().unwrap_or_default()
    }

    /// Returns true if a component may use `amount` more of the bound `all`. A component that uses
    /// at most a hundredth of the bound may also use the reserve.
    pub fn may_take(&self, component: &str, amount: usize, all: usize) -> bool {
        let own = self.used_by(component) + amount;
        let total = self.total + amount;
        let left = (all - all / 10).saturating_sub(total);
        total <= all && (own <= all / 100 || own <= left)
    }

    /// Adds `amount` to what an owner uses.
    pub fn take(&mut self, owner: &Text, amount: usize) {
        *self.used.entry(owner.clone()).or_default() += amount;
        self.total += amount;
    }

    /// Reverts a call of [`Shares::take`] with the same arguments.
    pub fn give_back(&mut self, owner: &str, amount: usize) {
        self.total -= amount;
        if let Some(own) = self.used.get_mut(owner) {
            *own -= amount;
            if *own == 0 {
                self.used.remove(owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greedy_components_leave_room_for_others() {
        let mut shares = Shares::default();
        let mut fill = |component: &str| {
            while shares.may_take(component, 1, 100) {
                shares.take(&component.into(), 1);
            }
            shares.used_by(component)
        };
        let greedy = ["a", "b", "c", "d", "e", "f", "g"].map(&mut fill);
        assert_eq!(greedy, [45, 22, 11, 6, 3, 1, 1]);
        // Only the reserved tenth is left, and a small component may use 1.
        let all = [
            "a", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s",
        ]
        .map(fill);
        assert_eq!(all, [45, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
    }
}
