//! `kubectl ifo top`: shows the operations on the whole screen and updates them.
//!
//! Input: flags, keys and changes. Output: the screen, and the terminal in its earlier state after
//! the end.
//!
//! ```text
//! keys, changes, the clock ─▶ model (row · family) ─▶ view (layout · detail · theme) ─▶ screen
//! ```
//!
//! The model and the view do no I/O. Only this file and `screen` do.

mod detail;
mod family;
mod keys;
mod layout;
mod model;
mod row;
mod screen;
mod theme;
mod view;

#[cfg(test)]
#[path = "../../tests/cli/terminal.rs"]
mod terminal;
#[cfg(test)]
mod tests;

use super::colors::Colors;
use super::connect::Connect;
use super::filter::Filters;
use super::filter_check;
use super::kinds::Kinds;
use super::list::{incomplete_line, tell_incomplete};
use super::problem::Problem;
use super::redraw::PROBE_INTERVAL;
use super::source::{OperationFollower, OperationSource, Served};
use crate::clock;
use crossterm::event::{Event as Input, EventStream};
use futures::stream::{self, BoxStream, SelectAll};
use futures::{FutureExt as _, Stream, StreamExt as _};
use model::{LoopAction, Model, TopEvent, TopOrder};
use screen::Screen;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Duration;
use theme::Theme;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

/// Smallest time between two frames. It limits the work if there are many changes.
const FRAME_INTERVAL: Duration = Duration::from_millis(50);

/// Interval at which the ages are updated.
const SECOND: Duration = Duration::from_secs(1);

/// Number of changes that are processed before keys are checked again.
const MAX_CHANGES: usize = 1000;

/// The hint if there is no terminal.
const PIPE_HINT: &str = "for a pipe or a file use: kubectl ifo list -w";

const EXAMPLES: &str = "\
Examples:
  kubectl ifo top                              # all operations in flight, the longest running first
  kubectl ifo top -n shop --sort-by progress   # one namespace, the most advanced first
  kubectl ifo top -c kubevirt -A               # one component, including completed operations

Keys: arrows or j and k move, Enter opens an operation, / filters, s changes the order,
? lists all keys, q quits.";

/// The flags of `top`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TopArgs {
    #[command(flatten)]
    filters: Filters,
    /// Order at the start
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "COLUMN",
        help_heading = "Output"
    )]
    sort_by: TopOrder,
    #[command(flatten)]
    colors: Colors,
    #[command(flatten)]
    connect: Connect,
}

/// Runs until the user ends it.
pub(super) async fn run(args: &TopArgs) -> Result<ExitCode, Problem> {
    let mut filters = args.filters.with_namespace(args.connect.namespace());
    filters.refuse_format("top has no output format; for one use: kubectl ifo list -w -o json")?;
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if !io::stdout().is_terminal() || dumb {
        return Err(Problem::Usage(format!("top needs a terminal; {PIPE_HINT}")));
    }
    let paint = args.colors.paint();
    // crossterm also reads NO_COLOR, but it does not know --color.
    crossterm::style::force_color_output(paint.on);
    // This comes before the screen is used, because an authentication plugin may prompt the user.
    let server = args.connect.open().await?;
    let address = server.address.clone();
    filters.resolve(&Kinds::new(server.clone())).await;
    let (source, listed) = OperationSource::open(server, filters.clone(), false).await?;
    // The screen covers messages of this phase. They are printed again when the command ends.
    filter_check::check_and_warn(&filters, &source, &listed).await?;
    let about = format!("{}, {address}", about(&filters, &source));
    let follower = source.follow(None)?;
    let model = Model::new(about, args.sort_by, filters.all_phases, clock::now());
    let ended = show(model, follower, &source, paint.into()).await;
    tell_incomplete(&source);
    ended
}

/// Describes the server and the filters.
fn about(filters: &Filters, source: &OperationSource) -> String {
    let mut parts = vec![match (&filters.namespace, &source.namespaces) {
        (Some(namespace), _) => format!("namespace {namespace}"),
        (None, Some(namespaces)) => format!("{} namespaces", namespaces.len()),
        (None, None) => "all namespaces".to_owned(),
    }];
    let kinds = filters.kind.iter().map(ToString::to_string).collect();
    let lists = [&filters.component, &kinds, &filters.operation];
    parts.extend(
        lists
            .iter()
            .filter(|it| !it.is_empty())
            .map(|it| it.join("|")),
    );
    parts.extend(filters.selector.clone());
    if source.served == Served::Crs {
        parts.push(format!("CRs of {}", source.served.group()));
    }
    parts.join(", ")
}

async fn show(
    mut model: Model,
    mut follower: OperationFollower,
    source: &OperationSource,
    theme: Theme,
) -> Result<ExitCode, Problem> {
    let mut signals = end_signals().map_err(|error| broken(&error))?;
    let mut screen = Screen::enter().map_err(|error| {
        Problem::Usage(format!(
            "top cannot use this terminal: {error}; {PIPE_HINT}"
        ))
    })?;
    let mut keys = EventStream::new();
    let (width, height) = screen.size().map_err(|error| broken(&error))?;
    model.update(TopEvent::Resize(width, height));
    let mut second = interval(SECOND);
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut gaps = gaps(source);
    let mut due = Instant::now();
    let mut changed = true;
    loop {
        if changed && Instant::now() >= due {
            model.settle();
            screen.draw(&model, theme).map_err(|error| broken(&error))?;
            changed = false;
            due = Instant::now() + FRAME_INTERVAL;
        }
        let flow = tokio::select! {
            input = keys.next() => match input {
                Some(Ok(Input::Key(key))) => model.update(TopEvent::Key(key)),
                Some(Ok(Input::Paste(text))) => model.update(TopEvent::Paste(text)),
                Some(Ok(Input::Resize(width, height))) => {
                    model.update(TopEvent::Resize(width, height))
                }
                Some(Ok(_)) => continue,
                Some(Err(error)) => return Err(broken(&error)),
                // The receiver is dropped, so the command has ended.
                None => LoopAction::Quit,
            },
            change = follower.next() => {
                model.update(TopEvent::Change(change?));
                for _ in 1..MAX_CHANGES {
                    let Some(change) = follower.next().now_or_never() else { break };
                    model.update(TopEvent::Change(change?));
                }
                LoopAction::On
            }
            Some(incomplete) = gaps.next() => model.update(TopEvent::Incomplete(incomplete)),
            _ = second.tick() => model.update(TopEvent::Tick(clock::now())),
            () = sleep_until(due), if changed => continue,
            Some(number) = signals.next() => return Ok(ExitCode::from(128 + number)),
        };
        changed = true;
        match flow {
            LoopAction::On => {}
            LoopAction::Redraw => screen.clear().map_err(|error| broken(&error))?,
            LoopAction::Quit => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// Reports why operations may be missing, in one line, each time the server's answer changes.
fn gaps(source: &OperationSource) -> BoxStream<'_, Option<String>> {
    stream::unfold(true, move |first| async move {
        if !first {
            sleep(PROBE_INTERVAL).await;
            // The watch reports a server that does not answer.
            let _ = source.probe().await;
        }
        let line = source.incomplete().as_ref().map(incomplete_line);
        Some((line, false))
    })
    .boxed()
}

fn broken(error: &io::Error) -> Problem {
    Problem::Other(format!("the terminal is closed: {error}"))
}

/// The signals that end a process, by number.
fn end_signals() -> io::Result<impl Stream<Item = u8> + Unpin> {
    let mut all = SelectAll::new();
    for (kind, number) in [
        (SignalKind::hangup(), 1),
        (SignalKind::interrupt(), 2),
        (SignalKind::quit(), 3),
        (SignalKind::terminate(), 15),
    ] {
        let mut signal = signal(kind)?;
        let received = stream::poll_fn(move |context| signal.poll_recv(context));
        all.push(received.map(move |()| number));
    }
    Ok(all)
}
