//! A library for Kubernetes aggregated API servers. An aggregated API server is a process that the
//! kube-apiserver forwards requests to, because an `APIService` object names the process for an API
//! group. Its resources then behave like built-in resources: kubectl, informers, RBAC and
//! dashboards work with them.
//!
//! ```text
//! store::Writer::commit ──▶ store ◀──store::Reader, store::Cursor── serve ──▶ HTTP clients
//!                                                                     ▲
//!             auth: who sends the request, and may they send it? ─────┤
//!             certs: the certificate of the server, and its CA ───────┘
//! ```
//!
//! The server holds its objects in memory, and serves them for get, list and watch. It has no
//! database: what the process commits to the [`store`] is what clients see. Every list is exact at
//! its resourceVersion, and every watch delivers exactly the changes after its resourceVersion.
//!
//! - [`model`]: the trait that describes the objects.
//! - [`store`]: the objects in memory, with their latest changes.
//! - [`serve`]: HTTP: discovery, OpenAPI, content negotiation, tables, selectors, limits, health.
//! - [`auth`]: delegated authentication and authorization (`TokenReview`, `SubjectAccessReview`).
//! - [`certs`]: TLS with certificates from files or from an own CA.
//! - [`metrics`] and [`clock`].
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
