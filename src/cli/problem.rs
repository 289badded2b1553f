//! What can go wrong between the plugin and a cluster. Each error is one line that says
//! what to do about it.

use crate::api::{GROUP, LIVE_GROUP, live, ruleset};
use std::time::Duration;

/// Why a command cannot do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Problem {
    /// No kubeconfig, or one that does not do.
    #[error("{0}; name another one with --kubeconfig, --context or KUBECONFIG")]
    Config(String),
    /// Nobody answers, or not in a way that can be trusted.
    #[error("cannot reach the cluster at {server}: {why}; check --context and the network")]
    Unreachable {
        /// Address of the kube-apiserver.
        server: String,
        /// The error, with its causes.
        why: String,
    },
    /// No answer within `--request-timeout`.
    #[error("no answer from the cluster within {} s; give it longer with --request-timeout", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The credentials are not valid (401).
    #[error(
        "the cluster does not accept your credentials; log in again, or name others with --user or --token"
    )]
    Unauthorized,
    /// RBAC says no (403).
    #[error(
        "you may not {verb} {resource}{}; have an administrator grant it: \
         kubectl create {} --verb=get,list,watch --resource={resource}",
        place(.namespace.as_deref()), grant(.namespace.as_deref())
    )]
    Forbidden {
        /// The verb that was refused.
        verb: &'static str,
        /// `plural.group`.
        resource: String,
        /// Where; None is the whole cluster.
        namespace: Option<String>,
    },
    /// Neither the live API nor the CRs.
    #[error(
        "this cluster serves no operations: neither {plural}.{LIVE_GROUP} nor {plural}.{GROUP}; \
         install the server with: kubectl apply -k deploy",
        plural = live::PLURAL
    )]
    NotInstalled,
    /// The server has not listed its targets yet (429).
    #[error(
        "the server has not synced yet; try again in a moment, or see what it waits for: kubectl get {}.{GROUP}",
        ruleset::PLURAL
    )]
    NotSynced,
    /// The live API is registered, and nobody stands behind it (503).
    #[error(
        "the server is not available ({0}); see: kubectl get apiservice v1alpha1.{LIVE_GROUP}, \
         kubectl get pods -n ifo-system"
    )]
    Unavailable(String),
    /// A list that was read in pages is too old to go on with (410).
    #[error("the list changed too much while it was read; try again")]
    Expired,
    /// No such operation.
    #[error("{0}")]
    NotFound(String),
    /// A flag has a value that makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Anything else that a server answered.
    #[error("{0}")]
    Other(String),
}

fn place(namespace: Option<&str>) -> String {
    namespace.map_or_else(
        || " in all namespaces (name one with -n, if you may in that one)".to_owned(),
        |namespace| format!(" in namespace {namespace}"),
    )
}

fn grant(namespace: Option<&str>) -> String {
    namespace.map_or_else(
        || "clusterrole ifo-view".to_owned(),
        |namespace| format!("role ifo-view -n {namespace}"),
    )
}

impl Problem {
    /// What `error` means. `server` is where it was asked, `verb`, `resource` and
    /// `namespace` what for.
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
                why: causes(error),
            };
        };
        match status.code {
            401 => Self::Unauthorized,
            403 => Self::Forbidden {
                verb,
                resource: resource.to_owned(),
                namespace: namespace.map(str::to_owned),
            },
            410 => Self::Expired,
            429 => Self::NotSynced,
            503 => Self::Unavailable(one_line(&status.message)),
            _ => Self::Other(one_line(&status.message)),
        }
    }
}

/// An error with its causes, without what the outer ones repeat.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = inner.source();
    }
    one_line(&text)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl From<kube::config::KubeconfigError> for Problem {
    fn from(error: kube::config::KubeconfigError) -> Self {
        Self::Config(causes(&error))
    }
}
