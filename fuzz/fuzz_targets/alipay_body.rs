#![no_main]

libfuzzer_sys::fuzz_target!(init: payhook_fuzz::seed("alipay_body"), |data: &[u8]| payhook_fuzz::run("alipay_body", data));
