//! A library for Kubernetes aggregated API servers. An aggregated API server is a process that
//! serves an API group behind the kube-apiserver. An `APIService` object names the group and the
//! Service of the process. The kube-apiserver then forwards all requests for the group to this
//! Service. So kubectl, informers, RBAC and dashboards work with the resources of the group as with
//! built-in resources.
//!
//! ```text
//! store::Writer::commit ──▶ store ◀──store::Reader, store::Cursor── serve ──▶ HTTP clients
//!                                                                     ▲
//!             auth: who sends the request, and may they send it? ─────┤
//!             certs: the certificate of the server, and its CA ───────┘
//! ```
//!
//! The server holds its objects in memory, and serves them for get, list and watch. The server has
//! no database: clients see the objects that the process commits to the [`store`]. A list contains
//! exactly the objects that existed at its resourceVersion. A watch delivers exactly the changes
//! after its resourceVersion.
//!
//! - [`model`]: the trait that describes the objects.
//! - [`store`]: the objects in memory, with their latest changes.
//! - [`serve`]: HTTP: discovery, OpenAPI, content negotiation, tables, selectors, limits, health.
//! - [`auth`]: delegated authentication and authorization (`TokenReview`, `SubjectAccessReview`).
//! - [`certs`]: TLS with certificates from files, or from a CA that the server creates itself.
//! - [`metrics`]: the metrics of requests, reviews and certificates.
//! - [`clock`]: the time of day and the monotonic clock. Tests can simulate both.
//!
//! The README has an example, and says what the library does not do.

pub mod auth;
pub mod certs;
pub mod clock;
pub mod metrics;
pub mod model;
pub mod serve;
pub mod store;

pub use model::{Model, Typed};

use kube::client::AuthError;
use std::error::Error;

/// Returns the text of the error of a request to the kube-apiserver:
///
/// - If the kube-apiserver refused the request, the text is its message. The text of [`kube::Error`]
///   itself would also contain a debug dump of the whole `Status`.
/// - If the login command of the kubeconfig failed, the text contains neither its output, which can be
///   a token, nor its environment.
fn request_error(error: &kube::Error) -> String {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(cause) = next {
        let login = cause.downcast_ref();
        if let Some(AuthError::AuthExecRun { .. } | AuthError::AuthExecParse(_)) = login {
            return "the login command of the kubeconfig failed".to_owned();
        }
        next = cause.source();
    }
    match error {
        kube::Error::Api(status) if status.message.is_empty() => {
            format!("refused with the code {}", status.code)
        }
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{ExitStatus, Output};

    #[test]
    fn an_error_contains_no_output_of_a_login_command() {
        let login = AuthError::AuthExecRun {
            cmd: "SECRET=1 login".to_owned(),
            out: Box::new(Output {
                status: ExitStatus::default(),
                stdout: b"token".to_vec(),
                stderr: Vec::new(),
            }),
        };
        let error = kube::Error::Service(Box::new(login));
        let text = "the login command of the kubeconfig failed";
        assert_eq!(request_error(&error), text);
    }
}
