#![no_main]

libfuzzer_sys::fuzz_target!(init: payhook_fuzz::seed("idempotency_key"), |data: &[u8]| payhook_fuzz::run("idempotency_key", data));
