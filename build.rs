//! Tells cargo what the macros read: a changed migration or sample is a changed program.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
    println!("cargo:rerun-if-changed=provider-samples");
}
