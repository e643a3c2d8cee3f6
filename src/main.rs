//! The `payhook` binary: reads the command line, runs one command, turns its end into an exit code.
//!
//! Everything else is in the library, where tests reach it.

use std::process::ExitCode;

use clap::Parser as _;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let command_line = payhook::cli::CommandLine::parse();
    match payhook::cli::run(command_line) {
        Ok(code) => code,
        Err(error) => payhook::cli::failure::report(&error),
    }
}
