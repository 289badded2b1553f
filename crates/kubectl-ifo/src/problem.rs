//! The errors of the plugin. Each is one line that also says what the user can do.

use ifo_api::{GROUP, LIVE_GROUP, live, ruleset};
use ifo_client::error::{chain, one_line};
use kube::config::KubeconfigError;
use std::time::Duration;

/// The source for `kubectl apply -k`, to which a folder is appended.
pub(super) const HOME: &str = "https://github.com/kubevirt/ifo/";

/// Part of the message of a 429 that the server sends until it has listed its targets. The storage
/// of the kube-apiserver uses the same words.
const INITIALIZING: &str = "initializing";

/// A command failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Problem {
    /// There is no kubeconfig, or it is invalid.
    #[error("{0}; name another one with --kubeconfig, --context or KUBECONFIG")]
    Config(String),
    /// The proxy setting or the list of exceptions is invalid.
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
    /// No answer within `--request-timeout`.
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
        place(resource, .namespace.as_deref()), grant(resource, .namespace.as_deref(), user.as_deref())
    )]
    Forbidden {
        /// The refused verb.
        verb: &'static str,
        /// `plural.group`.
        resource: String,
        /// The namespace. None for the whole cluster.
        namespace: Option<String>,
        /// The refused user, if the cluster names it.
        user: Option<String>,
    },
    /// The cluster has neither the live API nor the CRDs.
    #[error(
        "this cluster serves no operations: neither {plural}.{LIVE_GROUP} nor {plural}.{GROUP}; \
         how to install and register the server: {HOME}blob/HEAD/docs/installation.md",
        plural = live::PLURAL
    )]
    NotInstalled,
    /// The server has not listed its targets yet (429).
    #[error(
        "the server has not read all targets yet; try again in a moment, or see the state of the rule sets: kubectl get {}.{GROUP}",
        ruleset::PLURAL
    )]
    NotSynced,
    /// The kube-apiserver or the server refuses the request because of load (429).
    #[error("the cluster is overloaded ({0}); try again in a moment")]
    Busy(String),
    /// The live API is registered, but its server does not answer (503).
    #[error(
        "the server is not available ({0}); see: kubectl get apiservice v1alpha1.{LIVE_GROUP}, \
         kubectl get pods -n ifo-system"
    )]
    Unavailable(String),
    /// The continue token of a list expired (410).
    #[error("the continue token of the list expired; try again")]
    Expired,
    /// The operation does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The value of a flag is invalid.
    #[error("{0}")]
    Usage(String),
    /// The reader of standard output has closed it.
    #[error("the reader of the output has closed it")]
    Closed,
    /// Any other answer of a server.
    #[error("{0}")]
    Other(String),
}

fn place(resource: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!(" in namespace {namespace}"),
        None if resource == LIVE_RESOURCE => {
            " in all namespaces (name one with -n, if you may in that one)".to_owned()
        }
        // The request was for all namespaces, so none is named.
        None => String::new(),
    }
}

/// The resources in the `ClusterRole` `ifo-view`, which is installed with the server.
const LIVE_RESOURCE: &str = "inflightoperations.live.ifo.kubevirt.io";

/// Returns the command with which an administrator lets `user` read `resource`.
pub(super) fn grant(resource: &str, namespace: Option<&str>, user: Option<&str>) -> String {
    let (flag, name) = match user {
        None => ("--user=NAME".to_owned(), "NAME"),
        Some(user) => match user.strip_prefix("system:serviceaccount:") {
            Some(account) => (format!("--serviceaccount={account}"), account),
            None => (format!("--user={user}"), user),
        },
    };
    // The name needs no quoting in a shell.
    let name = name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-");
    let mut steps = String::new();
    // Other resources need a separate role, because `ifo-view` allows reading all operations.
    let role = if resource == LIVE_RESOURCE {
        "ifo-view".to_owned()
    } else {
        let role = format!("read-{}", resource.split('.').next().unwrap_or(resource));
        steps = format!(
            "kubectl create clusterrole {role} --verb=get,list,watch --resource={resource} && "
        );
        role
    };
    let (kind, within) = match namespace {
        Some(namespace) => ("rolebinding", format!(" -n {namespace}")),
        None => ("clusterrolebinding", String::new()),
    };
    format!(
        "have an administrator grant get, list and watch: {steps}kubectl create {kind} {role}-{name} \
         --clusterrole={role} {flag}{within}"
    )
}

/// Extracts the user from a message of the kube-apiserver: `… User "jane" cannot list …`.
fn refused(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("User \"")?;
    let (user, _) = rest.split_once('"')?;
    (!user.is_empty()).then(|| user.to_owned())
}

impl Problem {
    /// Converts `error`. `server` is the address. `verb`, `resource` and `namespace` describe the
    /// request.
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
                user: refused(&status.message),
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

/// Returns the cause of a connection error. The texts around the first cause are names of
/// libraries.
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
            // kube reads these variables in any case.
            KubeconfigError::ParseProxyUrl(_) | KubeconfigError::ParseNoProxy(_) => {
                return Self::Proxy(chain(&error));
            }
            // The error quotes lines of the file, which can contain tokens.
            KubeconfigError::Parse(error) => match error.location() {
                Some(at) => format!(
                    "the kubeconfig cannot be read: line {}, column {} is not what should be there",
                    at.line(),
                    at.column()
                ),
                None => "the kubeconfig cannot be read".to_owned(),
            },
            KubeconfigError::ReadConfig(why, path) => {
                format!("cannot read {}: {why}", path.display())
            }
            error => chain(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE_SET_RESOURCE: &str = "operationrulesets.ifo.kubevirt.io";

    #[test]
    fn a_hint_is_a_command_that_grants_the_missing_right() {
        assert_eq!(
            grant(LIVE_RESOURCE, Some("team-b"), Some("alice")),
            "have an administrator grant get, list and watch: kubectl create rolebinding \
             ifo-view-alice --clusterrole=ifo-view --user=alice -n team-b"
        );
        let account = grant(
            RULE_SET_RESOURCE,
            None,
            Some("system:serviceaccount:ci:robot"),
        );
        assert!(
            account.ends_with(
                ": kubectl create clusterrole read-operationrulesets --verb=get,list,watch \
                 --resource=operationrulesets.ifo.kubevirt.io && kubectl create clusterrolebinding \
                 read-operationrulesets-ci-robot --clusterrole=read-operationrulesets \
                 --serviceaccount=ci:robot"
            ),
            "{account}"
        );
        let crs = grant("inflightoperations.ifo.kubevirt.io", None, None);
        assert!(
            crs.contains("--resource=inflightoperations.ifo.kubevirt.io && "),
            "{crs}"
        );
    }

    #[test]
    fn only_namespaced_resources_are_requested_with_a_namespace() {
        assert!(place(LIVE_RESOURCE, None).contains("-n"));
        assert_eq!(place(RULE_SET_RESOURCE, None), "");
    }

    #[test]
    fn the_refused_user_is_parsed_from_the_response() {
        let message = "operationrulesets.ifo.kubevirt.io is forbidden: User \"jane\" cannot list";
        assert_eq!(refused(message).as_deref(), Some("jane"));
        assert_eq!(refused("no"), None);
    }
}
