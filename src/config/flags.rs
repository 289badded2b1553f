//! The command-line flags, with the types and the checks of their values.

// The lint wants backticks around names in doc comments. `--help` prints the doc comments of this
// file, and would also print the backticks.
#![allow(clippy::doc_markdown)]

use crate::telemetry::LogFormat;
use aggregated_apiserver::certs::{TlsCipherSuite, TlsSettings, TlsVersion};
use aggregated_apiserver::serve::Limits;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::fmt::Display;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Maximum duration of any setting: one year. A longer duration is invalid, because a deadline that
/// is computed from it could overflow.
const MAX_DURATION: Duration = Duration::from_hours(8760);

/// Minimum of the intervals at which the server repeats work. With a shorter interval, this work
/// would block the server.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// The accepted lease durations. A user may write a wrong duration into the Lease, such as one year. If
/// the leader then crashed, no replica would lead for a year. So each replica replaces a duration
/// outside this range by the nearest end of the range.
pub const LEASE_DURATIONS: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_mins(1);

/// Maximum value of any limit, such as the number of concurrent watches. A larger value is invalid.
const MAX_NUMBER: usize = 1_000_000;

/// Shows which operations are in flight in a cluster, as Kubernetes objects.
#[derive(Debug, Parser)]
#[command(
    name = "ifo-apiserver",
    version,
    args_override_self = true,
    args_conflicts_with_subcommands = true
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Option<CliCommand>,
    #[command(flatten)]
    pub(super) serve: Serve,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Subcommand)]
pub(super) enum CliCommand {
    /// Serves built-in scenes or a folder of manifests on loopback; needs no cluster.
    Demo {
        #[command(flatten)]
        demo: Demo,
        #[command(flatten)]
        common: Box<Common>,
    },
}

/// The settings that do not depend on the mode.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Time without a detection after which an operation ends [env: DEBOUNCE_THRESHOLD] [default: 30s, in the demo 5s]
    #[arg(long = "debounce-threshold", value_name = "DURATION", value_parser = duration, default_value = "30s", hide_default_value = true)]
    pub debounce: Duration,
    /// Longest time after a start for which requests for operations get a 429 because not all resources have been listed; after this time, the operations detected so far are served [env: INFORMER_SYNC_TIMEOUT] [default: 30s]
    #[arg(long = "informer-sync-timeout", value_name = "DURATION", value_parser = duration, default_value = "30s", hide_default_value = true)]
    pub sync_timeout: Duration,
    /// Time limit of one request to the kube-apiserver; watches have none [env: K8S_API_TIMEOUT] [default: 30s]
    #[arg(long = "k8s-api-timeout", value_name = "DURATION", value_parser = positive_duration, default_value = "30s", hide_default_value = true)]
    pub api_timeout: Duration,
    /// Interval at which rules that depend on the time are evaluated again [env: K8S_INFORMER_RESYNC] [default: 30s]
    #[arg(long = "k8s-informer-resync", value_name = "DURATION", value_parser = interval, default_value = "30s", hide_default_value = true)]
    pub resync: Duration,
    /// Interval at which a target (the resource that a rule set names) is looked up or watched again after a failure [env: REQUEUE_INTERVAL] [default: 60s]
    #[arg(long = "requeue-interval", value_name = "DURATION", value_parser = interval, default_value = "60s", hide_default_value = true)]
    pub requeue: Duration,
    /// Keep completed operations, within the limits of --retain-for and --retain-max [env: RETAIN_COMPLETED_IFOS] [default: false]
    #[arg(long = "retain-completed-ifos", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value = "false", require_equals = true, hide_default_value = true, action = clap::ArgAction::Set)]
    pub retain: bool,
    /// Time for which completed operations are kept [env: RETAIN_FOR] [default: 24h]
    #[arg(long = "retain-for", value_name = "DURATION", value_parser = positive_duration, default_value = "24h", hide_default_value = true)]
    pub retain_for: Duration,
    /// Number of completed operations that are kept, the newest ones [env: RETAIN_MAX] [default: 10000]
    #[arg(long = "retain-max", value_name = "NUMBER", value_parser = number(1..=MAX_NUMBER), default_value = "10000", hide_default_value = true)]
    pub retain_max: usize,
    /// Number of records of completed operations that are kept; 0 keeps none [env: HISTORY_MAX] [default: 10000]
    #[arg(long = "history-max", value_name = "NUMBER", value_parser = number(0..=MAX_NUMBER), default_value = "10000", hide_default_value = true)]
    pub history_max: usize,
    /// Largest number of concurrent requests, without watches; one client can have half of them [env: MAX_REQUESTS_INFLIGHT] [default: 100]
    #[arg(long = "max-requests-inflight", value_name = "NUMBER", value_parser = number(1..=MAX_NUMBER), default_value = "100", hide_default_value = true)]
    pub max_requests_inflight: usize,
    /// Largest number of concurrent watches; a tenth is reserved for administrators and controllers [env: MAX_WATCHES] [default: 500]
    #[arg(long = "max-watches", value_name = "NUMBER", value_parser = number(1..=MAX_NUMBER), default_value = "500", hide_default_value = true)]
    pub max_watches: usize,
    /// Largest number of concurrent watches of one user, or of all ServiceAccounts of one namespace [env: MAX_WATCHES_PER_USER] [default: 125]
    #[arg(long = "max-watches-per-user", value_name = "NUMBER", value_parser = number(1..=MAX_NUMBER), default_value = "125", hide_default_value = true)]
    pub max_watches_per_user: usize,
    /// Largest number of concurrent connections, at least 8; if all are used, a quarter is for new connections and probes, and three eighths are for the front proxy and replicas [env: MAX_CONNECTIONS] [default: 256]
    #[arg(long = "max-connections", value_name = "NUMBER", value_parser = number(Limits::LEAST_CONNECTIONS..=MAX_NUMBER), default_value = "256", hide_default_value = true)]
    pub max_connections: usize,
    /// Namespace in which operations on cluster-scoped subjects are shown
    #[arg(long, value_name = "NAMESPACE", value_parser = dns_label, default_value = "ifo-system")]
    pub cluster_operations_namespace: String,
    /// Allow rule sets to watch core Secrets; a rule can copy their contents into operations, which more users can read
    #[arg(long = "allow-secrets-target")]
    pub allow_secrets: bool,
    /// Log format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// Log filter from the environment variable RUST_LOG. None if the variable is not set
    #[arg(skip)]
    pub log_filter: Option<String>,
    /// Log verbosity: 1 logs each request, 2 to 4 also debug messages, 5 and more everything; RUST_LOG overrides it
    #[arg(short = 'v', long = "v", value_name = "LEVEL", value_parser = number(0..=u8::MAX), default_value_t = 0)]
    pub verbosity: u8,
    /// The version that /version and the metrics show
    #[arg(skip)]
    pub version: String,
}

impl Common {
    /// Returns the limits of concurrent requests, watches and connections.
    pub fn limits(&self) -> Limits {
        Limits {
            requests: self.max_requests_inflight,
            watches: self.max_watches,
            watches_per_user: self.max_watches_per_user,
            connections: self.max_connections,
        }
    }
}

/// The settings of a server that runs for a cluster.
#[derive(Args, Clone, Debug)]
pub struct Serve {
    /// Path to a kubeconfig [default: the file in KUBECONFIG, or ~/.kube/config; without such a file, the ServiceAccount of the Pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Address to listen on [default: ::, which serves IPv4 and IPv6, or 0.0.0.0 on a host without IPv6]
    #[arg(long, value_name = "ADDRESS", value_parser = ip_address)]
    pub bind_address: Option<IpAddr>,
    /// Port to listen on; 0 takes a free one
    #[arg(long, value_name = "PORT", value_parser = number(0..=u16::MAX), default_value_t = 6443)]
    pub secure_port: u16,
    /// Serving certificate (PEM, with intermediates) [default: the server creates its own CA and certificate]
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Private key of the serving certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Lowest version of TLS that clients may use
    #[arg(long, value_name = "VERSION", value_enum, default_value_t)]
    pub tls_min_version: TlsVersion,
    /// Cipher suites of TLS 1.2 that clients may use, separated by commas [default: all]. Those of TLS 1.3 are always allowed
    #[arg(long, value_name = "SUITES", value_enum, value_delimiter = ',')]
    pub tls_cipher_suites: Vec<TlsCipherSuite>,
    /// Namespace of this server, with the server's Service and the Secret of its CA
    #[arg(long, value_name = "NAMESPACE", value_parser = dns_label, default_value = "ifo-system")]
    pub namespace: String,
    /// Name of the Service to which the APIService points
    #[arg(long, value_name = "NAME", value_parser = dns_label, default_value = "ifo-apiserver")]
    pub service_name: String,
    /// Port of this Service
    #[arg(long, value_name = "PORT", value_parser = number(1..=u16::MAX), default_value_t = 443)]
    pub service_port: u16,
    /// Create the APIService when the leader is ready, and repair it. Without this flag, an administrator creates it
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value = "false", require_equals = true)]
    pub register: bool,
    /// Annotation of the APIService that --register creates; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = annotation)]
    pub register_annotation: Vec<(String, String)>,
    /// Elect a leader among several replicas: the leader detects operations, and the other replicas mirror them. Without this flag, the server runs alone
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value = "false", require_equals = true)]
    pub leader_elect: bool,
    /// The time settings of the election
    #[command(flatten)]
    pub timing: Timing,
    /// Address at which the other replicas reach this one [default: the address in POD_IP, with the port of this server]
    #[arg(long, value_name = "HOST:PORT", value_parser = host_port)]
    pub advertise_address: Option<String>,
    /// File with a token for the audience ifo-apiserver, with which this replica authenticates to the others; required with --leader-elect
    #[arg(long, value_name = "FILE")]
    pub peer_token_file: Option<PathBuf>,
    /// Serve the admission webhook, which refuses requests while something is in flight, and keep the caBundle in the ValidatingWebhookConfiguration ifo-gate up to date
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value = "false", require_equals = true)]
    pub gate_webhook: bool,
    /// Operations that a user sees, in the namespaces in which the user may list operations: all of them (all), or those on objects that the user may get (subject)
    #[arg(long, value_name = "MODE", value_enum, default_value_t)]
    pub visibility: Visibility,
    /// Write the port of the server to this file when it listens
    #[arg(long, value_name = "FILE")]
    pub port_file: Option<PathBuf>,
    /// Also write operations as custom resources (crs) or not (off); crs needs their CRD [env: PERSISTENCE] [default: off]
    #[arg(
        long,
        value_name = "MODE",
        value_enum,
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub persistence: Persistence,
    /// IP address of the Pod from the environment variable POD_IP
    #[arg(skip)]
    pub pod_ip: Option<IpAddr>,
    /// UID of the Pod from the environment variable POD_UID. If the container restarts, the new
    /// process finds this UID in the Lease, and can take over the Lease at once
    #[arg(skip)]
    pub pod_uid: Option<String>,
}

impl Serve {
    /// Returns the accepted TLS versions and cipher suites.
    pub fn tls(&self) -> TlsSettings {
        TlsSettings {
            min_version: self.tls_min_version,
            cipher_suites: self.tls_cipher_suites.clone(),
        }
    }
}

/// The time settings of the election. The names and meanings are the same as in Kubernetes' own
/// components.
#[derive(Args, Clone, Copy, Debug)]
#[group(skip)]
pub struct Timing {
    /// Time without a renewal of the Lease after which another replica becomes the leader
    #[arg(long = "leader-elect-lease-duration", value_name = "DURATION", value_parser = positive_duration, default_value = "8s")]
    pub lease_duration: Duration,
    /// Time for which the leader tries to renew its Lease before it stops leading
    #[arg(long = "leader-elect-renew-deadline", value_name = "DURATION", value_parser = positive_duration, default_value = "5s")]
    pub renew_deadline: Duration,
    /// Interval at which the leader renews the Lease and the other replicas read it
    #[arg(long = "leader-elect-retry-period", value_name = "DURATION", value_parser = positive_duration, default_value = "1s")]
    pub retry_period: Duration,
}

#[cfg(test)]
impl Default for Timing {
    fn default() -> Self {
        Cli::parse_from(["ifo-apiserver"]).serve.timing
    }
}

/// Whether the server also writes operations to the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Persistence {
    /// The server writes no operations. They are only in its memory.
    #[default]
    Off,
    /// The server writes operations as custom resources (persistence mode).
    Crs,
}

/// The operations that a user sees, in the namespaces in which the user may list operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Visibility {
    /// All operations.
    #[default]
    All,
    /// The operations on objects that the user may get.
    Subject,
}

/// The settings of the demo.
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub struct Demo {
    /// Folder of manifests to evaluate instead of the built-in scenes; changes of its files are followed
    #[arg(long, value_name = "DIR")]
    pub objects: Option<PathBuf>,
    /// Folder of OperationRuleSets to use instead of the built-in ones
    #[arg(long, value_name = "DIR")]
    pub rules: Option<PathBuf>,
    /// Port to listen on, on the loopback address; 0 takes a free one
    #[arg(long, value_name = "PORT", value_parser = number(0..=u16::MAX), default_value_t = 0)]
    pub secure_port: u16,
    /// File to which the kubeconfig is written
    #[arg(long, value_name = "FILE", default_value = "ifo-demo.kubeconfig")]
    pub kubeconfig_out: PathBuf,
}

fn duration(text: &str) -> Result<Duration, &'static str> {
    let duration = ifo_api::duration::parse(text).filter(|duration| *duration <= MAX_DURATION);
    duration
        .ok_or("expected a duration such as 30s, 5m, 1h30m or a number of seconds, at most a year")
}

fn positive_duration(text: &str) -> Result<Duration, &'static str> {
    match duration(text)? {
        Duration::ZERO => Err("expected a duration above zero"),
        duration => Ok(duration),
    }
}

fn interval(text: &str) -> Result<Duration, &'static str> {
    let interval = duration(text)?;
    (interval >= MIN_INTERVAL)
        .then_some(interval)
        .ok_or("expected a duration of at least 100ms")
}

/// Returns a parser of a number in a range.
fn number<T: Clone + Display + FromStr + PartialOrd + Send + Sync>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let (least, most) = (range.start(), range.end());
        number.ok_or_else(|| format!("expected a number from {least} to {most}"))
    }
}

/// Parses the name of a namespace or of a Service.
fn dns_label(text: &str) -> Result<String, &'static str> {
    if ifo_api::labels::is_subdomain(text) && !text.contains('.') && text.len() <= 63 {
        Ok(text.to_owned())
    } else {
        Err("expected a name of at most 63 lower-case letters, digits and '-'")
    }
}

pub(super) fn ip_address(text: &str) -> Result<IpAddr, &'static str> {
    text.parse().map_err(|_| "expected an IP address")
}

fn annotation(text: &str) -> Result<(String, String), &'static str> {
    let parts = text.split_once('=');
    let parts = parts.filter(|(key, _)| ifo_api::labels::is_key(key));
    let (key, value) = parts.ok_or("expected KEY=VALUE, with the key of an annotation")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn host_port(text: &str) -> Result<String, &'static str> {
    let authority = text.parse::<http::uri::Authority>();
    if authority.is_ok_and(|it| it.port_u16().is_some() && !it.host().is_empty()) {
        Ok(text.to_owned())
    } else {
        Err("expected HOST:PORT")
    }
}
