//! `kubectl ifo wait`: lets scripts wait until operations have ended or started.
//!
//! The command succeeds only if the goal is certainly reached. For the goal `idle`, an empty list
//! of operations is not enough. If a rule set does not work, or if the watch is interrupted, the
//! list can lack operations.
//!
//! If an `Activity` is about exactly the selected operations and states that nothing is in flight, the
//! activity decides ([`activity`]). Otherwise, lists and watches of operations decide, together with
//! the statement of the server that its list is complete ([`check`]).

mod activity;
mod args;
mod check;
mod progress;
mod wait_loop;
mod wait_state;

use super::columns::{Table, terminal_width};
use super::connect::needs_cluster;
use super::output::{TextStyle, print, print_error_line, print_error_text};
use super::plain_text::one_line;
use super::problem::Problem;
use super::work_groups::Row;
use crate::clock;
pub(super) use args::WaitArgs;
use progress::{active_text, ignored_text, reason};
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use wait_loop::OperationWait;
use wait_state::{WaitGoal, WaitState, WaitVerdict};

/// Exit code if the goal was not reached before the timeout, or at the single check with
/// `--timeout=0`. Also if the goal cannot be reached, because an operation has failed.
const NOT_REACHED: u8 = 1;
/// Exit code if it is unknown whether the goal is reached.
const UNKNOWN: u8 = 3;
/// Largest number of operations in the table that is printed if the goal was not reached. Further
/// operations are left out.
const MAX_NAMED: usize = 10;

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
    let once = args.timeout == Some(Duration::ZERO);
    let limit = args.timeout.filter(|_| !once).unwrap_or(Duration::MAX);
    let mut waiting = OperationWait::new(args, filters, once);
    let end = match timeout(limit, waiting.run()).await {
        Ok(Err(end)) => end,
        Err(_) => waiting.verdict_at_timeout(),
    };
    let wait_state = &waiting.wait_state;
    Ok(ExitCode::from(match end {
        WaitVerdict::Error(problem) => return Err(problem),
        WaitVerdict::Unknown(why) => {
            print_error_line(&format!("unknown: {why}"));
            UNKNOWN
        }
        WaitVerdict::Reached => {
            if !args.quiet {
                print(one_line(&success_message(args, wait_state)) + "\n")?;
            }
            0
        }
        end => {
            if !args.quiet {
                print_failure(&end, wait_state, once);
            }
            NOT_REACHED
        }
    }))
}

fn success_message(args: &WaitArgs, wait_state: &WaitState) -> String {
    let goal = args.settings.goal;
    let mut ignored = ignored_text(wait_state);
    if !args.ignored.is_empty() {
        ignored += "; these rule sets were not checked: ";
        ignored += &args.ignored.join(", ");
    }
    match goal {
        WaitGoal::Idle => format!("{goal}: no operation in flight{ignored}"),
        WaitGoal::Started => format!("{goal}: {}", active_text(wait_state)),
        WaitGoal::Completed => format!("{goal}: all operations have ended{ignored}"),
        WaitGoal::Succeeded => format!("{goal}: all operations have succeeded{ignored}"),
    }
}

/// Prints why the goal was not reached, with the operations that prevent it.
fn print_failure(end: &WaitVerdict, wait_state: &WaitState, once: bool) {
    if let WaitVerdict::Failed(failed) = end {
        return print_error_line(&format!("failed: {failed}"));
    }
    let title = if once {
        format!("not {}", wait_state.settings.goal)
    } else {
        "timed out".to_owned()
    };
    let but = match wait_state.verdict(Instant::now()) {
        WaitVerdict::ReachedAt(_) => ", but not yet for the quiet period",
        _ => "",
    };
    print_error_line(&format!("{title}: {}{but}", reason(wait_state)));
    let named = wait_state.active().take(MAX_NAMED);
    let named: Vec<Row> = named.map(Row::from).collect();
    if !named.is_empty() {
        let style = TextStyle {
            screen: terminal_width(),
            ..TextStyle::default()
        };
        print_error_text(Table::text(&named, clock::now(), &style));
    }
}
