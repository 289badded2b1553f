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
pub const MEANT: &[Meant] = &[
    Meant {
        name: "managedFields",
        reason: "nobody manages fields of what cannot be written",
        requests: &["…"],
        at: &["…metadata.managedFields"],
        live: "(nothing)",
        custom: "",
    },
    Meant {
        name: "generation",
        reason: "it counts changes of the spec, and that of an operation is fixed; without a \
                 subresource for the status, a custom resource counts changes of that too",
        requests: &["…"],
        at: &["…metadata.generation"],
        live: "1",
        custom: "",
    },
    Meant {
        name: "description of the column Name",
        reason: "nobody gives an operation its name, so it is told where that comes from",
        requests: &["…as=Table…", "…as=\"Table\"…"],
        at: &["…columnDefinitions[0].description"],
        live: "a hash of its identity and start",
        custom: "Is required when creating resources",
    },
    Meant {
        name: "percent sign",
        reason: "the column Progress shows 45%; a custom resource's columns show values as they are",
        requests: &["…as=Table…", "…as=\"Table\"…"],
        at: &["…cells[6]"],
        live: "%",
        custom: "",
    },
];
