//! The flags of `kubectl ifo wait`.

use super::wait_state::WaitSettings;
use crate::clock;
use crate::connect::{Connect, checked_namespace};
use crate::filter::Filters;
use std::time::Duration;

/// The flags of `wait`.
#[derive(Debug, clap::Args)]
// `--all-phases` is hidden. This flag has no effect, because a wait always reads operations in all
// phases.
#[command(mut_arg("all_phases", |it| it.hide(true)))]
// An empty namespace is refused, because an unset shell variable must not mean all namespaces.
#[command(mut_arg("namespace", |it| it.value_parser(checked_namespace)))]
// `--from` is hidden. If the user gives this flag, an error message explains that files do not
// change.
#[command(mut_arg("from", |it| it.hide(true)))]
#[command(after_help = "\
Exit codes:
  0  the goal is reached
  1  the goal was not reached within --timeout, or an operation failed (--for=succeeded)
  2  an error, such as a filter value that does not exist
  3  unknown: no rule set is installed, a rule set does not work, or the server does not answer

Examples:
  # Check once if an operation is in flight
  kubectl ifo wait --timeout=0

  # Before maintenance: wait until no operation has been in flight for half a minute
  kubectl ifo wait --for=idle --quiet-period=30s --timeout=30m

  # Before maintenance of a node: wait until no operation touches it
  kubectl ifo wait --for=idle --node worker-3 --timeout=30m

  # Wait only for operations on virtual machines, without failing and blocked ones
  kubectl ifo wait -c kubevirt --ignore-failing --ignore-blocked

  # Wait until a migration in a namespace has started, and then until it has ended
  kubectl ifo wait --for=started -n shop -o Migrating --timeout=1m
  kubectl ifo wait --for=completed -n shop -o Migrating

  # Wait until a migration has succeeded; if it fails, end at once
  kubectl ifo wait --for=succeeded -n shop -o Migrating")]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    pub(super) settings: WaitSettings,
    /// Longest wait, such as 30m; 0 checks once; no limit if omitted or negative
    #[arg(long, value_parser = limit, value_name = "TIME", allow_hyphen_values = true)]
    pub(super) timeout: Option<Duration>,
    /// Do not require this rule set to work; may be given several times
    #[arg(long = "ignore-rule-set", value_name = "NAME", value_delimiter = ',')]
    pub(super) ignored: Vec<String>,
    /// Print only errors, and the reason if the answer is unknown
    #[arg(short, long)]
    pub(super) quiet: bool,
    #[command(flatten)]
    pub(super) filters: Filters,
    #[command(flatten)]
    pub(super) connect: Connect,
}

/// Parses the longest wait. A negative time means no limit. (In `kubectl wait`, it means one week.)
fn limit(text: &str) -> Result<Duration, String> {
    match text.strip_prefix('-') {
        Some(negative) => clock::duration(negative).map(|_| Duration::MAX),
        None => clock::duration(text),
    }
}
