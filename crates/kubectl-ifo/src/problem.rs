//! Defines [`Problem`], the errors that commands report. An error message is one line, and says
//! what the user can do, if possible.

use ifo_api::{GROUP, LIVE_GROUP, live, record, ruleset};
use ifo_client::error_text::{chain, one_line};
use kube::config::KubeconfigError;
use std::time::Duration;

/// Address of the repository. Callers append a path for links and for `kubectl apply -k`.
pub(super) const HOME: &str = "https://github.com/kubevirt/ifo/";

/// Text in a 429 answer that `ifo-apiserver` sends until it has listed all resources that rule sets
/// watch. A 429 answer of the kube-apiserver contains the same text while its storage is being
/// initialized.
const INITIALIZING: &str = "initializing";

/// The reason why a command failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Problem {
    /// There is no kubeconfig, or it is invalid.
    #[error(
        "{0}; choose another kubeconfig with --kubeconfig or KUBECONFIG, or another context with --context"
    )]
    Config(String),
    /// The address of the proxy is invalid, or `NO_PROXY` (the list of hosts that need no proxy) is
    /// invalid.
    #[error(
        "{0}; correct proxy-url in the kubeconfig, or HTTPS_PROXY, HTTP_PROXY or NO_PROXY in \
         the environment"
    )]
    Proxy(String),
    /// The kube-apiserver does not answer, or its certificate cannot be verified.
    #[error("cannot reach the cluster at {server}: {why}; check --context and the network")]
    Unreachable {
        /// Address of the kube-apiserver.
        server: String,
        /// The error, with its causes.
        why: String,
    },
    /// The cluster has not answered within `--request-timeout`.
    #[error("no answer from the cluster within {} s; set a longer time with --request-timeout", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The server does not accept a value in the request (400).
    #[error("{0}")]
    Invalid(String),
    /// The credentials are not valid (401).
    #[error(
        "the cluster does not accept your credentials; log in again, or name others with --user or --token"
    )]
    Unauthorized,
    /// RBAC does not allow the request (403).
    #[error(
        "you may not {verb} {resource}{}; {}",
        place(resource, .namespace.as_deref()), grant_advice(resource, .namespace.as_deref(), user.as_deref())
    )]
    Forbidden {
        /// The refused verb.
        verb: &'static str,
        /// The requested resource, as `plural.group`.
        resource: String,
        /// The requested namespace. None if the request was for the whole cluster.
        namespace: Option<String>,
        /// The refused user. None if the answer does not contain the name of the user.
        user: Option<String>,
    },
    /// The cluster serves operations neither with the API of `ifo-apiserver` nor as custom
    /// resources.
    #[error(
        "this cluster serves no operations: neither {plural}.{LIVE_GROUP} nor {plural}.{GROUP}; \
         how to install and register the server: {HOME}blob/HEAD/docs/installation.md",
        plural = live::PLURAL
    )]
    NotInstalled,
    /// The server does not serve records of completed operations, or the files of `--from` do not
    /// contain such records.
    #[error("{}", no_records(.files.as_deref()))]
    NoRecords {
        /// The path of the files that the command reads instead of a cluster. None for a cluster.
        files: Option<String>,
    },
    /// `ifo-apiserver` has not yet listed all resources that rule sets watch (429).
    #[error(
        "the server has not listed all watched resources yet; try again in a moment, or see the state of the rule sets: kubectl get {}.{GROUP}",
        ruleset::PLURAL
    )]
    NotSynced,
    /// The kube-apiserver or `ifo-apiserver` refuses the request because of load (429).
    #[error("the cluster is overloaded ({0}); try again in a moment")]
    Busy(String),
    /// The API of `ifo-apiserver` is registered, but `ifo-apiserver` does not answer (503).
    #[error(
        "the server is not available ({0}); see: kubectl get apiservice v1alpha1.{LIVE_GROUP}, \
         kubectl get pods -n ifo-system"
    )]
    Unavailable(String),
    /// The continue token of a list expired (410).
    #[error("the continue token of the list expired; try again")]
    Expired,
    /// The operation or another requested object does not exist (404).
    #[error("{0}")]
    NotFound(String),
    /// An argument or the value of a flag is invalid.
    #[error("{0}")]
    Usage(String),
    /// The reader of standard output has closed the pipe.
    #[error("the reader of the output has closed the pipe")]
    Closed,
    /// Any other error.
    #[error("{0}")]
    Other(String),
}

fn no_records(files: Option<&str>) -> String {
    let resource = format!("{}.{LIVE_GROUP}", record::PLURAL);
    match files {
        Some(path) => format!("{path} does not contain {resource}"),
        None => format!(
            "this cluster does not serve {resource}, because its release of ifo-apiserver is older \
             than this plugin; update ifo-apiserver, or list the completed operations that it \
             retains: kubectl ifo -A"
        ),
    }
}

fn place(resource: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!(" in namespace {namespace}"),
        None if resource == LIVE_RESOURCE => {
            " in all namespaces (to read a single namespace, name it with -n)".to_owned()
        }
        // No namespace was requested, so the message names none.
        None => String::new(),
    }
}

/// The resource of the operations that `ifo-apiserver` serves. The ClusterRole `ifo-view`, which is
/// installed with the server, grants the right to read this resource.
const LIVE_RESOURCE: &str = "inflightoperations.live.ifo.kubevirt.io";

/// Returns the advice for the user: the ClusterRole that an administrator can bind to `user`.
pub(super) fn grant_advice(resource: &str, namespace: Option<&str>, user: Option<&str>) -> String {
    let user = user.map_or_else(|| "you".to_owned(), |it| format!("{it:?}"));
    let place = namespace.map_or_else(String::new, |it| format!(" in namespace {it}"));
    // `ifo-view` is installed with the server.
    let what = if resource == LIVE_RESOURCE {
        "the ClusterRole ifo-view".to_owned()
    } else {
        format!("a ClusterRole with the verbs get, list and watch of {resource}")
    };
    format!("an administrator can bind {what} to {user}{place}")
}

/// Extracts the user from a message of the kube-apiserver: `… User "jane" cannot list …`. The
/// kube-apiserver escapes quotes in the name as in JSON. Returns None if the name contains escapes
/// that JSON does not have, or if the message does not contain a user.
fn refused_user(message: &str) -> Option<String> {
    let quoted = &message[message.find("User \"")? + "User ".len()..];
    let mut names = serde_json::Deserializer::from_str(quoted).into_iter::<String>();
    let user = names.next()?.ok()?;
    (!user.is_empty()).then_some(user)
}

impl Problem {
    /// Returns the reason in a few words, for a part of a message.
    pub(super) fn short(&self) -> String {
        match self {
            Self::Forbidden { verb, resource, .. } => format!("you may not {verb} {resource}"),
            problem => problem.to_string(),
        }
    }

    /// Converts an error of kube's client. `server` is the address of the kube-apiserver. `verb`,
    /// `resource` and `namespace` describe the failed request.
    pub(super) fn of(
        error: &kube::Error,
        server: &str,
        verb: &'static str,
        resource: &str,
        namespace: Option<&str>,
    ) -> Self {
        let kube::Error::Api(status) = error else {
            return Self::Unreachable {
                server: server.to_owned(),
                why: unreachable(error),
            };
        };
        match status.code {
            400 => Self::Invalid(one_line(&status.message)),
            401 => Self::Unauthorized,
            403 => Self::Forbidden {
                verb,
                resource: resource.to_owned(),
                namespace: namespace.map(str::to_owned),
                user: refused_user(&status.message),
            },
            404 => Self::NotFound(status.message.clone()),
            410 => Self::Expired,
            429 if status.message.contains(INITIALIZING) => Self::NotSynced,
            429 => Self::Busy(one_line(&status.message)),
            503 => Self::Unavailable(one_line(&status.message)),
            _ => Self::Other(one_line(&status.message)),
        }
    }
}

/// Returns the message for a request that the cluster did not answer. For an error of the HTTP
/// client, this is the message of the innermost error, because the outer errors only add names of
/// libraries. For another error, the message contains all causes.
fn unreachable(error: &kube::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    if matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_)) {
        while let Some(inner) = cause.source() {
            cause = inner;
        }
    }
    chain(cause)
}

impl From<KubeconfigError> for Problem {
    fn from(error: KubeconfigError) -> Self {
        Self::Config(match &error {
            // The kube crate parses the environment variables for proxies, even if the plugin does
            // not use the result. So an invalid variable causes this error.
            KubeconfigError::ParseProxyUrl(_) | KubeconfigError::ParseNoProxy(_) => {
                return Self::Proxy(chain(&error));
            }
            // The message of the error quotes lines of the file, which can contain tokens. So only
            // the position is printed.
            KubeconfigError::Parse(error) => match error.location() {
                Some(at) => format!(
                    "the kubeconfig cannot be read: line {}, column {} is invalid",
                    at.line(),
                    at.column()
                ),
                None => "the kubeconfig cannot be read".to_owned(),
            },
            KubeconfigError::CurrentContextNotSet => {
                "the kubeconfig has no current context".to_owned()
            }
            KubeconfigError::LoadContext(name) => format!("there is no context {name:?}"),
            KubeconfigError::LoadClusterOfContext(name) => format!("there is no cluster {name:?}"),
            KubeconfigError::ParseClusterUrl(why) => {
                format!("the address of the cluster is not valid: {why}")
            }
            KubeconfigError::ReadConfig(why, path) => {
                format!("cannot read {}: {why}", path.display())
            }
            error => chain(error),
        })
    }
}
