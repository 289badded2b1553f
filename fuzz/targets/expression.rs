//! Fuzz target for CEL expressions.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ifo_cel::fuzzing::check_expression(input));
