//! Fuzz target for a complete HTTP request: method, URI and headers.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ifo::serve::fuzzing::request(input));
