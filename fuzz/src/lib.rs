//! The fuzz targets' common part: the list of targets is the tests' own (`tests/it/hostile/targets.rs`).

#[path = "../../tests/it/support/signed.rs"]
mod signed;
#[path = "../../tests/it/hostile/targets.rs"]
mod targets;

mod support {
    pub(crate) use super::signed;
}

fn target(name: &str) -> &'static targets::Target {
    targets::TARGETS.iter().find(|target| target.name == name).expect("a target of this name")
}

/// One execution.
pub fn run(name: &str, data: &[u8]) {
    (target(name).run)(data);
}

/// Puts the target's seeds into its corpus before libFuzzer reads it.
pub fn seed(name: &str) {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    std::fs::create_dir_all(&corpus).expect("the corpus folder can be made");
    for (number, seed) in (target(name).seeds)().into_iter().enumerate() {
        std::fs::write(corpus.join(format!("seed-{number}")), seed).expect("a seed can be written");
    }
}
