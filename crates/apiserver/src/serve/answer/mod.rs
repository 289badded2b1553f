//! Creates answers: encoded objects, errors, documents, and compressed bodies.

pub mod document;
pub mod encoder;
pub mod error_status;
pub mod gzip;
pub mod responses;
