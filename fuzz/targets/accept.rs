//! Fuzz target for content negotiation: the `Accept` headers of a request.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| aggregated_apiserver::serve::fuzzing::accept(input));
