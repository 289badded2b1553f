//! `ifo-apiserver`: installs signal handlers, parses flags, starts the log and runs the server.

use ifo::app::Signals;
use ifo::config::Config;
use ifo_client::error_text::chain;
use std::num::NonZero;
use std::process::ExitCode;

/// Maximum number of threads that run the tasks of the server, such as feeds and requests. The
/// allocator keeps a separate arena for each thread, so each thread costs memory. The server uses
/// far less than one processor, so more threads on a larger node would not help.
const MAX_THREADS: usize = 4;

pub(crate) fn main() -> ExitCode {
    // The signal handlers are installed before everything else. The server is PID 1 in its
    // container, and the kernel delivers a signal to PID 1 only if a handler is installed.
    let signals = match Signals::install() {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("ifo-apiserver: cannot wait for signals: {error}");
            return ExitCode::FAILURE;
        }
    };
    let config = match Config::from_process() {
        Ok(config) => config,
        Err(error) => {
            eprintln!("ifo-apiserver: {error}");
            return ExitCode::from(2);
        }
    };
    let common = &config.common;
    if let Err(error) = ifo::telemetry::start_log(
        common.log_format,
        common.log_filter.as_deref(),
        common.verbosity,
    ) {
        eprintln!("ifo-apiserver: {error}");
        return ExitCode::from(2);
    }
    ifo::telemetry::log_panics();
    // Sets the default TLS provider of the process. Libraries that do not choose a provider use the
    // default.
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        tracing::debug!("a TLS provider is installed already");
    }
    tracing::info!(version = %common.version, "ifo-apiserver");
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(processors.min(MAX_THREADS))
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("ifo-apiserver: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = match runtime.block_on(ifo::app::run(config, signals)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", chain(&*error));
            ExitCode::FAILURE
        }
    };
    // `shutdown_background` does not wait for blocked threads, such as a thread that looks up a
    // host name. Dropping the runtime would wait for these threads.
    runtime.shutdown_background();
    code
}
