//! `ifo-apiserver`: installs signal handlers, parses flags, starts the log and runs the server.

use ifo::app::Signals;
use ifo::config::Config;
use ifo_client::error_text::chain;
use std::num::NonZero;
use std::process::ExitCode;
use tokio::runtime::{Builder, Runtime};

/// Maximum number of threads that run the tasks of the server, such as feeds and requests. The
/// allocator keeps a separate arena for each thread, so each thread costs memory. The server uses
/// far less than one processor, so more threads would not help on a larger node.
const MAX_THREADS: usize = 4;

/// Minimum number of these threads. If the start blocks one thread, for example with an exec plugin
/// of a kubeconfig, another thread receives signals.
const MIN_THREADS: usize = 2;

pub(crate) fn main() -> ExitCode {
    let (config, signals, runtime) = match prepare() {
        Ok(prepared) => prepared,
        Err((code, error)) => {
            eprintln!("ifo-apiserver: {error}");
            return ExitCode::from(code);
        }
    };
    let code = match runtime.block_on(ifo::app::run(config, signals)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error = chain(&*error);
            // A misspelt level in `RUST_LOG` counts as the name of a module, and disables all levels.
            if tracing::enabled!(tracing::Level::ERROR) {
                tracing::error!("{error}");
            } else {
                eprintln!("ifo-apiserver: {error}");
            }
            ExitCode::FAILURE
        }
    };
    // `shutdown_background` does not wait for blocked threads, such as a thread that looks up a
    // host name. Dropping the runtime would wait for these threads.
    runtime.shutdown_background();
    code
}

/// Prepares the process. Returns the exit code and the message of an error. The code is 2 if the
/// configuration is invalid.
fn prepare() -> Result<(Config, Signals, Runtime), (u8, String)> {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let runtime = Builder::new_multi_thread()
        .worker_threads(processors.clamp(MIN_THREADS, MAX_THREADS))
        .enable_all()
        .build()
        .map_err(|error| (1, format!("cannot start: {error}")))?;
    // The signal handlers are installed before everything else. The server is PID 1 in its
    // container, and the kernel delivers a signal to PID 1 only if a handler is installed.
    let entered = runtime.enter();
    let signals =
        Signals::install().map_err(|error| (1, format!("cannot wait for signals: {error}")))?;
    drop(entered);
    let config = Config::from_process().map_err(|error| (2, error))?;
    let common = &config.common;
    let filter = common.log_filter.as_deref();
    ifo::telemetry::start_log(common.log_format, filter, common.verbosity)
        .map_err(|error| (2, error))?;
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
    Ok((config, signals, runtime))
}
