//! Defines [`Problem`], the errors that commands report. An error message is one line, and says
//! what the user can do, if possible.

use ifo_api::{GROUP, LIVE_GROUP, live};
use ifo_client::error_text::{chain, one_line};
use kube::config::KubeconfigError;
use std::time::Duration;

/// Address of the repository. Messages append the path of a page.
pub(crate) const HOME: &str = "https://github.com/kubevirt/ifo/";

/// The end of the message that no rule set is installed.
pub(crate) const INSTALL_HINT: &str = "; to install all rule sets of this release: \
     kubectl apply -k https://github.com/kubevirt/ifo/rules";

/// The reason why a command failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    /// The kubeconfig is missing or invalid, or the address of a proxy is invalid.
    #[error("{0}; see --kubeconfig, --context, KUBECONFIG and HTTPS_PROXY")]
    Config(String),
    /// The kube-apiserver does not answer, or its certificate cannot be verified. Contains the
    /// address of the kube-apiserver and the error.
    #[error("cannot reach the cluster at {0}; check --context and the network")]
    Unreachable(String),
    /// The cluster has not answered within `--request-timeout`.
    #[error("no answer from the cluster within {} s; set a longer time with --request-timeout", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The credentials are not valid (401).
    #[error(
        "the cluster does not accept your credentials; log in again, or name others with --user or --token"
    )]
    Unauthorized,
    /// RBAC does not allow the request (403). Contains the message of the server, which names the
    /// user, the resource and the namespace.
    #[error("{message}{}", grant_advice(.message))]
    Forbidden { message: String },
    /// The cluster serves operations neither with the API of `ifo-apiserver` nor as custom
    /// resources.
    #[error(
        "this cluster serves no operations: neither {plural}.{LIVE_GROUP} nor {plural}.{GROUP}; \
         how to install and register the server: {HOME}blob/HEAD/docs/installation.md",
        plural = live::PLURAL
    )]
    NotInstalled,
    /// The kube-apiserver or `ifo-apiserver` refuses the request because of load, or because
    /// `ifo-apiserver` has not listed all watched resources yet (429).
    #[error("the cluster cannot answer yet ({0}); try again in a moment")]
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

/// Returns the advice for a user who may not read operations. The advice names a ClusterRole that
/// is installed with the server. For other refusals, the advice is empty.
fn grant_advice(refusal: &str) -> &'static str {
    if refusal.starts_with("inflightoperations.live.ifo.kubevirt.io") {
        "; name a namespace that you may read with -n, or ask an administrator to bind the ClusterRole ifo-view"
    } else {
        ""
    }
}

impl Problem {
    /// Converts an error of kube's client. `server` is the address of the kube-apiserver.
    pub(crate) fn of(error: &kube::Error, server: &str) -> Self {
        let kube::Error::Api(status) = error else {
            return Self::Unreachable(format!("{server}: {}", chain(error)));
        };
        let message = one_line(&status.message);
        match status.code {
            401 => Self::Unauthorized,
            403 => Self::Forbidden { message },
            404 => Self::NotFound(message),
            410 => Self::Expired,
            429 => Self::Busy(message),
            503 => Self::Unavailable(message),
            _ => Self::Other(message),
        }
    }
}

impl From<KubeconfigError> for Problem {
    fn from(error: KubeconfigError) -> Self {
        Self::Config(chain(&error))
    }
}
