//! Tests the certificates of the server with real certificates and a simulated cluster.

mod ca_bundle;
mod own_ca;
mod own_certificate;
mod secrets;
mod serving_files;
mod tls_settings;
