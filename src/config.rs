//! Flags and environment, flags first, become one checked [`Config`]. The environment
//! is read nowhere else.

mod flags;
#[cfg(test)]
mod tests;
mod values;

pub use flags::Cli;

use crate::replicate::Timing;
use crate::serve::Limits;
use crate::telemetry::LogFormat;
use clap::Parser as _;
use flags::CliCommand;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use values::{common, election, namespace, persistence, pod_ip};

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
