//! Fuzz target for the query of a URI.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| aggregated_apiserver::serve::fuzzing::query(input));
