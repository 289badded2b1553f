//! Fuzz target for the query of a URI.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ifo::serve::fuzzing::query(input));
