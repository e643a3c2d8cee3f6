//! Hostile bytes at every parser and verifier: a short run that is always made, the same on every machine.
//!
//! Seeds are mutated by a generator with a fixed start, so a finding comes again; `fuzz/run SECONDS` searches
//! the same targets for as long as one likes, guided by coverage.

mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use self::targets::TARGETS;

/// Inputs per target; coverage-guided runs are the deep ones.
const ROUNDS: usize = 1500;

/// What parsers stumble over.
const TOKENS: [&[u8]; 30] = [
    b"\0",
    b"\n",
    b"\r\n",
    b"%",
    b"%00",
    b"%zz",
    b"&",
    b"=",
    b"+",
    b"\"",
    b"\\",
    b"\\ud800",
    b"\\u0000",
    b"{",
    b"}",
    b"[",
    b"<![CDATA[",
    b"]]>",
    b"<!DOCTYPE x>",
    b"&#0;",
    b"&quot;",
    b"\xff",
    b"\xef\xbb\xbf",
    b"1e400",
    b"-0",
    b"9223372036854775808",
    b"null",
    b"t=",
    b",v1=",
    b".",
];

fn mutated(rng: &mut StdRng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut data = seeds.choose(rng).cloned().unwrap_or_default();
    for _ in 0..rng.random_range(1..=4) {
        let at = rng.random_range(0..=data.len());
        match rng.random_range(0..7) {
            0 if at < data.len() => data[at] ^= 1 << rng.random_range(0..8),
            1 => data.insert(at, rng.random()),
            2 => data.truncate(at),
            3 => {
                let token = TOKENS.choose(rng).unwrap();
                data.splice(at..at, token.iter().copied());
            }
            4 => {
                let end = rng.random_range(at..=data.len());
                data.drain(at..end.min(at + 24));
            }
            5 => {
                let part: Vec<u8> = data[at..data.len().min(at + 64)].to_vec();
                let to = rng.random_range(0..=data.len());
                data.splice(to..to, part);
            }
            _ => {
                let other = seeds.choose(rng).cloned().unwrap_or_default();
                let from = rng.random_range(0..=other.len());
                data.truncate(at);
                data.extend_from_slice(&other[from..]);
            }
        }
    }
    data
}

#[test]
fn no_bytes_make_a_parser_panic_or_break_what_it_promises() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has nothing to start from", target.name);
        let mut rng = StdRng::seed_from_u64(1);
        let fresh = (0..ROUNDS).map(|_| mutated(&mut rng, &seeds));
        for data in seeds.iter().cloned().chain(fresh) {
            let run = catch_unwind(AssertUnwindSafe(|| (target.run)(&data)));
            assert!(
                run.is_ok(),
                "{} fails on {:?}",
                target.name,
                String::from_utf8_lossy(&data)
            );
        }
    }
}

#[test]
fn every_target_is_fuzzed_too() {
    let folder = crate::support::signed::root().join("fuzz/fuzz_targets");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut files: Vec<_> = files
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let mut names: Vec<_> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    files.sort();
    names.sort();
    assert_eq!(files, names);
}
