#![no_main]

libfuzzer_sys::fuzz_target!(init: payhook_fuzz::seed("json_object"), |data: &[u8]| payhook_fuzz::run("json_object", data));
