//! Differences that are meant, each with its reason. Every request that an entry names
//! must really show it; the test fails on one that does not.

/// A difference that is meant.
pub struct Meant {
    /// What it is, in short.
    pub name: &'static str,
    /// Why it is so.
    pub reason: &'static str,
    /// The requests that show it; `…` stands for anything.
    pub requests: &'static [&'static str],
    /// Where in the answers.
    pub at: &'static [&'static str],
    /// Part of what the live resource has there.
    pub live: &'static str,
    /// Part of what the custom one has there.
    pub custom: &'static str,
}

/// All of them.
pub const MEANT: &[Meant] = &[Meant {
    name: "managedFields",
    reason: "nobody manages fields of what cannot be written",
    requests: &["…"],
    at: &["…metadata.managedFields"],
    live: "(nothing)",
    custom: "",
}];
