//! The ifo server, a Kubernetes aggregated API server. It serves the operations that are in flight
//! in a cluster, such as migrations. Administrators use the list of operations to decide whether a
//! change of the cluster is safe now.
//!
//! ```text
//! On the leader:
//!
//! OperationRuleSet ──watch──▶ rules ──RuleBook──▶ detection ◀──raw JSON of one object── ifo_observe
//!                                                     │ ifo_engine::detect, with ifo_cel
//!                                                     ▼
//!         tracker_task: ifo_engine::track, ifo_engine::activity ──▶ index
//!                                                                     │ IndexReader, Cursor
//!                            persist: custom resources (optional) ◀───┘
//!
//! On a follower:
//!
//! objects of the leader's index ──list, watch──▶ replicate: Mirror ──▶ index
//!
//! On every replica:
//!
//! Lease ◀──read, renew──▶ replicate: Election ──▶ this replica leads or follows
//!
//! HTTP requests ──▶ aggregated_apiserver ◀──IndexReader, Cursor── index
//!                   └──▶ resources: columns, fields, completeness, activities, gate webhook
//! ```
//!
//! The terms in the drawing:
//!
//! - A target is a resource that the ifo server watches because a rule set names it. A feed is the
//!   watch of one target, in all namespaces or in one.
//! - A rule book (`RuleBook`) contains all compiled rule sets of one target. Each new rule book of
//!   a target has a higher generation.
//! - The tasks in [`detection`] pass the objects of the feeds to `ifo_engine::detect`, which
//!   evaluates the rules.
//! - The tracker (`ifo_engine::track`) turns the results of the rules into operations.
//! - An activity (`ifo_engine::activity`) is an object that tells whether a namespace, a node, a
//!   component or the cluster is idle.
//! - The index contains all objects in memory: operations, records of completed operations,
//!   activities, and the rule sets that may miss operations. Its objects have the type
//!   [`ifo_api::Object`]. An [`IndexReader`](index::IndexReader) lists them, and a
//!   [`Cursor`](index::Cursor) delivers changes to a watch.
//! - The mirror copies the index of the leader into the index of a follower.
//!
//! The library [`aggregated_apiserver`] in `crates/apiserver` has the parts that any aggregated API
//! server needs: the store that the index uses, HTTP with discovery, get, list and watch,
//! authentication, authorization and certificates.
//!
//! [`ifo_observe`] in `crates/observe` lists and watches the targets.
//!
//! The ifo server shares these crates in `crates/` with the kubectl plugin:
//!
//! - [`ifo_api`]: the types of our API groups, on the wire and in memory.
//! - [`ifo_cel`]: CEL, the expression language of the rules.
//! - [`ifo_engine`]: compiled rules, detection, the tracker and the activities.
//! - [`ifo_client`]: connections to a cluster, and manifests from files.
//!
//! The modules from [`rules`] to [`resources`] are declared in the order in which the data passes
//! through the modules. The other modules follow. [`app`] creates the parts of the server and
//! connects them.

pub mod rules;

pub mod detection;

pub mod tracker_task;

pub mod index;

pub mod resources;

pub mod replicate;

pub mod persist;

pub mod takeover;

pub mod baseline_store;

pub mod demo;

pub mod app;
pub mod clock;
pub mod config;
#[cfg(test)]
mod fuzz_targets;
pub mod telemetry;
