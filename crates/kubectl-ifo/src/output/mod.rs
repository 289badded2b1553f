//! Prints operations: tables, JSON and YAML, colours, and updates on a terminal.

pub(crate) mod colors;
pub(crate) mod columns;
pub(crate) mod plain_text;
pub(crate) mod print;
pub(crate) mod reprint;
pub(crate) mod sort;
pub(crate) mod terminal_text;
