//! Reads flags and environment variables into one checked [`Config`]. A flag overrides its
//! variable. No other module reads the environment.

mod flags;
#[cfg(test)]
mod tests;
mod values;

pub use flags::Cli;

use crate::certs::TlsSettings;
use crate::replicate::Timing;
use crate::serve::Limits;
use crate::telemetry::LogFormat;
use clap::Parser as _;
use flags::CliCommand;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use values::{common, election, namespace, persistence, pod_ip};

/// The configuration of the process.
#[derive(Clone, Debug)]
pub struct Config {
    /// The settings of both modes.
    pub common: Common,
    /// The mode: in a cluster, or the demo.
    pub mode: Mode,
}

/// The mode: in a cluster, or the demo.
#[derive(Clone, Debug)]
pub enum Mode {
    /// In a cluster, or for a cluster.
    Serve(Serve),
    /// The demo, without a cluster.
    Demo(Demo),
}

/// The settings of both modes.
#[derive(Clone, Debug)]
pub struct Common {
    /// Time for which an operation must not be detected before it ends.
    pub debounce: Duration,
    /// Longest time for which data requests are refused before the first sync is complete.
    pub sync_timeout: Duration,
    /// Time limit of one request to the kube-apiserver.
    pub api_timeout: Duration,
    /// Interval at which rules that depend on the time are evaluated again.
    pub resync: Duration,
    /// Interval at which invalid targets and failed watches are retried.
    pub requeue: Duration,
    /// True if completed operations are retained.
    pub retain: bool,
    /// Time for which completed operations are retained.
    pub retain_for: Duration,
    /// Number of completed operations that are retained, the newest ones.
    pub retain_max: usize,
    /// Limits of concurrent requests, watches and connections.
    pub limits: Limits,
    /// Namespace in which operations on cluster-scoped subjects are shown.
    pub cluster_operations_namespace: String,
    /// True if rule sets may watch core Secrets.
    pub allow_secrets: bool,
    /// Log format.
    pub log_format: LogFormat,
    /// Log filter from `RUST_LOG`.
    pub log_filter: Option<String>,
    /// Log verbosity, used if there is no filter.
    pub verbosity: u8,
    /// The version that `/version` and the metrics show.
    pub version: String,
}

/// The settings of the server in or for a cluster.
#[derive(Clone, Debug)]
pub struct Serve {
    /// Path to a kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// Address to listen on. None means all addresses of the host.
    pub bind_address: Option<IpAddr>,
    /// Port to listen on.
    pub secure_port: u16,
    /// Paths of the serving certificate and its key. None means that the server issues its own.
    pub tls_files: Option<(PathBuf, PathBuf)>,
    /// Accepted versions and cipher suites of TLS.
    pub tls: TlsSettings,
    /// Namespace of the server.
    pub namespace: String,
    /// Name of its Service.
    pub service_name: String,
    /// File to which the port is written.
    pub port_file: Option<PathBuf>,
    /// Address of the Pod.
    pub pod_ip: Option<IpAddr>,
    /// Settings of the leader election. None for a server that runs alone.
    pub election: Option<Box<ElectionConfig>>,
    /// Persistence mode.
    pub persistence: Persistence,
}

/// Settings of the leader election among several replicas.
#[derive(Clone, Debug)]
pub struct ElectionConfig {
    /// Periods of the election.
    pub timing: Timing,
    /// `HOST:PORT` at which the other replicas reach this one. None means the address of the Pod
    /// and the port of this server.
    pub advertise_address: Option<String>,
    /// File with the token with which this replica authenticates to the others.
    pub peer_token_file: Option<PathBuf>,
    /// UID of the Pod. With it, a restarted container of the Pod can take over its own Lease at
    /// once.
    pub pod_uid: Option<String>,
}

/// Selects if operations are also written to the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Persistence {
    /// Nothing is written.
    #[default]
    Off,
    /// Operations are written as custom resources.
    Crs,
}

/// The settings of the demo.
#[derive(Clone, Debug)]
pub struct Demo {
    /// Folder of manifests. None means the built-in scenes.
    pub objects: Option<PathBuf>,
    /// Folder of rule sets. None means the built-in ones.
    pub rules: Option<PathBuf>,
    /// Port to listen on.
    pub secure_port: u16,
    /// File to which the kubeconfig is written.
    pub kubeconfig_out: PathBuf,
}

/// The value of a flag or variable is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value:?} is not valid: {accepted}")]
pub struct ConfigError {
    /// The variable or flag.
    pub name: String,
    /// The invalid value.
    pub value: String,
    /// The accepted values.
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

impl Config {
    /// Reads the command line and the environment of the process.
    pub fn from_process() -> Result<Self, ConfigError> {
        let cli = Cli::try_parse().unwrap_or_else(|error| {
            if !error.use_stderr() {
                error.exit(); // Help was asked for.
            }
            // The first line is the error. The lines after it are hints, which our other errors do
            // not have.
            let text = error.to_string();
            let what = text.split("\n\n").next().unwrap_or_default();
            let line = what.split_whitespace().collect::<Vec<_>>().join(" ");
            eprintln!("ifo-apiserver: {}", line.trim_start_matches("error: "));
            std::process::exit(2);
        });
        // A value that is not UTF-8 is reported as invalid instead of ignored.
        let env = |name: &str| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
        Self::from(cli, env)
    }

    /// Checks parsed flags with the environment that is given.
    pub fn from(cli: Cli, env: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        Ok(match cli.command {
            Some(CliCommand::Demo(demo)) => Self {
                // The default debounce period is shorter, because a person watches the demo.
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
                    tls: TlsSettings {
                        min_version: cli.serve.tls_min_version,
                        cipher_suites: cli.serve.tls_cipher_suites,
                    },
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
