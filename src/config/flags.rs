//! The command-line flags. `validate_settings.rs` checks their values.

// The lint wants backticks around names in doc comments. `--help` prints the doc comments of this
// file, and would also print the backticks.
#![allow(clippy::doc_markdown)]

use aggregated_apiserver::certs::{TlsCipherSuite, TlsVersion};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::IpAddr;
use std::path::PathBuf;

/// Shows which operations are in flight in a cluster, as Kubernetes objects.
#[derive(Debug, Parser)]
#[command(
    name = "ifo-apiserver",
    disable_version_flag = true,
    args_conflicts_with_subcommands = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub(super) command: Option<CliCommand>,
    #[command(flatten)]
    pub(super) serve: ServeFlags,
}

#[derive(Debug, Subcommand)]
pub(super) enum CliCommand {
    /// Serves built-in scenes or a folder of manifests on loopback; needs no cluster.
    Demo(DemoFlags),
}

#[derive(Debug, Args)]
pub(super) struct CommonFlags {
    /// Time without a detection after which an operation ends [env: DEBOUNCE_THRESHOLD] [default: 30s, in the demo 5s]
    #[arg(long, value_name = "DURATION")]
    pub(super) debounce_threshold: Option<String>,
    /// Longest time after a start for which requests for operations get a 429 because not all resources have been listed; after this time, the operations detected so far are served [env: INFORMER_SYNC_TIMEOUT] [default: 30s]
    #[arg(long, value_name = "DURATION")]
    pub(super) informer_sync_timeout: Option<String>,
    /// Time limit of one request to the kube-apiserver; watches have none [env: K8S_API_TIMEOUT] [default: 30s]
    #[arg(long, value_name = "DURATION")]
    pub(super) k8s_api_timeout: Option<String>,
    /// Interval at which rules that depend on the time are evaluated again [env: K8S_INFORMER_RESYNC] [default: 30s]
    #[arg(long, value_name = "DURATION")]
    pub(super) k8s_informer_resync: Option<String>,
    /// Interval at which a target (the resource that a rule set names) is looked up or watched again after a failure [env: REQUEUE_INTERVAL] [default: 60s]
    #[arg(long, value_name = "DURATION")]
    pub(super) requeue_interval: Option<String>,
    /// Keep completed operations, within the limits of --retain-for and --retain-max [env: RETAIN_COMPLETED_IFOS] [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(super) retain_completed_ifos: Option<String>,
    /// Time for which completed operations are kept [env: RETAIN_FOR] [default: 24h]
    #[arg(long, value_name = "DURATION")]
    pub(super) retain_for: Option<String>,
    /// Number of completed operations that are kept, the newest ones [env: RETAIN_MAX] [default: 10000]
    #[arg(long, value_name = "NUMBER")]
    pub(super) retain_max: Option<String>,
    /// Number of records of completed operations that are kept; 0 keeps none [env: HISTORY_MAX] [default: 10000]
    #[arg(long, value_name = "NUMBER")]
    pub(super) history_max: Option<String>,
    /// Largest number of concurrent requests, without watches; one client can have half of them [env: MAX_REQUESTS_INFLIGHT] [default: 100]
    #[arg(long, value_name = "NUMBER")]
    pub(super) max_requests_inflight: Option<String>,
    /// Largest number of concurrent watches; a tenth is reserved for administrators and controllers [env: MAX_WATCHES] [default: 500]
    #[arg(long, value_name = "NUMBER")]
    pub(super) max_watches: Option<String>,
    /// Largest number of concurrent watches of one user, or of all ServiceAccounts of one namespace [env: MAX_WATCHES_PER_USER] [default: 125]
    #[arg(long, value_name = "NUMBER")]
    pub(super) max_watches_per_user: Option<String>,
    /// Largest number of concurrent connections, at least 8; a quarter is reserved for new connections and probes, an eighth for the front proxy [env: MAX_CONNECTIONS] [default: 256]
    #[arg(long, value_name = "NUMBER")]
    pub(super) max_connections: Option<String>,
    /// Namespace in which operations on cluster-scoped subjects are shown
    #[arg(long, value_name = "NAMESPACE", default_value = "ifo-system")]
    pub(super) cluster_operations_namespace: String,
    /// Allow rule sets to watch core Secrets; a rule can copy their contents into operations, which more users can read
    #[arg(long)]
    pub(super) allow_secrets_target: bool,
    /// Log format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormatFlag::Text)]
    pub(super) log_format: LogFormatFlag,
    /// Log verbosity: 1 logs each request, 2 to 4 also debug messages, 5 and more everything; RUST_LOG overrides it
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 0)]
    pub(super) verbosity: u8,
}

#[derive(Debug, Args)]
pub(super) struct ServeFlags {
    /// Path to a kubeconfig [default: the file in KUBECONFIG, or ~/.kube/config; without such a file, the ServiceAccount of the Pod]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Address to listen on [default: ::, which serves IPv4 and IPv6, or 0.0.0.0 on a host without IPv6]
    #[arg(long, value_name = "ADDRESS")]
    pub(super) bind_address: Option<IpAddr>,
    /// Port to listen on; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 6443)]
    pub(super) secure_port: u16,
    /// Serving certificate (PEM, with intermediates) [default: the server creates its own CA and certificate]
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub(super) tls_cert_file: Option<PathBuf>,
    /// Private key of the serving certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub(super) tls_private_key_file: Option<PathBuf>,
    /// Lowest version of TLS that clients may use
    #[arg(long, value_name = "VERSION", value_enum, default_value_t)]
    pub(super) tls_min_version: TlsVersion,
    /// Cipher suites of TLS 1.2 that clients may use, separated by commas [default: all]. Those of TLS 1.3 are always allowed
    #[arg(long, value_name = "SUITES", value_enum, value_delimiter = ',')]
    pub(super) tls_cipher_suites: Vec<TlsCipherSuite>,
    /// Namespace of this server, with the server's Service and the Secret of its CA
    #[arg(long, value_name = "NAMESPACE", default_value = "ifo-system")]
    pub(super) namespace: String,
    /// Name of the Service to which the APIService points
    #[arg(long, value_name = "NAME", default_value = "ifo-apiserver")]
    pub(super) service_name: String,
    /// Port of this Service
    #[arg(long, value_name = "PORT", default_value_t = 443)]
    pub(super) service_port: u16,
    /// Create the APIService when the leader is ready, and repair it. Without this flag, an administrator creates it
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value = "false", require_equals = true)]
    pub(super) register: bool,
    /// Annotation of the APIService that --register creates; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) register_annotation: Vec<String>,
    /// Elect a leader among several replicas: the leader detects operations, and the other replicas mirror them. Without this flag, the server runs alone
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value = "false", require_equals = true)]
    pub(super) leader_elect: bool,
    /// Time without a renewal of the Lease after which another replica becomes the leader
    #[arg(long, value_name = "DURATION", default_value = "8s")]
    pub(super) leader_elect_lease_duration: String,
    /// Time for which the leader tries to renew its Lease before it stops leading
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    pub(super) leader_elect_renew_deadline: String,
    /// Interval at which the leader renews the Lease and the other replicas read it
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    pub(super) leader_elect_retry_period: String,
    /// Address at which the other replicas reach this one [default: the address in POD_IP, with the port of this server]
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) advertise_address: Option<String>,
    /// File with a token for the audience ifo-apiserver, with which this replica authenticates to the others [default: the client certificate of the kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub(super) peer_token_file: Option<PathBuf>,
    /// Serve the admission webhook, which refuses requests while something is in flight, and keep the caBundle in the ValidatingWebhookConfiguration ifo-gate up to date
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value = "false", require_equals = true)]
    pub(super) gate_webhook: bool,
    /// Write the port of the server to this file when it listens
    #[arg(long, value_name = "FILE")]
    pub(super) port_file: Option<PathBuf>,
    /// Also write operations as custom resources (crs) or not (off); crs needs their CRD [env: PERSISTENCE] [default: off]
    #[arg(long, value_name = "MODE")]
    pub(super) persistence: Option<String>,
    #[command(flatten)]
    pub(super) common: CommonFlags,
}

#[derive(Debug, Args)]
pub(super) struct DemoFlags {
    /// Folder of manifests to evaluate instead of the built-in scenes; changes of its files are followed
    #[arg(long, value_name = "DIR")]
    pub(super) objects: Option<PathBuf>,
    /// Folder of OperationRuleSets to use instead of the built-in ones
    #[arg(long, value_name = "DIR")]
    pub(super) rules: Option<PathBuf>,
    /// Port to listen on, on the loopback address; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(super) secure_port: u16,
    /// File to which the kubeconfig is written
    #[arg(long, value_name = "FILE", default_value = "ifo-demo.kubeconfig")]
    pub(super) kubeconfig_out: PathBuf,
    #[command(flatten)]
    pub(super) common: CommonFlags,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum LogFormatFlag {
    Text,
    Json,
}
