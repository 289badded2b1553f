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

/// Sets the log up: `RUST_LOG` if it is given, else `verbosity` as `-v` counts it in
/// Kubernetes' own servers (0 to 1 info, 2 to 4 debug, above that trace).
pub fn start_log(format: LogFormat, filter: Option<&str>, verbosity: u8) -> Result<(), String> {
    use tracing_subscriber::EnvFilter;
    // kube's client logs the whole of an answer that it cannot decode, at level warn.
    let default = match verbosity {
        0 | 1 => "info,kube_client::client=error",
        2..=4 => "info,kube_client::client=error,ifo=debug",
        _ => "debug,ifo=trace",
    };
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
