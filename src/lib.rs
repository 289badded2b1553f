//! The ifo server, a Kubernetes aggregated API server. It serves the operations that are in flight
//! in a cluster, such as migrations. Administrators can see from them whether the cluster is safe
//! to touch.
//!
//! ```text
//! On the leader:
//!
//! OperationRuleSet ──watch──▶ rules ──RuleBook(generation)──▶ observe: one feed per target
//!                                                               │ raw JSON of one object
//!                                                               ▼
//!                                            ifo_engine::detect, with ifo_cel
//!                                                               ▼
//!                                        tracking: ifo_engine::track ──▶ index
//!                                                                         │ Reader, Cursor
//!                                 persist: custom resources (optional) ◀──┘
//!
//! On a follower:
//!
//! operations of the leader ──list, watch──▶ replicate: mirror ──▶ index
//!
//! On every replica:
//!
//! Lease ◀──read, renew──▶ replicate: election ──▶ this replica leads or follows
//!
//! requests ──▶ auth ──▶ serve: discovery, OpenAPI, get, list, watch ◀──Reader, Cursor── index
//! ```
//!
//! A target is a resource that is watched for rule sets. A feed is the watch of one target, and a
//! rule book contains the compiled rule sets of one target.
//!
//! The code that the server shares with the kubectl plugin is in `crates/`: [`ifo_api`] (wire
//! types), [`ifo_cel`] (CEL), [`ifo_engine`] (rules, detection, the tracker) and [`ifo_client`]
//! (connections to a cluster, manifests from files).
//!
//! The modules are declared in the order in which data passes through them. [`app`] and the shared
//! modules come last. The modules exchange messages and types of [`ifo_api`]. Only [`app`] uses
//! every module.

pub mod rules;

pub mod observe;

pub mod detection;

pub mod tracking;

pub mod index;

pub mod serve;

pub mod auth;

pub mod certs;

pub mod replicate;

pub mod persist;

pub mod restore;

pub mod demo;

pub mod app;
pub mod clock;
pub mod config;
#[cfg(any(fuzzing, test))]
pub mod fuzzing;
pub mod telemetry;
