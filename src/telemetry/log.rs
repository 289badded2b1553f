//! The log, on standard error.

use std::io::IsTerminal as _;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The target of the log of requests, whose lines have the level DEBUG.
pub const REQUESTS: &str = "access";

/// kube's client logs the whole of an answer that it cannot decode, at level warn. The answer
/// may be an object. A request that fails is logged by whoever sent it, with what it was for.
const QUIET: &str = "kube_client::client=error,kube_client::client::builder=off";

/// What `-v` logs: from 1 on each request, from 2 on the debug messages of this server, from
/// 5 on everything.
fn filter_of(verbosity: u8) -> String {
    match verbosity {
        0 => format!("info,{QUIET}"),
        1 => format!("info,{QUIET},{REQUESTS}=debug"),
        2..=4 => format!("info,{QUIET},{REQUESTS}=debug,ifo=debug"),
        _ => "debug,ifo=trace".to_owned(),
    }
}

/// Sets the log up: `RUST_LOG` if it is given, else what `-v` says.
pub fn start_log(format: LogFormat, filter: Option<&str>, verbosity: u8) -> Result<(), String> {
    use tracing_subscriber::EnvFilter;
    let default = filter_of(verbosity);
    let default = default.as_str();
    let filter = EnvFilter::try_new(filter.unwrap_or(default))
        .map_err(|error| format!("RUST_LOG={:?}: {error}", filter.unwrap_or(default)))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let result = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
    result.map_err(|error| error.to_string())
}
