//! Describes the resources to clients: discovery and `OpenAPI`.

pub mod discovery;
pub mod openapi;

#[cfg(test)]
mod tests;
