//! Sets up the log, which is written to standard error.

use aggregated_apiserver::serve::ACCESS_LOG;
use ifo_api::is_unprintable;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Write as _;
use std::io;
use std::panic::PanicHookInfo;

/// Format of the log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Log filter for the kube crate. It suppresses three kinds of messages:
///
/// - If an answer cannot be decoded, the client logs the whole answer at the level WARN. The answer
///   can contain an object, which must not be in the log.
/// - The module `builder` logs each failed request at the level ERROR. The code of this server that
///   sends the request also logs the failure, together with the purpose of the request.
/// - The module `watcher` logs each request that fails with 403 at the level WARN. The code of this
///   server that uses the watch decides what to log.
const KUBE_CLIENT_FILTER: &str = "kube_client::client=error,kube_client::client::builder=off,\
                                  kube_runtime::watcher=off";

/// Log filter for the debug messages of this server. `ifo` selects all crates whose names begin
/// with `ifo`.
const OWN: &str = "ifo=debug,aggregated_apiserver=debug";

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
        2..=4 => format!("info,{KUBE_CLIENT_FILTER},{ACCESS_LOG}=debug,{OWN}"),
        _ => "debug,ifo=trace,aggregated_apiserver=trace".to_owned(),
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
        .with_ansi(false)
        // With the value true, a failed write would make a panic, because the library reports the
        // failure with `eprintln`. Standard error can be a pipe whose reader has ended.
        .log_internal_errors(false)
        .with_writer(|| LogOutput);
    let result = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
    result.map_err(|error| error.to_string())
}

/// Writes log lines to standard error. A text in a log line can come from a client or from an
/// object. So the line has no colors, and each character that could control a terminal is escaped.
struct LogOutput;

impl io::Write for LogOutput {
    /// Writes one log line. The library `tracing_subscriber` passes each line in one call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let escaped = escaped_line(&String::from_utf8_lossy(line));
        io::Write::write_all(&mut io::stderr().lock(), escaped.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Escapes unprintable characters, and line feeds that are not at the end of the line. So no text
/// can imitate another log line. The escapes have the form of JSON, because the line can be JSON.
fn escaped_line(line: &str) -> String {
    let mut escaped = String::with_capacity(line.len());
    for c in line.trim_end_matches('\n').chars() {
        if c == '\n' || is_unprintable(c) {
            write!(escaped, "\\u{:04x}", u32::from(c)).expect("writing to a String cannot fail");
        } else {
            escaped.push(c);
        }
    }
    escaped + "\n"
}

/// Logs every panic of the process at the level ERROR, with its place in the source code. Without
/// this call, Rust writes the text of a panic to standard error, but not in the format of the log.
pub fn log_panics() {
    std::panic::set_hook(Box::new(log_panic));
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let text = panic.payload_as_str().unwrap_or("the panic has no text");
    let location = panic.location().map(ToString::to_string);
    let thread = std::thread::current();
    // A backtrace is captured only if the environment variable `RUST_BACKTRACE` asks for it.
    let backtrace = Backtrace::capture();
    let backtrace =
        (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    tracing::error!(location, thread = thread.name(), backtrace, "panic: {text}");
}

/// The log of an action that the server repeats. A lasting failure is logged once, and the recovery
/// is logged, too.
pub struct FailureLog {
    recovered: &'static str,
    /// The text of the failure of the last attempt. None if the last attempt succeeded.
    last: Option<String>,
}

impl FailureLog {
    /// Creates the log of one action. `recovered` is the log message after a recovery.
    pub fn new(recovered: &'static str) -> Self {
        let last = None;
        Self { recovered, last }
    }

    /// Records the result of an attempt. Returns a failure if the caller must log it, because the
    /// previous attempt succeeded or failed with another text. If the attempt succeeded and the
    /// previous one failed, logs the recovery.
    pub fn record<'a, T, E: ToString>(&mut self, result: &'a Result<T, E>) -> Option<&'a E> {
        let failure = result.as_ref().err();
        let before = std::mem::replace(&mut self.last, failure.map(ToString::to_string));
        if before.is_some() && failure.is_none() {
            tracing::info!("{}", self.recovered);
        }
        failure.filter(|_| before != self.last)
    }
}

/// Captures the log of a test.
#[cfg(test)]
pub mod testing {
    use std::io;
    use std::sync::{Arc, LazyLock, Mutex};
    use tracing::Dispatch;
    use tracing::subscriber::NoSubscriber;

    /// A second subscriber. If only one subscriber exists, tracing decides once for all threads
    /// whether a log statement is enabled: on the thread that first reaches the statement. This can
    /// be the thread of another test, which has no subscriber.
    static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

    /// The captured log. Clones share the log.
    #[derive(Clone, Debug, Default)]
    pub struct CapturedLog(Arc<Mutex<Vec<u8>>>);

    impl CapturedLog {
        /// Captures the log lines of this thread, as with the flag `-v1`, until the returned value
        /// is dropped.
        pub fn begin(&self) -> tracing::subscriber::DefaultGuard {
            LazyLock::force(&SECOND);
            let writer = self.clone();
            let log = tracing_subscriber::fmt().json().flatten_event(true);
            let log = log.with_env_filter(super::filter_of(1));
            let log = log.with_writer(move || writer.clone()).finish();
            tracing::subscriber::set_default(log)
        }

        /// Returns the captured lines.
        pub fn lines(&self) -> Vec<serde_json::Value> {
            let written = self.0.lock().unwrap();
            let lines = serde_json::Deserializer::from_slice(&written).into_iter();
            lines.map(|line| line.unwrap()).collect()
        }
    }

    impl io::Write for CapturedLog {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_cannot_control_the_terminal_or_imitate_another_line() {
        let line = "INFO name=a\u{1b}[31m\u{9b}\u{202e}\r\nERROR forged é\n";
        let escaped = r"INFO name=a\u001b[31m\u009b\u202e\u000d\u000aERROR forged é";
        assert_eq!(escaped_line(line), format!("{escaped}\n"));
        let object = serde_json::json!({"name": line});
        let json: serde_json::Value =
            serde_json::from_str(&escaped_line(&object.to_string())).unwrap();
        assert_eq!(json, object);
    }

    #[test]
    fn a_panic_is_logged_as_one_line_with_its_text_and_its_place() {
        let captured = testing::CapturedLog::default();
        let log = captured.begin();
        let before = std::panic::take_hook();
        log_panics();
        let panicked = std::panic::catch_unwind(|| panic!("the budget is {}", 7));
        std::panic::set_hook(before);
        drop(log);
        assert!(panicked.is_err());
        let lines = captured.lines();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(lines[0]["level"], "ERROR");
        assert_eq!(lines[0]["message"], "panic: the budget is 7");
        let location = lines[0]["location"].as_str().unwrap();
        assert!(location.contains("log.rs:"), "{location}");
    }
}
