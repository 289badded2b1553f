//! Flags and environment, flags first, become one checked [`Config`]. The environment
//! is read nowhere else.

mod flags;
#[cfg(test)]
mod tests;

pub use flags::Cli;

use crate::replicate::Timing;
use crate::serve::Limits;
use crate::telemetry::LogFormat;
use clap::Parser as _;
use flags::{CliCommand, CommonFlags, LogFormatFlag, ServeFlags};
use ifo_api::duration;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Longest duration that is accepted: a year. Deadlines stay far from overflow.
const MAX_DURATION: Duration = Duration::from_hours(8760);

/// Largest number that a limit may be: no machine has so many of anything.
const MAX_NUMBER: usize = 1_000_000;

/// Completed operations that are kept if nothing else is said: some 30 MB of them.
const RETAIN_MAX: usize = 10_000;

/// What the process is to do.
#[derive(Clone, Debug)]
pub struct Config {
    /// What both ways of running share.
    pub common: Common,
    /// In a cluster, or without one.
    pub mode: Mode,
}

/// In a cluster, or without one.
#[derive(Clone, Debug)]
pub enum Mode {
    /// In or for a cluster.
    Serve(Serve),
    /// Without one.
    Demo(Demo),
}

/// What both ways of running share.
#[derive(Clone, Debug)]
pub struct Common {
    /// How long an operation must not be detected before it is over.
    pub debounce: Duration,
    /// How long data requests are put off before the first sync.
    pub sync_timeout: Duration,
    /// Time limit of single calls to the kube-apiserver.
    pub api_timeout: Duration,
    /// How often what depends on the time is evaluated again.
    pub resync: Duration,
    /// How often invalid targets and failed watches are tried again.
    pub requeue: Duration,
    /// Whether completed operations stay.
    pub retain: bool,
    /// For how long they stay.
    pub retain_for: Duration,
    /// How many of them stay, the newest.
    pub retain_max: usize,
    /// How much is served at once.
    pub limits: Limits,
    /// Where operations on cluster-scoped subjects are shown.
    pub cluster_operations_namespace: String,
    /// Whether core secrets may be a target.
    pub allow_secrets: bool,
    /// Log format.
    pub log_format: LogFormat,
    /// Log filter from `RUST_LOG`.
    pub log_filter: Option<String>,
    /// Log verbosity, when there is no filter.
    pub verbosity: u8,
    /// What `/version` and the metrics show.
    pub version: String,
}

/// Serving in or for a cluster.
#[derive(Clone, Debug)]
pub struct Serve {
    /// Path to a kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// Address to listen on; None is all addresses of the host.
    pub bind_address: Option<IpAddr>,
    /// Port to listen on.
    pub secure_port: u16,
    /// Serving certificate and key, when given.
    pub tls_files: Option<(PathBuf, PathBuf)>,
    /// Namespace of the server.
    pub namespace: String,
    /// Name of its Service.
    pub service_name: String,
    /// Where to write the port.
    pub port_file: Option<PathBuf>,
    /// The address of the Pod.
    pub pod_ip: Option<IpAddr>,
    /// How a leader is elected; None for a server that runs alone.
    pub election: Option<Box<ElectionConfig>>,
    /// Whether operations are also written as custom resources.
    pub persistence: Persistence,
}

/// How a leader is elected among several replicas.
#[derive(Clone, Debug)]
pub struct ElectionConfig {
    /// The periods of the election.
    pub timing: Timing,
    /// `HOST:PORT` where the other replicas reach this one. None: the address of the Pod, and
    /// the port that is listened on.
    pub advertise_address: Option<String>,
    /// The file with the token by which the other replicas know this one.
    pub peer_token_file: Option<PathBuf>,
    /// The UID of the Pod. A restarted container of it may take its own Lease over at once.
    pub pod_uid: Option<String>,
}

/// Whether operations are also written to the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Persistence {
    /// Nothing is written.
    #[default]
    Off,
    /// As custom resources.
    Crs,
}

/// Serving without a cluster.
#[derive(Clone, Debug)]
pub struct Demo {
    /// Folder of manifests; None is the built-in scenes.
    pub objects: Option<PathBuf>,
    /// Folder of rule sets; None is the built-in ones.
    pub rules: Option<PathBuf>,
    /// Port to listen on.
    pub secure_port: u16,
    /// Where to write the kubeconfig.
    pub kubeconfig_out: PathBuf,
}

/// A value that is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value:?} is not valid: {accepted}")]
pub struct ConfigError {
    /// The variable or flag.
    pub name: String,
    /// What it holds.
    pub value: String,
    /// What would be accepted.
    pub accepted: &'static str,
}

impl ConfigError {
    fn new(name: impl Into<String>, value: impl Into<String>, accepted: &'static str) -> Self {
        Self {
            name: name.into(),
            value: value.into(),
            accepted,
        }
    }
}

const DURATION: &str =
    "expected a duration such as 30s, 5m, 1h30m or a number of seconds, at most a year";
const POSITIVE: &str =
    "expected a duration above zero such as 30s, 5m, 1h30m or a number of seconds, at most a year";
const NUMBER: &str = "expected a whole number from 1 to 1000000";
const CONNECTIONS: &str = "expected a whole number from 8 to 1000000";
const PERSISTENCE: &str = "expected crs or off";
const ADDRESS: &str = "expected an IP address";
const HOST_PORT: &str = "expected HOST:PORT";
const ADVERTISE: &str = "expected HOST:PORT with --leader-elect, since POD_IP, which it is made from by default, is not set";
const BOOL: &str = "expected true or false";
const NAMESPACE: &str = "expected the name of a namespace (lower-case letters, digits and '-')";

impl Config {
    /// From the command line and the environment of the process.
    pub fn from_process() -> Result<Self, ConfigError> {
        let cli = Cli::try_parse().unwrap_or_else(|error| {
            if !error.use_stderr() {
                error.exit(); // Help was asked for.
            }
            // One line, as for every other bad value: what stands before the hints.
            let text = error.to_string();
            let what = text.split("\n\n").next().unwrap_or_default();
            let line = what.split_whitespace().collect::<Vec<_>>().join(" ");
            eprintln!("ifo-apiserver: {}", line.trim_start_matches("error: "));
            std::process::exit(2);
        });
        // What is no text is not dropped for a default: it is no valid value either.
        let env = |name: &str| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
        Self::from(cli, env)
    }

    /// From parsed flags and any environment.
    pub fn from(cli: Cli, env: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        Ok(match cli.command {
            Some(CliCommand::Demo(demo)) => Self {
                // Shows what it can do: a demo is watched by somebody who does not wait.
                common: common(demo.common, &env, "5s")?,
                mode: Mode::Demo(Demo {
                    objects: demo.objects,
                    rules: demo.rules,
                    secure_port: demo.secure_port,
                    kubeconfig_out: demo.kubeconfig_out,
                }),
            },
            None => Self {
                mode: Mode::Serve(Serve {
                    election: election(&cli.serve, &env)?,
                    kubeconfig: cli.serve.kubeconfig,
                    bind_address: cli.serve.bind_address,
                    secure_port: cli.serve.secure_port,
                    tls_files: cli.serve.tls_cert_file.zip(cli.serve.tls_private_key_file),
                    namespace: namespace("--namespace", cli.serve.namespace)?,
                    service_name: cli.serve.service_name,
                    port_file: cli.serve.port_file,
                    persistence: persistence(cli.serve.persistence, &env)?,
                    pod_ip: pod_ip(&env)?,
                }),
                common: common(cli.serve.common, &env, "30s")?,
            },
        })
    }
}

fn election(
    flags: &ServeFlags,
    env: &impl Fn(&str) -> Option<String>,
) -> Result<Option<Box<ElectionConfig>>, ConfigError> {
    let flags_of = [
        (
            "--leader-elect-lease-duration",
            &flags.leader_elect_lease_duration,
        ),
        (
            "--leader-elect-renew-deadline",
            &flags.leader_elect_renew_deadline,
        ),
        (
            "--leader-elect-retry-period",
            &flags.leader_elect_retry_period,
        ),
    ];
    let mut periods = [Duration::ZERO; 3];
    for (period, (name, value)) in periods.iter_mut().zip(flags_of) {
        *period = duration::parse(value)
            .filter(|period| *period <= MAX_DURATION)
            .ok_or_else(|| ConfigError::new(name, value, POSITIVE))?;
    }
    let [lease_duration, renew_deadline, retry_period] = periods;
    let timing = Timing {
        lease_duration,
        renew_deadline,
        retry_period,
    };
    timing.check().map_err(|(flag, accepted)| {
        let given = flags_of.iter().find(|(name, _)| *name == flag);
        ConfigError::new(flag, given.map_or("", |(_, value)| value), accepted)
    })?;
    let address = flags.advertise_address.as_deref();
    let is_host_port = |address: &str| {
        let authority = address.parse::<http::uri::Authority>();
        authority.is_ok_and(|it| it.port_u16().is_some() && !it.host().is_empty())
    };
    if let Some(address) = address.filter(|address| !is_host_port(address)) {
        return Err(ConfigError::new("--advertise-address", address, HOST_PORT));
    }
    if !flags.leader_elect {
        return Ok(None);
    }
    if address.is_none() && pod_ip(env)?.is_none() {
        return Err(ConfigError::new("--advertise-address", "", ADVERTISE));
    }
    Ok(Some(Box::new(ElectionConfig {
        timing,
        advertise_address: address.map(str::to_owned),
        peer_token_file: flags.peer_token_file.clone(),
        pod_uid: given(env, "POD_UID"),
    })))
}

fn persistence(
    flag: Option<String>,
    env: &impl Fn(&str) -> Option<String>,
) -> Result<Persistence, ConfigError> {
    let (name, value) = setting(flag, env, "PERSISTENCE", "off");
    match value.as_str() {
        "off" => Ok(Persistence::Off),
        "crs" => Ok(Persistence::Crs),
        _ => Err(ConfigError::new(name, value, PERSISTENCE)),
    }
}

fn common(
    flags: CommonFlags,
    env: &impl Fn(&str) -> Option<String>,
    default_debounce: &str,
) -> Result<Common, ConfigError> {
    let duration = |flag: Option<String>, name: &str, default: &str, zero: bool| {
        let (name, value) = setting(flag, env, name, default);
        match duration::parse(&value) {
            Some(duration) if duration <= MAX_DURATION && (zero || !duration.is_zero()) => {
                Ok(duration)
            }
            _ => {
                let accepted = if zero { DURATION } else { POSITIVE };
                Err(ConfigError::new(name, value, accepted))
            }
        }
    };
    let (name, value) = setting(
        flags.retain_completed_ifos,
        env,
        "RETAIN_COMPLETED_IFOS",
        "false",
    );
    let retain = match value.as_str() {
        "true" => true,
        "false" => false,
        _ => return Err(ConfigError::new(name, value, BOOL)),
    };
    let number = |flag, name, default| at_least(1, flag, env, name, default);
    let limits = Limits::default();
    let limits = Limits {
        requests: number(
            flags.max_requests_inflight,
            "MAX_REQUESTS_INFLIGHT",
            limits.requests,
        )?,
        watches: number(flags.max_watches, "MAX_WATCHES", limits.watches)?,
        watches_per_user: number(
            flags.max_watches_per_user,
            "MAX_WATCHES_PER_USER",
            limits.watches_per_user,
        )?,
        connections: at_least(
            Limits::LEAST_CONNECTIONS,
            flags.max_connections,
            env,
            "MAX_CONNECTIONS",
            limits.connections,
        )?,
    };
    Ok(Common {
        limits,
        debounce: duration(
            flags.debounce_threshold,
            "DEBOUNCE_THRESHOLD",
            default_debounce,
            true,
        )?,
        sync_timeout: duration(
            flags.informer_sync_timeout,
            "INFORMER_SYNC_TIMEOUT",
            "30s",
            true,
        )?,
        api_timeout: duration(flags.k8s_api_timeout, "K8S_API_TIMEOUT", "30s", false)?,
        resync: duration(
            flags.k8s_informer_resync,
            "K8S_INFORMER_RESYNC",
            "30s",
            false,
        )?,
        requeue: duration(flags.requeue_interval, "REQUEUE_INTERVAL", "60s", false)?,
        retain,
        retain_for: duration(flags.retain_for, "RETAIN_FOR", "24h", false)?,
        retain_max: number(flags.retain_max, "RETAIN_MAX", RETAIN_MAX)?,
        cluster_operations_namespace: namespace(
            "--cluster-operations-namespace",
            flags.cluster_operations_namespace,
        )?,
        allow_secrets: flags.allow_secrets_target,
        log_format: match flags.log_format {
            LogFormatFlag::Text => LogFormat::Text,
            LogFormatFlag::Json => LogFormat::Json,
        },
        log_filter: given(env, "RUST_LOG"),
        verbosity: flags.verbosity,
        version: given(env, "OPERATOR_VERSION")
            .unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned()),
    })
}

/// The flag, else the variable if it is not empty, else the default; with the name
/// under which an error speaks of it.
fn setting(
    flag: Option<String>,
    env: &impl Fn(&str) -> Option<String>,
    name: &str,
    default: &str,
) -> (String, String) {
    if let Some(value) = flag {
        (
            format!("--{}", name.to_lowercase().replace('_', "-")),
            value,
        )
    } else {
        let value = given(env, name);
        (name.to_owned(), value.unwrap_or_else(|| default.to_owned()))
    }
}

/// A number from `least` to [`MAX_NUMBER`].
fn at_least(
    least: usize,
    flag: Option<String>,
    env: &impl Fn(&str) -> Option<String>,
    name: &str,
    default: usize,
) -> Result<usize, ConfigError> {
    let (name, value) = setting(flag, env, name, &default.to_string());
    match value.parse() {
        Ok(number) if (least..=MAX_NUMBER).contains(&number) => Ok(number),
        _ => {
            let accepted = if least == 1 { NUMBER } else { CONNECTIONS };
            Err(ConfigError::new(name, value, accepted))
        }
    }
}

fn pod_ip(env: &impl Fn(&str) -> Option<String>) -> Result<Option<IpAddr>, ConfigError> {
    let given = given(env, "POD_IP");
    let parsed = given.map(|value| {
        let address = value.parse();
        address.map_err(|_| ConfigError::new("POD_IP", value, ADDRESS))
    });
    parsed.transpose()
}

/// The variable, unless it is empty.
fn given(env: &impl Fn(&str) -> Option<String>, name: &str) -> Option<String> {
    env(name).filter(|value| !value.is_empty())
}

fn namespace(name: &str, value: String) -> Result<String, ConfigError> {
    // A namespace is a DNS label: a subdomain without dots, of at most 63 characters.
    if ifo_api::labels::is_subdomain(&value) && !value.contains('.') && value.len() <= 63 {
        Ok(value)
    } else {
        Err(ConfigError::new(name, value, NAMESPACE))
    }
}
