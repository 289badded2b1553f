//! Fuzz target for a complete HTTP request: method, URI and headers.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| aggregated_apiserver::serve::fuzzing::request(input));
