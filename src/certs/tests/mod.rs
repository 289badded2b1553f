//! Tests of this module, with real certificates and a fake cluster.

mod authorities;
mod bundles;
mod owning;
mod secrets;
mod servings;
