//! The ifo server. It shows which operations are in flight in a cluster, so that administrators can
//! decide if the cluster is safe to touch.
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
//!                                     persist: custom resources, if wanted ◀┘
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
//! The code that the server shares with the kubectl plugin is in `crates/`: [`ifo_api`] (wire
//! types), [`ifo_cel`] (CEL), [`ifo_engine`] (rules, detection, the tracker) and [`ifo_client`]
//! (connections to a cluster, manifests from files).
//!
//! The modules below are in the order in which data passes through them. They exchange types of
//! [`ifo_api`] and messages. Only [`app`] uses all of them.

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
