//! Reads flags and environment variables into one checked [`Config`]. A flag overrides the
//! environment variable of the same setting. The only other module that reads environment variables
//! is [`ifo_observe`], to find the kubeconfig and the proxy for its connections to the cluster.

mod flags;
#[cfg(test)]
mod tests;

pub use flags::{Common, Demo, LEASE_DURATIONS, Persistence, Serve, Timing, Visibility};

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use flags::{Cli, CliCommand};
use std::ffi::OsString;
use std::time::Duration;

/// The environment variables that set the value of a flag. The name of a flag is the name of its
/// variable in lower case, with hyphens.
const FLAG_VARIABLES: [&str; 13] = [
    "DEBOUNCE_THRESHOLD",
    "INFORMER_SYNC_TIMEOUT",
    "K8S_API_TIMEOUT",
    "K8S_INFORMER_RESYNC",
    "REQUEUE_INTERVAL",
    "RETAIN_COMPLETED_IFOS",
    "RETAIN_FOR",
    "RETAIN_MAX",
    "HISTORY_MAX",
    "MAX_REQUESTS_INFLIGHT",
    "MAX_WATCHES",
    "MAX_WATCHES_PER_USER",
    "MAX_CONNECTIONS",
];

/// The configuration of the process.
#[derive(Clone, Debug)]
pub struct Config {
    /// The settings that do not depend on the mode.
    pub common: Common,
    /// The mode, with its settings.
    pub mode: Mode,
}

/// The mode in which the server runs.
#[derive(Clone, Debug)]
pub enum Mode {
    /// The server runs for a cluster, inside or outside of it.
    Serve(Box<Serve>),
    /// The server runs without a cluster. The objects come from recordings or from a folder of
    /// manifests.
    Demo(Demo),
}

impl Config {
    /// Reads the flags and the environment variables of the process. If the user has requested the
    /// help text, prints it and ends the process.
    ///
    /// # Errors
    ///
    /// A flag or a value is invalid. The text of the error is one line.
    pub fn from_process() -> Result<Self, String> {
        let env = |name: &str| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
        Self::from(std::env::args_os(), env).map_err(|error| {
            if !error.use_stderr() {
                error.exit();
            }
            let text = error.to_string();
            let what = text.split("\n\n").next().unwrap_or_default();
            let line = what.split_whitespace().collect::<Vec<_>>().join(" ");
            line.trim_start_matches("error: ").to_owned()
        })
    }

    /// Reads the arguments of the process, which begin with the name of the program. `env` returns
    /// the value of an environment variable.
    ///
    /// # Errors
    ///
    /// A flag or a value is invalid, or the user has requested the help text.
    pub fn from(
        args: impl IntoIterator<Item = impl Into<OsString>>,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, clap::Error> {
        // An empty variable counts as missing.
        let env = |name: &str| env(name).filter(|value| !value.is_empty());
        let mut args: Vec<OsString> = args.into_iter().map(Into::into).collect();
        let is_demo = args.get(1).is_some_and(|arg| arg == "demo");
        let mut add_if_missing = |flag: &str, value: Option<String>| {
            let assigned = format!("{flag}=");
            let is_given =
                |arg: &OsString| arg == flag || arg.to_string_lossy().starts_with(&assigned);
            if let Some(value) = value.filter(|_| !args.iter().any(is_given)) {
                args.push((assigned + &value).into());
            }
        };
        for name in FLAG_VARIABLES {
            let flag = format!("--{}", name.to_lowercase().replace('_', "-"));
            add_if_missing(&flag, env(name));
        }
        if is_demo {
            add_if_missing("--debounce-threshold", Some("5s".to_owned()));
        } else {
            add_if_missing("--persistence", env("PERSISTENCE"));
        }
        let Cli {
            command,
            mut serve,
            mut common,
        } = Cli::try_parse_from(args)?;
        let mode = if let Some(CliCommand::Demo { demo, common: own }) = command {
            common = *own;
            Mode::Demo(demo)
        } else {
            serve.pod_uid = env("POD_UID");
            let ip = |value: String| {
                let name = format!("POD_IP={value:?}");
                flags::ip_address(&value).map_err(|why| invalid(&name, why))
            };
            serve.pod_ip = env("POD_IP").map(ip).transpose()?;
            check_election(&serve)?;
            Mode::Serve(Box::new(serve))
        };
        common.log_filter = env("RUST_LOG");
        common.version = env("OPERATOR_VERSION").unwrap_or(env!("CARGO_PKG_VERSION").to_owned());
        Ok(Self { common, mode })
    }
}

/// Checks the settings of the election. The rules for the time settings are those of Kubernetes'
/// own components. In addition, the lease duration must be in the range [`LEASE_DURATIONS`].
fn check_election(serve: &Serve) -> Result<(), clap::Error> {
    let (lease, deadline, retry) = (
        serve.timing.lease_duration,
        serve.timing.renew_deadline,
        serve.timing.retry_period,
    );
    let refuse = |setting: &str, value: Duration, accepted: &str| {
        let flag = format!("--leader-elect-{setting}={value:?}");
        Err(invalid(&flag, accepted))
    };
    // client-go has the same rule, with its constant `JitterFactor`.
    if deadline <= retry.mul_f64(1.2) {
        let accepted = "expected more than 1.2 times the retry period";
        return refuse("renew-deadline", deadline, accepted);
    }
    if lease <= deadline {
        return refuse(
            "lease-duration",
            lease,
            "expected more than the renew deadline",
        );
    }
    if !LEASE_DURATIONS.contains(&lease) {
        return refuse("lease-duration", lease, "expected a duration from 1s to 1m");
    }
    if serve.leader_elect && serve.peer_token_file.is_none() {
        let accepted = "--leader-elect needs this flag, with the path of a file with a token for \
                        the audience ifo-apiserver";
        return Err(invalid("--peer-token-file", accepted));
    }
    if serve.leader_elect && serve.advertise_address.is_none() && serve.pod_ip.is_none() {
        let accepted = "--leader-elect needs this flag or the environment variable POD_IP";
        return Err(invalid("--advertise-address", accepted));
    }
    Ok(())
}

fn invalid(name: &str, accepted: &str) -> clap::Error {
    let message = format!("{name} is not valid: {accepted}");
    Cli::command().error(ErrorKind::ValueValidation, message)
}
