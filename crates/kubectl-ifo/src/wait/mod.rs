//! `kubectl ifo wait`: lets scripts wait until operations have ended or started.
//!
//! The command succeeds only if the goal is certainly reached. For the goal `idle`, an empty list
//! of operations is not enough. If a rule set does not work, or if the watch is interrupted, the
//! list can lack operations.
//!
//! In an object of the kind `Activity`, the server states whether operations are in flight. An
//! activity is about a namespace, a node, a component or the whole cluster. If an activity is about
//! exactly the selected operations and states that nothing is in flight, the activity decides.
//! Otherwise, lists and watches of operations decide, together with the statement of the server
//! that its list is complete ([`check`]).

mod check;
mod wait_loop;
mod wait_state;

use super::work_groups::Row;
use crate::clock;
use crate::cluster::connect::{Connect, checked_namespace, needs_cluster};
use crate::cluster::problem::Problem;
use crate::filters::filter::Filters;
use crate::operations::operation::InFlightOperation;
use crate::output::columns::{Table, terminal_width};
use crate::output::plain_text::one_line;
use crate::output::print::{TextStyle, print, print_error_line, print_error_text};
use crate::output::sort::SortBy;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::timeout;
use wait_loop::OperationWait;
use wait_state::{WaitEnd, WaitGoal, WaitSettings};

/// Exit code if the goal was not reached before the timeout, or at the single check with
/// `--timeout=0`. Also if the goal cannot be reached, because an operation has failed.
const NOT_REACHED: u8 = 1;
/// Exit code if it is unknown whether the goal is reached.
const UNKNOWN: u8 = 3;
/// Largest number of operations in the table that is printed if the goal was not reached. A line
/// below the table counts the others.
const MAX_NAMED: usize = 10;

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
  kubectl ifo wait --for=succeeded -n shop -o LiveMigrating")]
pub(super) struct WaitArgs {
    #[command(flatten)]
    settings: WaitSettings,
    /// Longest wait, such as 30m; 0 checks once; no limit if omitted or negative
    #[arg(long, value_parser = limit, value_name = "TIME", allow_hyphen_values = true)]
    timeout: Option<Duration>,
    /// Do not require this rule set to work; may be given several times
    #[arg(long = "ignore-rule-set", value_name = "NAME", value_delimiter = ',')]
    ignored: Vec<String>,
    /// Print only errors, and the reason if the answer is unknown
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    connect: Connect,
}

impl WaitArgs {
    /// Returns true if the goal is checked only once.
    fn checks_once(&self) -> bool {
        self.timeout == Some(Duration::ZERO)
    }
}

/// Parses the longest wait. A negative time means no limit. (In `kubectl wait`, it means one week.)
fn limit(text: &str) -> Result<Duration, String> {
    match text.strip_prefix('-') {
        Some(negative) => clock::duration(negative).map(|_| Duration::MAX),
        None => clock::duration(text),
    }
}

/// Waits for the goal, and returns the exit code.
pub(super) async fn run(args: &WaitArgs) -> Result<ExitCode, Problem> {
    let mut filters = args.filters.with_namespace(args.connect.namespace());
    filters.refuse_format("wait has no output format; its exit code is the result")?;
    if args.connect.reads_files() {
        return Err(needs_cluster("wait"));
    }
    let settings = args.settings;
    let refused = |why: &str| Err(Problem::Usage(why.to_owned()));
    if settings.goal == WaitGoal::Started && settings.quiet_period.is_some() {
        return refused("--quiet-period cannot be used with --for=started");
    }
    if settings.goal == WaitGoal::Succeeded && settings.ignore_failing {
        return refused("--ignore-failing cannot be used with --for=succeeded");
    }
    let limit = args.timeout.filter(|_| !args.checks_once());
    let mut waiting = OperationWait::new(args, filters);
    let end = match timeout(limit.unwrap_or(Duration::MAX), waiting.run()).await {
        Ok(Err(end)) => end,
        Err(_) => waiting.end_at_timeout(),
    };
    let (goal, reason) = (settings.goal, waiting.state.reason());
    let (exit_code, message) = match end {
        WaitEnd::Error(problem) => return Err(problem),
        WaitEnd::Reached => {
            if !args.quiet {
                let mut message = format!("{goal}: {reason}");
                if !args.ignored.is_empty() {
                    message += "; these rule sets were not checked: ";
                    message += &args.ignored.join(", ");
                }
                print(one_line(&message) + "\n")?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        WaitEnd::Unknown(why) => (UNKNOWN, format!("unknown: {why}")),
        WaitEnd::Failed(failed) => (NOT_REACHED, format!("failed: {failed}")),
        WaitEnd::NotReached if args.checks_once() => (NOT_REACHED, format!("not {goal}: {reason}")),
        WaitEnd::NotReached => (NOT_REACHED, format!("timed out: {reason}")),
    };
    if exit_code == UNKNOWN || !args.quiet {
        print_error_line(&message);
    }
    let mut active: Vec<&InFlightOperation> = waiting.state.active().collect();
    if exit_code == NOT_REACHED && !args.quiet && !active.is_empty() {
        SortBy::NEED.sort(&mut active);
        let named = active.iter().take(MAX_NAMED);
        let named: Vec<Row> = named.map(|it| Row::from(*it)).collect();
        let style = TextStyle {
            screen: terminal_width(),
            ..TextStyle::default()
        };
        print_error_text(Table::text(&named, clock::now(), &style));
        if active.len() > MAX_NAMED {
            print_error_line(&format!("… and {} more", active.len() - MAX_NAMED));
        }
    }
    Ok(ExitCode::from(exit_code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn the_example_of_succeeded_has_an_operation_with_an_outcome() {
        let wait = <WaitArgs as clap::Args>::augment_args(clap::Command::new("wait"));
        let help = wait
            .get_after_help()
            .expect("there are examples")
            .to_string();
        let (_, operation) = help
            .split_once("--for=succeeded -n shop -o ")
            .expect("there is an example");
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rules/kubevirt");
        let mut rules: Vec<Value> = Vec::new();
        for entry in std::fs::read_dir(folder).expect("the folder is readable") {
            let path = entry.expect("the folder is readable").path();
            let text = std::fs::read_to_string(path).expect("the file is readable");
            for document in text.split("\n---\n") {
                let document = serde_saphyr::from_str(document);
                let document: Value = document.expect("the document is YAML");
                let own = document["spec"]["rules"].as_array();
                rules.extend(own.cloned().unwrap_or_default());
            }
        }
        rules.retain(|it| it["operation"] == operation.trim());
        assert!(!rules.is_empty(), "{operation}");
        assert!(
            rules.iter().all(|it| it["outcome"].is_string()),
            "{rules:?}"
        );
    }
}
