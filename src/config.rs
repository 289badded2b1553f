//! Reads flags and environment variables into one checked [`Config`]. A flag overrides the
//! environment variable of the same setting. The only other module that reads environment variables
//! is [`crate::observe`], to find the kubeconfig and the proxy for its connections to the cluster.

mod flags;
#[cfg(test)]
mod tests;
mod validate_settings;

pub use flags::Cli;

use crate::replicate::Timing;
use crate::telemetry::LogFormat;
use aggregated_apiserver::certs::TlsSettings;
use aggregated_apiserver::serve::Limits;
use clap::Parser as _;
use flags::CliCommand;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use validate_settings::{common_settings, election, namespace, persistence, pod_ip, registration};

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
    Serve(Serve),
    /// The server runs without a cluster. The objects come from recordings or from a folder of
    /// manifests.
    Demo(Demo),
}

/// The settings that do not depend on the mode.
#[derive(Clone, Debug)]
pub struct Common {
    /// The default debounce period. If no rule has detected an operation for this time, the
    /// operation completes. A rule can set another debounce period.
    pub debounce: Duration,
    /// Maximum time for which a new leader waits until it has listed all targets. A target is a
    /// resource that the server watches because a rule set names it.
    ///
    /// If the leader has not copied the operations of an earlier leader, it refuses requests for
    /// operations with 429 while it waits. After this time, the leader serves the operations that
    /// it has detected so far.
    pub sync_timeout: Duration,
    /// Time limit of one request to the kube-apiserver. Watches have no time limit.
    pub api_timeout: Duration,
    /// Interval at which the server evaluates objects again if their rules read the current time.
    /// In persistence mode, this is also the shortest time between two writes of an operation in
    /// flight ([`PersistSettings::resync`](crate::persist::PersistSettings::resync)).
    pub resync: Duration,
    /// Interval at which the server retries to look up or to watch a target after a failure. In
    /// persistence mode, this is also the longest back-off after failed writes of one operation
    /// ([`PersistSettings::requeue`](crate::persist::PersistSettings::requeue)).
    pub requeue: Duration,
    /// True if completed operations are retained.
    pub retain: bool,
    /// Time for which completed operations are retained. After this time, the server removes them.
    pub retain_for: Duration,
    /// Maximum number of retained completed operations. If there are more, the server removes the
    /// operations that ended first.
    pub retain_max: usize,
    /// Maximum number of records. A record is a short summary of a completed operation. If there
    /// are more, the server removes the records of the operations that ended first. 0 means that
    /// the server keeps no records.
    pub history_max: usize,
    /// Limits of concurrent requests, watches and connections.
    pub limits: Limits,
    /// Namespace in which the server shows operations on cluster-scoped objects.
    pub cluster_operations_namespace: String,
    /// True if rule sets may watch core Secrets.
    pub allow_secrets: bool,
    /// Log format.
    pub log_format: LogFormat,
    /// Log filter from the environment variable `RUST_LOG`. `None` if the variable is not set.
    pub log_filter: Option<String>,
    /// Log verbosity from the flag `-v`. It has no effect if there is a log filter.
    pub verbosity: u8,
    /// The version that `/version` and the metrics show.
    pub version: String,
}

/// The settings of a server that runs for a cluster.
#[derive(Clone, Debug)]
pub struct Serve {
    /// Path to a kubeconfig. `None` means the file in the variable `KUBECONFIG`, or
    /// `~/.kube/config`. Without such a file, the server uses the `ServiceAccount` of its Pod.
    pub kubeconfig: Option<PathBuf>,
    /// Address to listen on. `None` means all addresses of the host.
    pub bind_address: Option<IpAddr>,
    /// Port to listen on.
    pub secure_port: u16,
    /// Paths of the serving certificate and its key. `None` means that the server issues a
    /// certificate with its own CA.
    pub tls_files: Option<(PathBuf, PathBuf)>,
    /// The accepted TLS versions and cipher suites.
    pub tls: TlsSettings,
    /// Namespace of the server.
    pub namespace: String,
    /// Name of the server's Service.
    pub service_name: String,
    /// The `APIService` that the server creates and repairs. `None` means that another client
    /// creates it.
    pub registration: Option<Box<RegistrationConfig>>,
    /// File to which the server writes its port. `None` means that it writes no file.
    pub port_file: Option<PathBuf>,
    /// IP address of the Pod from the environment variable `POD_IP`. It is part of the default of
    /// [`ElectionConfig::advertise_address`].
    pub pod_ip: Option<IpAddr>,
    /// Settings of the leader election. `None` for a server without other replicas.
    pub election: Option<Box<ElectionConfig>>,
    /// Whether the server also writes operations to the cluster.
    pub persistence: Persistence,
    /// True if the server serves the admission webhook, and keeps its CA bundle up to date.
    pub gate_webhook: bool,
}

/// The variable fields of the `APIService` that the server creates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistrationConfig {
    /// Namespace of the server's Service.
    pub namespace: String,
    /// Name of the server's Service.
    pub service_name: String,
    /// Port of the server's Service.
    pub service_port: u16,
    /// Annotations of the `APIService`.
    pub annotations: BTreeMap<String, String>,
}

/// Settings of the leader election among several replicas.
#[derive(Clone, Debug)]
pub struct ElectionConfig {
    /// The durations and intervals of the election.
    pub timing: Timing,
    /// Address (`HOST:PORT`) at which the other replicas reach this replica. `None` means the
    /// address of the Pod and the port of this server.
    pub advertise_address: Option<String>,
    /// File with the token with which this replica authenticates to the other replicas. `None`
    /// means that the replica uses the client certificate in the kubeconfig instead.
    pub peer_token_file: Option<PathBuf>,
    /// UID of the Pod from the environment variable `POD_UID`. If the container restarts, the new
    /// process finds this UID in the Lease. So it knows that its own Pod holds the Lease, and can
    /// take over the Lease at once.
    pub pod_uid: Option<String>,
}

/// Whether the server also writes operations to the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Persistence {
    /// The server writes no operations. They are only in its memory.
    #[default]
    Off,
    /// The server writes operations as custom resources (persistence mode).
    Crs,
}

/// The settings of the demo.
#[derive(Clone, Debug)]
pub struct Demo {
    /// Folder of manifests. `None` means the recorded scenes in the binary.
    pub objects: Option<PathBuf>,
    /// Folder of rule sets. `None` means the rule sets in the binary.
    pub rules: Option<PathBuf>,
    /// Port to listen on.
    pub secure_port: u16,
    /// File to which the demo writes its kubeconfig.
    pub kubeconfig_out: PathBuf,
}

/// The error for an invalid value of a flag or environment variable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value:?} is not valid: {accepted}")]
pub struct ConfigError {
    /// The flag or environment variable.
    pub name: String,
    /// The invalid value.
    pub value: String,
    /// A description of the accepted values.
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
                error.exit(); // The user has requested the help text.
            }
            // clap's text has several paragraphs: the error, and hints. This code prints only the
            // error, in one line. `main` prints a `ConfigError` in the same form.
            let text = error.to_string();
            let what = text.split("\n\n").next().unwrap_or_default();
            let line = what.split_whitespace().collect::<Vec<_>>().join(" ");
            eprintln!("ifo-apiserver: {}", line.trim_start_matches("error: "));
            std::process::exit(2);
        });
        // If a value is not UTF-8, this closure replaces the invalid bytes. So the checks below see
        // the value. `std::env::var` would return an error, and the value would count as missing.
        let env = |name: &str| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
        Self::from(cli, env)
    }

    /// Checks parsed flags, and the environment variables that `env` returns.
    pub fn from(cli: Cli, env: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        Ok(match cli.command {
            Some(CliCommand::Demo(demo)) => Self {
                // In the demo, the default debounce period is 5 s instead of 30 s. So a person who
                // watches the demo does not wait long for the end of an operation.
                common: common_settings(demo.common, &env, "5s")?,
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
                    registration: registration(&cli.serve)?,
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
                    gate_webhook: cli.serve.gate_webhook,
                    persistence: persistence(cli.serve.persistence, &env)?,
                    pod_ip: pod_ip(&env)?,
                }),
                common: common_settings(cli.serve.common, &env, "30s")?,
            },
        })
    }
}
