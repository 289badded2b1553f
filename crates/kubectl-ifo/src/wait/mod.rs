//! `kubectl ifo wait`: lets scripts wait until operations have ended or started.
//!
//! The command succeeds only if the goal is certainly reached. For the goal `idle`, an empty list
//! of operations is not enough. If a rule set does not work, or if the watch is interrupted, the
//! list can lack operations. So the command also checks the rule sets and the watch.

mod detection_check;
mod progress;
mod wait_loop;
mod wait_state;

use super::columns;
use super::connect::{Connect, checked_namespace};
use super::filter::Filters;
use super::from_files;
use super::output::{TextStyle, print, print_error_line};
use super::plain_text::one_line;
use super::problem::Problem;
pub(super) use detection_check::RuleSets;
use ifo_api::duration;
use progress::ProgressOutput;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use wait_loop::OperationWait;
use wait_state::{WaitGoal, WaitSettings, WaitState};

/// Exit code if the goal was not reached before the timeout, or at the single check with
/// `--timeout=0`.
const TIMED_OUT: u8 = 1;
/// Exit code if it is unknown whether the goal is reached.
const UNKNOWN: u8 = 3;

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
  1  the goal was not reached within --timeout
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
  kubectl ifo wait --for=completed -n shop -o Migrating")]
pub(super) struct WaitArgs {
    /// Goal of the wait
    #[arg(long = "for", value_enum, default_value_t = WaitGoal::Idle, value_name = "GOAL")]
    goal: WaitGoal,
    /// Longest wait, such as 30m; 0 checks once; no limit if omitted or negative
    #[arg(long, value_parser = limit, value_name = "TIME", allow_hyphen_values = true)]
    timeout: Option<Limit>,
    /// Time without active operations before idle or completed is reached
    #[arg(long, value_parser = time, value_name = "TIME")]
    quiet_period: Option<Duration>,
    /// Do not wait for operations that are failing
    #[arg(long)]
    ignore_failing: bool,
    /// Do not wait for operations that are blocked
    #[arg(long)]
    ignore_blocked: bool,
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

fn time(text: &str) -> Result<Duration, String> {
    duration::parse(text)
        .ok_or_else(|| format!("{text:?} is not a duration; examples are 30s and 10m"))
}

/// The longest wait. A negative time means no limit. (In `kubectl wait`, it means one week.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Unlimited,
    After(Duration),
}

fn limit(text: &str) -> Result<Limit, String> {
    match text.strip_prefix('-') {
        Some(negative) => time(negative).map(|_| Limit::Unlimited),
        None => time(text).map(Limit::After),
    }
}

/// The result of a wait.
enum WaitEnd {
    /// The goal is reached.
    Reached,
    /// The goal is certainly not reached. The timeout has passed, or the command checks only once.
    TimedOut,
    /// It is unknown whether the goal is reached. The text is the reason.
    Unknown(String),
}

/// Waits for the goal, and returns the exit code.
pub(super) async fn run(args: &WaitArgs) -> Result<ExitCode, Problem> {
    let mut filters = Filters {
        all_phases: true,
        ..args.filters.with_namespace(args.connect.namespace())
    };
    filters.refuse_format("wait has no output format; its exit code is the result")?;
    if args.connect.reads_files() {
        return Err(from_files::needs_cluster("wait"));
    }
    if args.goal == WaitGoal::Started && args.quiet_period.is_some() {
        return Err(Problem::Usage(
            "--quiet-period can be used only with --for=idle and --for=completed".to_owned(),
        ));
    }
    let (once, deadline) = match args.timeout {
        Some(Limit::After(Duration::ZERO)) => (true, None),
        Some(Limit::After(timeout)) => (false, Instant::now().checked_add(timeout)),
        Some(Limit::Unlimited) | None => (false, None),
    };
    let mut waiting = OperationWait {
        wait_state: WaitState::new(WaitSettings {
            goal: args.goal,
            quiet_period: args.quiet_period.unwrap_or_default(),
            ignore_failing: args.ignore_failing,
            ignore_blocked: args.ignore_blocked,
        }),
        filters,
        ignored: args.ignored.clone(),
        unknown_reason: None,
        interruption: None,
        are_rule_sets_known_to_work: false,
        was_busy_at_start: false,
        // A single check prints no progress.
        progress: ProgressOutput::new(args.quiet || once),
        style: TextStyle {
            screen: columns::terminal_width().filter(|_| !args.quiet),
            ..TextStyle::default()
        },
    };
    let waited = waiting.run(args, once);
    let end = match deadline {
        None => waited.await?,
        Some(deadline) => match timeout_at(deadline, waited).await {
            Ok(end) => end?,
            // After a timeout, the goal is either certainly not reached, or the result is unknown.
            // These two cases have different exit codes.
            Err(_) => match waiting.current_doubt() {
                _ if waiting.wait_state.is_busy() => WaitEnd::TimedOut,
                Some((why, _)) => WaitEnd::Unknown(why.clone()),
                None if !waiting.are_rule_sets_known_to_work
                    || !waiting.wait_state.is_complete() =>
                {
                    WaitEnd::Unknown(
                        "the cluster has not returned all operations and rule sets before \
                         the timeout"
                            .to_owned(),
                    )
                }
                None => WaitEnd::TimedOut,
            },
        },
    };
    waiting.progress.clear();
    Ok(match end {
        WaitEnd::Reached => {
            if !args.quiet {
                print(one_line(&waiting.success_message()) + "\n")?;
            }
            ExitCode::SUCCESS
        }
        WaitEnd::TimedOut => {
            if !args.quiet {
                waiting.print_failure(once);
            }
            ExitCode::from(TIMED_OUT)
        }
        WaitEnd::Unknown(why) => {
            print_error_line(&format!("unknown: {why}"));
            ExitCode::from(UNKNOWN)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_timeout_is_no_limit() {
        assert_eq!(limit("-1s"), Ok(Limit::Unlimited));
        assert_eq!(limit("0"), Ok(Limit::After(Duration::ZERO)));
        assert_eq!(limit("30m"), Ok(Limit::After(Duration::from_mins(30))));
        assert!(limit("-soon").is_err() && limit("soon").is_err());
    }
}
