//! The shared servers: those that `DATABASE_URL` and `AMQP_URL` name (`tests/run` sets both), else the local
//! ones. A test that needs a server and finds none fails.

/// A maintenance database; each test makes one of its own beside it.
pub(crate) fn database_url() -> String {
    named("DATABASE_URL", "postgres://postgres@127.0.0.1:5432/postgres")
}

/// A broker; each test uses a prefix of its own.
pub(crate) fn amqp_url() -> String {
    named("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2f")
}

fn named(variable: &str, local: &str) -> String {
    #[expect(
        clippy::disallowed_methods,
        reason = "where the test's servers are is no part of payhook's configuration"
    )]
    let url = std::env::var(variable);
    url.unwrap_or_else(|_| local.to_owned())
}

/// Whether a test that lacks what it needs from outside must fail: at `tests/run`, and so in the integration.
pub(crate) fn required() -> bool {
    #[expect(
        clippy::disallowed_methods,
        reason = "how the tests are run is no part of payhook's configuration"
    )]
    let set = std::env::var_os("PAYHOOK_TESTS_REQUIRE_SERVICES");
    set.is_some_and(|value| value == "1")
}
