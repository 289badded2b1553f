//! The share of a component in a bound that all rule sets have together. All rule sets of a component
//! have one share. So an author with many rule sets in one component uses up only the share of this
//! component.
//!
//! A tenth of the bound is reserved for components that use little. Of the other nine tenths, a
//! component can have at most as much as is left for all others. So the first greedy component gets at
//! most a half of them, and the second one at most a half of the rest.

/// Returns true if a component may use `own` of the bound `all`. `total` is what all components would
/// then use together. A component with at most `small` may also use the reserve.
pub(crate) fn has_share(own: usize, small: usize, total: usize, all: usize) -> bool {
    let left = (all - all / 10).saturating_sub(total);
    total <= all && (own <= small || own <= left)
}
