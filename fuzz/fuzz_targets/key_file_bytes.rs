#![no_main]

libfuzzer_sys::fuzz_target!(init: payhook_fuzz::seed("key_file_bytes"), |data: &[u8]| payhook_fuzz::run("key_file_bytes", data));
