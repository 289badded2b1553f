//! What can go wrong between the plugin and a cluster. Each error is one line that says
//! what to do about it.

use ifo_api::{GROUP, LIVE_GROUP, live, ruleset};
use ifo_client::error::{chain, one_line};
use kube::config::KubeconfigError;
use std::time::Duration;

/// What `kubectl apply -k` takes from wherever it runs, with a folder behind it.
pub(super) const HOME: &str = "https://github.com/kubevirt/ifo/";

/// In the message of a 429 that the server answers until it has listed its targets, as
/// kube-apiserver's own storage words it.
const INITIALIZING: &str = "initializing";

/// Why a command cannot do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Problem {
    /// No kubeconfig, or one that does not do.
    #[error("{0}; name another one with --kubeconfig, --context or KUBECONFIG")]
    Config(String),
    /// A proxy that cannot be read, or a list of what needs none.
    #[error(
        "{0}; correct proxy-url in the kubeconfig, or HTTPS_PROXY, HTTP_PROXY or NO_PROXY in \
         the environment"
    )]
    Proxy(String),
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
    /// Something of the request makes no sense to the server (400).
    #[error("{0}")]
    Invalid(String),
    /// The credentials are not valid (401).
    #[error(
        "the cluster does not accept your credentials; log in again, or name others with --user or --token"
    )]
    Unauthorized,
    /// RBAC says no (403).
    #[error(
        "you may not {verb} {resource}{}; {}",
        place(resource, .namespace.as_deref()), grant(resource, .namespace.as_deref(), user.as_deref())
    )]
    Forbidden {
        /// The verb that was refused.
        verb: &'static str,
        /// `plural.group`.
        resource: String,
        /// Where; None is the whole cluster.
        namespace: Option<String>,
        /// Who was refused, if the cluster says so.
        user: Option<String>,
    },
    /// Neither the live API nor the CRs.
    #[error(
        "this cluster serves no operations: neither {plural}.{LIVE_GROUP} nor {plural}.{GROUP}; \
         how to install and register the server: {HOME}blob/HEAD/docs/installation.md",
        plural = live::PLURAL
    )]
    NotInstalled,
    /// The server has not listed its targets yet (429).
    #[error(
        "the server has not synced yet; try again in a moment, or see what it waits for: kubectl get {}.{GROUP}",
        ruleset::PLURAL
    )]
    NotSynced,
    /// kube-apiserver or the server takes no more requests for now (429).
    #[error("the cluster has too much to do ({0}); try again in a moment")]
    Busy(String),
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
    /// Nobody reads standard output any more.
    #[error("nobody reads the output any more")]
    Closed,
    /// Anything else that a server answered.
    #[error("{0}")]
    Other(String),
}

fn place(resource: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!(" in namespace {namespace}"),
        None if resource == LIVE => {
            " in all namespaces (name one with -n, if you may in that one)".to_owned()
        }
        // Of no namespace, so that there is none to name.
        None => String::new(),
    }
}

/// What the `ClusterRole` `ifo-view` is about; it comes with the server.
const LIVE: &str = "inflightoperations.live.ifo.kubevirt.io";

/// What an administrator does to let `user` read `resource`.
pub(super) fn grant(resource: &str, namespace: Option<&str>, user: Option<&str>) -> String {
    let (flag, name) = match user {
        None => ("--user=NAME".to_owned(), "NAME"),
        Some(user) => match user.strip_prefix("system:serviceaccount:") {
            Some(account) => (format!("--serviceaccount={account}"), account),
            None => (format!("--user={user}"), user),
        },
    };
    // A name that no shell takes apart.
    let name = name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-");
    let mut steps = String::new();
    // For anything else a role of its own: that one gives the right to all operations.
    let role = if resource == LIVE {
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

/// Who was refused, as kube-apiserver says it: `… User "jane" cannot list …`.
fn refused(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("User \"")?;
    let (user, _) = rest.split_once('"')?;
    (!user.is_empty()).then(|| user.to_owned())
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

/// Why nobody could be asked. What stands around the first cause of a transport's error
/// are names of this program's parts.
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
            // kube reads them whether or not they count here.
            KubeconfigError::ParseProxyUrl(_) | KubeconfigError::ParseNoProxy(_) => {
                return Self::Proxy(chain(&error));
            }
            // The error shows the lines around, and there are tokens in them.
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

    const RULE_SETS: &str = "operationrulesets.ifo.kubevirt.io";

    #[test]
    fn a_hint_is_a_command_that_gives_the_right() {
        assert_eq!(
            grant(LIVE, Some("team-b"), Some("alice")),
            "have an administrator grant get, list and watch: kubectl create rolebinding \
             ifo-view-alice --clusterrole=ifo-view --user=alice -n team-b"
        );
        let account = grant(RULE_SETS, None, Some("system:serviceaccount:ci:robot"));
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
    fn only_what_has_a_namespace_can_be_asked_for_with_one() {
        assert!(place(LIVE, None).contains("-n"));
        assert_eq!(place(RULE_SETS, None), "");
    }

    #[test]
    fn who_was_refused_is_read_from_the_answer() {
        let message = "operationrulesets.ifo.kubevirt.io is forbidden: User \"jane\" cannot list";
        assert_eq!(refused(message).as_deref(), Some("jane"));
        assert_eq!(refused("no"), None);
    }
}
