#![no_main]

libfuzzer_sys::fuzz_target!(init: payhook_fuzz::seed("wechat_v3"), |data: &[u8]| payhook_fuzz::run("wechat_v3", data));
