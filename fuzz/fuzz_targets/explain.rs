#![no_main]

libfuzzer_sys::fuzz_target!(init: payhook_fuzz::seed("explain"), |data: &[u8]| payhook_fuzz::run("explain", data));
