//! Tests the certificates of the server with real certificates and a simulated cluster.

mod authorities;
mod bundles;
mod own_certificate;
mod secrets;
mod serving_files;
mod tls;
