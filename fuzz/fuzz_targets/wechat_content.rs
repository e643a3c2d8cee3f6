#![no_main]

libfuzzer_sys::fuzz_target!(init: payhook_fuzz::seed("wechat_content"), |data: &[u8]| payhook_fuzz::run("wechat_content", data));
