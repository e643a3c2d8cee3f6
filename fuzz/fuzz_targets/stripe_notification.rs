#![no_main]

libfuzzer_sys::fuzz_target!(init: payhook_fuzz::seed("stripe_notification"), |data: &[u8]| payhook_fuzz::run("stripe_notification", data));
