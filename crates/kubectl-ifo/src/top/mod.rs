//! `kubectl ifo top`: shows the operations on the whole screen and updates them.
//!
//! The main loop in this file updates the model when the user presses a key, when operations
//! change, and every second. The model is the content of the screen as data. After an update, the
//! main loop draws the model. When the command ends, it restores the terminal.
//!
//! ```text
//! keys, changes, clock ─▶ model ─▶ view
//! ```
//!
//! Only this file does I/O.

mod keys;
mod model;
#[cfg(test)]
mod tests;
mod view;

use super::describe::DescribedFacts;
use super::list::{CommonArgs, WorkArgs, incomplete_line, print_incomplete};
use crate::clock;
use crate::cluster::problem::Problem;
use crate::filters::filter::Filters;
use crate::operations::operation::{OperationFacts as _, OperationKey};
use crate::operations::operation_source::{OperationChange, OperationFollower, OperationSource};
use crate::output::print::Format;
use crate::output::reprint::with_later_changes;
use crate::output::sort::SortBy;
use crossterm::event::{Event as Input, EventStream};
use futures::future::{BoxFuture, pending, select_all};
use futures::{FutureExt as _, StreamExt as _};
use model::{LoopAction, Model};
use ratatui::DefaultTerminal;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

/// Interval at which the ages are updated.
const SECOND: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  kubectl ifo top                              # all operations in flight, the worst first
  kubectl ifo top -n shop --sort-by progress   # one namespace, the most advanced first
  kubectl ifo top -c kubevirt -A               # one component, including completed operations

Keys: arrows or j and k move, Enter opens an operation, / filters, s changes the order,
e shows the members of each piece of work, ? lists all keys, q quits.";

/// The flags of `top`.
#[derive(Debug, Clone, clap::Args)]
#[command(mut_arg("format", |it| it.hide(true)))]
// The output is always updated, so `--watch` has no effect.
#[command(mut_arg("watch", |it| it.hide(true)))]
#[command(after_help = EXAMPLES)]
pub(super) struct TopArgs {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    work: WorkArgs,
}

/// Shows the operations until the user quits.
pub(super) async fn run(args: &TopArgs) -> Result<ExitCode, Problem> {
    let output = &args.common.output;
    let (filters, format) = args.common.chosen()?;
    if format != Format::Table {
        let message = "top has no output format; for one use: kubectl ifo list -o json";
        return Err(Problem::Usage(message.to_owned()));
    }
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if !io::stdout().is_terminal() || dumb {
        let message = "top needs a terminal; for a pipe or a file use: kubectl ifo list";
        return Err(Problem::Usage(message.to_owned()));
    }
    // crossterm reads NO_COLOR, but does not know the flag --color. So this command tells crossterm
    // whether to use colors.
    crossterm::style::force_color_output(output.colors.paint().on);
    // The model selects the phases and states, because the user can show completed operations
    // later.
    let mut all = Filters {
        all_phases: true,
        states: Vec::new(),
        ..filters.clone()
    };
    // A credential plugin can prompt the user. The screen would hide the prompt and warnings. So
    // this command opens the connection before it uses the screen.
    let (source, listed, style) = args.common.open(&mut all, Format::Table).await?;
    let now = clock::now();
    let mut model = Model {
        now,
        answered: now,
        about: format!("{}, {}", about(&filters, &source), source.server.address),
        order: output.sort_by.clone().unwrap_or(SortBy::NEED),
        style,
        reads_files: args.common.connect.reads_files(),
        shows_completed: filters.all_phases,
        is_expanded: args.work.expand,
        filters,
        incomplete: source.incomplete().as_ref().map(incomplete_line),
        ..Model::default()
    };
    let follower = source.follow(listed.clone())?;
    for operation in listed {
        model.change(OperationChange::Applied(Box::new(operation)));
    }
    // This function restores the terminal at the end. After a panic, the panic hook of ratatui does
    // so.
    let ended = match ratatui::try_init() {
        Ok(mut terminal) => main_loop(model, follower, &source, &mut terminal).await,
        Err(error) => Err(terminal_error(&error)),
    };
    let _ = ratatui::try_restore();
    print_incomplete(source.incomplete().as_ref());
    ended
}

/// Describes the filters in one line, such as `all namespaces, --component kubevirt`.
fn about(filters: &Filters, source: &OperationSource) -> String {
    let mut parts = filters.flags();
    if filters.namespace.is_none() {
        let read = match source.namespaces.as_deref() {
            None => "all namespaces".to_owned(),
            Some([namespace]) => format!("namespace {namespace}"),
            Some(readable) => format!("{} namespaces", readable.len()),
        };
        parts.insert(0, read);
    }
    parts.join(", ")
}

/// Shows the model on the alternate screen until the command ends.
async fn main_loop(
    mut model: Model,
    mut follower: OperationFollower<'_>,
    source: &OperationSource,
    terminal: &mut DefaultTerminal,
) -> Result<ExitCode, Problem> {
    let mut signals = Vec::new();
    for (kind, number) in [
        (SignalKind::hangup(), 1),
        (SignalKind::interrupt(), 2),
        (SignalKind::quit(), 3),
        (SignalKind::terminate(), 15),
    ] {
        // From here on, the signal no longer ends the process.
        let mut signal = signal(kind).map_err(|error| terminal_error(&error))?;
        signals.push(async move { signal.recv().await.map(|()| number) }.boxed());
    }
    let mut end_signal = select_all(signals);
    // Some terminals have no alternate screen and still show earlier lines, so the screen is
    // cleared.
    clear(terminal)?;
    let mut keys = EventStream::new();
    let mut second = interval(SECOND);
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Reads the facts of the detail page. Yields the facts, and the key of the operation.
    let mut reading: BoxFuture<'_, (OperationKey, DescribedFacts)> = pending().boxed();
    loop {
        model.refresh_rows();
        let drawn = terminal.draw(|frame| view::draw(&mut model, frame));
        drawn.map_err(|error| terminal_error(&error))?;
        let action = tokio::select! {
            (key, facts) = &mut reading => {
                reading = pending().boxed();
                if let Some(detail) = model.detail.as_mut().filter(|it| it.key == key) {
                    detail.facts = facts;
                }
                LoopAction::Continue
            }
            input = keys.next() => match input {
                Some(Ok(Input::Key(key))) => model.key(key),
                Some(Ok(_)) => LoopAction::Continue,
                Some(Err(error)) => return Err(terminal_error(&error)),
                // The stream of keys has ended, so the command ends, too.
                None => LoopAction::Quit,
            },
            change = follower.next() => {
                let changes = with_later_changes(change?, &mut follower).await?;
                for change in changes {
                    model.change(change);
                }
                LoopAction::Continue
            }
            _ = second.tick() => {
                model.now = clock::now();
                LoopAction::Continue
            }
            (number, ..) = &mut end_signal => {
                return Ok(ExitCode::from(128 + number.unwrap_or_default()));
            }
        };
        match action {
            LoopAction::Continue => {}
            LoopAction::Read(operation) => {
                let key = operation.key();
                let facts = DescribedFacts::read(source.server.clone(), *operation);
                reading = facts.map(|facts| (key, facts)).boxed();
            }
            LoopAction::Redraw => clear(terminal)?,
            LoopAction::Quit => return Ok(ExitCode::SUCCESS),
        }
    }
}

fn terminal_error(error: &io::Error) -> Problem {
    Problem::Other(format!("cannot use the terminal: {error}"))
}

/// Clears the screen, so that the next frame is drawn completely. This is necessary if another
/// program has written to the screen.
fn clear(terminal: &mut DefaultTerminal) -> Result<(), Problem> {
    // `Terminal::resize` also clears the screen. `Terminal::clear` is not used, because it asks the
    // terminal for the position of the cursor, and `top` would read the answer as keys.
    let size = terminal.size();
    let cleared = size.and_then(|size| terminal.resize(size.into()));
    cleared.map_err(|error| terminal_error(&error))
}
