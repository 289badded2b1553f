//! Tests of this module, with real certificates and a fake cluster.

mod authorities;
mod bundles;
mod own_certificate;
mod secrets;
mod serving_files;
mod tls;
