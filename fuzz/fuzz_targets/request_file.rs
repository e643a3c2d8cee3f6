#![no_main]

libfuzzer_sys::fuzz_target!(init: payhook_fuzz::seed("request_file"), |data: &[u8]| payhook_fuzz::run("request_file", data));
