//! The flags, as they are typed. What they mean is not looked at here.

// What is documented here is what `--help` prints, where backticks would only be noise.
#![allow(clippy::doc_markdown)]

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
    /// How long an operation must not be detected before it is over [env: DEBOUNCE_THRESHOLD] [default: 30s, in the demo 5s]
    #[arg(long, value_name = "DURATION")]
    pub(super) debounce_threshold: Option<String>,
    /// How long to answer data requests with 429 before serving what is there [env: INFORMER_SYNC_TIMEOUT] [default: 30s]
    #[arg(long, value_name = "DURATION")]
    pub(super) informer_sync_timeout: Option<String>,
    /// Time limit of single calls to the kube-apiserver, not of watches [env: K8S_API_TIMEOUT] [default: 30s]
    #[arg(long, value_name = "DURATION")]
    pub(super) k8s_api_timeout: Option<String>,
    /// How often what depends on the time is evaluated again [env: K8S_INFORMER_RESYNC] [default: 30s]
    #[arg(long, value_name = "DURATION")]
    pub(super) k8s_informer_resync: Option<String>,
    /// How often invalid targets and failed watches are tried again [env: REQUEUE_INTERVAL] [default: 60s]
    #[arg(long, value_name = "DURATION")]
    pub(super) requeue_interval: Option<String>,
    /// Keep completed operations, for as long and as many as the next two say [env: RETAIN_COMPLETED_IFOS] [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(super) retain_completed_ifos: Option<String>,
    /// How long completed operations are kept [env: RETAIN_FOR] [default: 24h]
    #[arg(long, value_name = "DURATION")]
    pub(super) retain_for: Option<String>,
    /// How many completed operations are kept, the newest [env: RETAIN_MAX] [default: 10000]
    #[arg(long, value_name = "NUMBER")]
    pub(super) retain_max: Option<String>,
    /// Requests other than watches that are answered at once; one user may have half of them [env: MAX_REQUESTS_INFLIGHT] [default: 100]
    #[arg(long, value_name = "NUMBER")]
    pub(super) max_requests_inflight: Option<String>,
    /// Watches at once [env: MAX_WATCHES] [default: 500]
    #[arg(long, value_name = "NUMBER")]
    pub(super) max_watches: Option<String>,
    /// Watches of one user at once [env: MAX_WATCHES_PER_USER] [default: 125]
    #[arg(long, value_name = "NUMBER")]
    pub(super) max_watches_per_user: Option<String>,
    /// Connections at once, at least 8; a quarter is kept for new connections and probes, an eighth for the front proxy [env: MAX_CONNECTIONS] [default: 256]
    #[arg(long, value_name = "NUMBER")]
    pub(super) max_connections: Option<String>,
    /// Namespace in which operations on cluster-scoped subjects are shown
    #[arg(long, value_name = "NAMESPACE", default_value = "ifo-system")]
    pub(super) cluster_operations_namespace: String,
    /// Allow rule sets to watch core secrets, whose contents they can copy into what others may read
    #[arg(long)]
    pub(super) allow_secrets_target: bool,
    /// Log format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormatFlag::Text)]
    pub(super) log_format: LogFormatFlag,
    /// Log verbosity: 1 logs each request, 2 to 4 debug messages too, 5 and more everything; RUST_LOG overrides it
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 0)]
    pub(super) verbosity: u8,
}

#[derive(Debug, Args)]
pub(super) struct ServeFlags {
    /// Path to a kubeconfig; in a pod its service account is used
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Address to listen on [default: ::, which serves IPv4 and IPv6, or 0.0.0.0 on a host without IPv6]
    #[arg(long, value_name = "ADDRESS")]
    pub(super) bind_address: Option<IpAddr>,
    /// Port to listen on; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 6443)]
    pub(super) secure_port: u16,
    /// Serving certificate (PEM, with intermediates); issued by an own CA if not given
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub(super) tls_cert_file: Option<PathBuf>,
    /// Private key of the serving certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub(super) tls_private_key_file: Option<PathBuf>,
    /// Namespace of this server: of its Service and of the Secret with its CA
    #[arg(long, value_name = "NAMESPACE", default_value = "ifo-system")]
    pub(super) namespace: String,
    /// Name of the Service that the APIService points at
    #[arg(long, value_name = "NAME", default_value = "ifo-apiserver")]
    pub(super) service_name: String,
    /// Elect a leader among several replicas: it detects operations, the others mirror it. Without this flag a server runs alone
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value = "false", require_equals = true)]
    pub(super) leader_elect: bool,
    /// How long a Lease must not change before another replica takes it over
    #[arg(long, value_name = "DURATION", default_value = "8s")]
    pub(super) leader_elect_lease_duration: String,
    /// How long the leader tries to renew its Lease before it stops leading
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    pub(super) leader_elect_renew_deadline: String,
    /// Time between two renewals, and between two looks at the Lease
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    pub(super) leader_elect_retry_period: String,
    /// Where the other replicas reach this one [default: the address in POD_IP, and the port that is listened on]
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) advertise_address: Option<String>,
    /// A token for the audience ifo-apiserver, by which the other replicas know this one [default: the client certificate of the kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub(super) peer_token_file: Option<PathBuf>,
    /// Write the port that is listened on to this file, once it is
    #[arg(long, value_name = "FILE")]
    pub(super) port_file: Option<PathBuf>,
    /// Whether operations are also written as custom resources (crs), which needs their CRD, or not (off) [env: PERSISTENCE] [default: off]
    #[arg(long, value_name = "MODE")]
    pub(super) persistence: Option<String>,
    #[command(flatten)]
    pub(super) common: CommonFlags,
}

#[derive(Debug, Args)]
pub(super) struct DemoFlags {
    /// Folder of manifests to evaluate, followed as its files change, instead of the built-in scenes
    #[arg(long, value_name = "DIR")]
    pub(super) objects: Option<PathBuf>,
    /// Folder of OperationRuleSets, instead of the built-in ones
    #[arg(long, value_name = "DIR")]
    pub(super) rules: Option<PathBuf>,
    /// Port to listen on, on loopback; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(super) secure_port: u16,
    /// Where to write the kubeconfig
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
