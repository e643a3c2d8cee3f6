#![no_main]

libfuzzer_sys::fuzz_target!(init: payhook_fuzz::seed("stripe_signed"), |data: &[u8]| payhook_fuzz::run("stripe_signed", data));
