#![no_main]

libfuzzer_sys::fuzz_target!(init: payhook_fuzz::seed("twoctwop_signed"), |data: &[u8]| payhook_fuzz::run("twoctwop_signed", data));
