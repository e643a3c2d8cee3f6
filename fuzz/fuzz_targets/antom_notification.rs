#![no_main]

libfuzzer_sys::fuzz_target!(init: payhook_fuzz::seed("antom_notification"), |data: &[u8]| payhook_fuzz::run("antom_notification", data));
