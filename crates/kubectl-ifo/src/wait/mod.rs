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
use super::listed_operation::ListedOperation;
use super::output::{TextStyle, print, print_error_line, print_error_text};
use super::plain_text::one_line;
use super::problem::Problem;
use crate::clock;
use args::Limit;
pub(super) use args::WaitArgs;
use progress::{active_text, ignored_text, reason};
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
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
    let contradiction = match settings.goal {
        WaitGoal::Started if settings.quiet_period.is_some() => {
            "--quiet-period cannot be used with --for=started"
        }
        WaitGoal::Succeeded if settings.ignore_failing => {
            "--ignore-failing cannot be used with --for=succeeded"
        }
        _ => "",
    };
    if !contradiction.is_empty() {
        return Err(Problem::Usage(contradiction.to_owned()));
    }
    let (once, deadline) = match args.timeout {
        Some(Limit::After(Duration::ZERO)) => (true, None),
        Some(Limit::After(timeout)) => (false, Instant::now().checked_add(timeout)),
        Some(Limit::Unlimited) | None => (false, None),
    };
    let mut waiting = OperationWait::new(args, filters, once);
    match deadline {
        None => waiting.run().await?,
        // At the timeout, `end` is still None.
        Some(deadline) => timeout_at(deadline, waiting.run())
            .await
            .unwrap_or(Ok(()))?,
    }
    let end = waiting.end.take();
    let end = end.unwrap_or_else(|| waiting.verdict_at_timeout());
    if let WaitVerdict::Unknown(why) = end {
        print_error_line(&format!("unknown: {why}"));
        return Ok(ExitCode::from(UNKNOWN));
    }
    let is_reached = end == WaitVerdict::Reached;
    if is_reached && !args.quiet {
        print(one_line(&success_message(args, &waiting.wait_state)) + "\n")?;
    } else if !args.quiet {
        print_failure(&end, &waiting.wait_state, once);
    }
    Ok(ExitCode::from(if is_reached { 0 } else { NOT_REACHED }))
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
    let mut title = "timed out".to_owned();
    if once {
        title = format!("not {}", wait_state.settings.goal);
    }
    let is_too_short = matches!(
        wait_state.verdict(Instant::now()),
        WaitVerdict::ReachedAt(_)
    );
    let but = if is_too_short {
        ", but not yet for the quiet period"
    } else {
        ""
    };
    print_error_line(&format!("{title}: {}{but}", reason(wait_state)));
    let named: Vec<ListedOperation> = wait_state.active().take(MAX_NAMED).cloned().collect();
    if !named.is_empty() {
        let style = TextStyle {
            screen: terminal_width(),
            ..TextStyle::default()
        };
        print_error_text(Table::text(&named, clock::now(), &style));
    }
}
