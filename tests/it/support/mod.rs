//! What the tests share: databases, private servers, proxies that break on command.

pub(crate) mod daemon;
pub(crate) mod events;
pub(crate) mod listener;
pub(crate) mod proxy;
pub(crate) mod python;
pub(crate) mod rabbit;
pub(crate) mod recorded;
pub(crate) mod servers;
pub(crate) mod services;
pub(crate) mod signed;
pub(crate) mod store;
pub(crate) mod traffic;

/// Runs the tests whose names begin with `prefixes` again, in a process under the POSIX locale.
pub(crate) fn under_c_locale(prefixes: &[&str]) {
    let ran = std::process::Command::new(std::env::current_exe().unwrap())
        .args(prefixes)
        .envs([("LANG", "C"), ("LC_ALL", "POSIX")])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success() && !said.contains("running 0 tests"),
        "{said}"
    );
}
