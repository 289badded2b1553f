//! The flags that select operations by their state: `--state` and `--failing`.

use super::filter::Filters;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use ifo_api::live::State;

/// The flags that select operations by their state.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Filters")]
pub(super) struct StateArgs {
    /// Only operations in this state, such as Blocked; may be given several times
    #[arg(
        long,
        value_name = "STATE",
        value_delimiter = ',',
        ignore_case = true,
        value_parser = one_of(State::ALL.to_vec())
    )]
    state: Vec<State>,
    /// Only failing operations: the same as --state Failing
    #[arg(long)]
    failing: bool,
}

impl StateArgs {
    /// Adds the states to `filters`. If one of them is a state of completed operations, the filters
    /// also select completed operations.
    pub(super) fn add_to(&self, filters: &mut Filters) {
        let failing = self.failing.then_some(State::Failing);
        for state in self.state.iter().copied().chain(failing) {
            if !filters.states.contains(&state) {
                filters.states.push(state);
            }
            filters.all_phases |= state.is_completed();
        }
    }
}

/// Returns a parser that accepts the names of `states`, in upper or lower case. The error for any
/// other text lists these names, and suggests a similar one.
pub(super) fn one_of(states: Vec<State>) -> impl TypedValueParser<Value = State> {
    PossibleValuesParser::new(states.iter().map(|it| it.name())).map(move |text: String| {
        let mut all = states.iter().copied();
        all.find(|it| it.name().eq_ignore_ascii_case(&text))
            .expect("the parser accepts only the names of these states")
    })
}
