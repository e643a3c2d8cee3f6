#![no_main]

libfuzzer_sys::fuzz_target!(init: payhook_fuzz::seed("configuration"), |data: &[u8]| payhook_fuzz::run("configuration", data));
