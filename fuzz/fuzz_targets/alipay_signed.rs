#![no_main]

libfuzzer_sys::fuzz_target!(init: payhook_fuzz::seed("alipay_signed"), |data: &[u8]| payhook_fuzz::run("alipay_signed", data));
