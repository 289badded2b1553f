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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_snapshots::mixed;
    use clap::Parser as _;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        states: StateArgs,
    }

    fn filters(line: &str) -> Filters {
        let mut filters = Filters::default();
        let line = Line::try_parse_from(line.split(' ')).unwrap();
        line.states.add_to(&mut filters);
        filters
    }

    /// Returns the names of the subjects that the filters show.
    fn shown(line: &str) -> Vec<String> {
        let filters = filters(line);
        let operations = mixed().into_iter().filter(|it| filters.shows(it));
        operations
            .map(|it| it.spec.subject.name.to_string())
            .collect()
    }

    #[test]
    fn states_select_operations_in_any_case() {
        assert_eq!(shown("ifo"), ["version", "frontend", "データ"]);
        assert_eq!(shown("ifo --state blocked"), ["frontend"]);
        assert_eq!(shown("ifo --failing"), ["データ"]);
        let both = ["frontend", "データ"];
        assert_eq!(shown("ifo --state Blocked,FAILING"), both);
        assert_eq!(shown("ifo --state Blocked --state Failing"), both);
        assert_eq!(shown("ifo --failing --state Blocked"), both);
        assert_eq!(
            filters("ifo --failing --state Failing").states,
            [State::Failing]
        );
        assert!(!filters("ifo --failing").is_unfiltered());
    }

    #[test]
    fn a_state_of_completed_operations_includes_completed_operations() {
        assert_eq!(shown("ifo --state Succeeded"), ["backend"]);
        assert_eq!(
            shown("ifo --state Blocked,Succeeded"),
            ["frontend", "backend"]
        );
        assert!(!filters("ifo --state Blocked").all_phases);
    }

    #[test]
    fn a_misspelt_state_is_an_error_with_the_possible_values() {
        let error = Line::try_parse_from(["ifo", "--state", "faling"]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let error = error.to_string();
        assert!(error.contains("similar value exists: 'Failing'"), "{error}");
        for state in State::ALL {
            assert!(error.contains(state.name()), "{error}");
        }
    }
}
