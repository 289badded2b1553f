//! Tests the certificates of the server with real certificates and a simulated cluster.

mod ca_bundle_updater;
mod own_ca;
mod own_certificate;
mod secrets;
mod serving_files;
mod tls_versions_and_ciphers;
