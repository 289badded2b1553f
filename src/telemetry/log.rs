//! Sets up the log, which is written to standard error.

use std::io::IsTerminal as _;

/// Format of the log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The `tracing` target of the log lines about requests. These lines have the level DEBUG.
pub const ACCESS_LOG: &str = "access";

/// Log filter for kube's client. It suppresses two kinds of messages:
///
/// - If an answer cannot be decoded, the client logs the whole answer at the level WARN. The answer
///   can contain an object, which must not be in the log.
/// - The module `builder` logs each failed request at the level ERROR. The code of this server that
///   sends the request also logs the failure, together with the purpose of the request.
const KUBE_CLIENT_FILTER: &str = "kube_client::client=error,kube_client::client::builder=off";

/// Returns the log filter for the verbosity of the flag `-v`:
///
/// - 0: messages of the level INFO and above.
/// - 1: in addition, a line for each request to this server.
/// - 2 to 4: in addition, the debug messages of this server.
/// - 5 and more: in addition, the trace messages of this server and the debug messages of all
///   libraries. [`KUBE_CLIENT_FILTER`] is off, so the log can contain whole answers.
fn filter_of(verbosity: u8) -> String {
    match verbosity {
        0 => format!("info,{KUBE_CLIENT_FILTER}"),
        1 => format!("info,{KUBE_CLIENT_FILTER},{ACCESS_LOG}=debug"),
        2..=4 => format!("info,{KUBE_CLIENT_FILTER},{ACCESS_LOG}=debug,ifo=debug"),
        _ => "debug,ifo=trace".to_owned(),
    }
}

/// Starts the log. `filter` is the value of the environment variable `RUST_LOG`. If it is None, the
/// filter for `verbosity` is used. Returns an error if `filter` is invalid, or if a log was already
/// started.
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
