//! Signed requests, made before anything is measured: built once on all cores, kept in a file, good as long as
//! their signed time is.
//!
//! A pool is as long as the round that uses it. A generator that comes to its end stops; it does not go round
//! and turn fresh traffic into duplicates, unless that is what is asked for.

use std::fs::{self, File};
use std::io::{BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use anyhow::Context as _;
use clap::ValueEnum;
use payhook::time::{Clock, Timestamp};

use crate::notification::{Sender, Signer};

/// How much of a pool's life must be left for it to be used, in seconds.
const LEFT: i64 = 90;
/// How far ahead of the present a pool is signed at most, in seconds.
const AHEAD: i64 = 280;

/// What a request is to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Never seen before.
    Fresh,
    /// Stored before: the pool is sent once before measuring, then again and again.
    Duplicate,
    /// Signed over something else than it says.
    Forged,
}

/// Requests in a file.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) file: PathBuf,
    pub(crate) count: usize,
    good_until: Timestamp,
}

/// A place in a loaded pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) sender: Sender,
    at: usize,
    length: usize,
}

/// Builds pools and keeps those that are still good.
#[derive(Debug)]
pub(crate) struct Pools {
    folder: PathBuf,
    private_key: String,
    kept: Vec<(Vec<Sender>, Kind, Pool)>,
    clock: Clock,
}

impl Pools {
    pub(crate) fn new(folder: PathBuf, keys: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(&folder)?;
        Ok(Self {
            folder,
            private_key: fs::read_to_string(keys.join("priv.pem"))?,
            kept: Vec::new(),
            clock: Clock::system(),
        })
    }

    /// At least `count` requests of `senders` in turn, good for some time yet.
    pub(crate) fn get(&mut self, senders: &[Sender], kind: Kind, count: usize) -> anyhow::Result<Pool> {
        let until = self.clock.now().secs() + LEFT;
        let fits = |(whose, what, pool): &&(Vec<Sender>, Kind, Pool)| {
            whose == senders && *what == kind && pool.count >= count && pool.good_until.secs() >= until
        };
        if let Some((_, _, pool)) = self.kept.iter().find(fits) {
            return Ok(pool.clone());
        }
        self.kept
            .retain(|(whose, what, _)| whose != senders || *what != kind);
        let pool = self.build(senders, kind, count)?;
        self.kept.push((senders.to_vec(), kind, pool.clone()));
        Ok(pool)
    }

    /// Requests that no earlier pool held.
    pub(crate) fn renew(&mut self, senders: &[Sender], kind: Kind, count: usize) -> anyhow::Result<Pool> {
        self.kept
            .retain(|(whose, what, _)| whose != senders || *what != kind);
        self.get(senders, kind, count)
    }

    fn build(&self, senders: &[Sender], kind: Kind, count: usize) -> anyhow::Result<Pool> {
        let began = Instant::now();
        let names: Vec<&str> = senders.iter().map(|sender| sender.as_str()).collect();
        let file = self
            .folder
            .join(format!("{}-{kind:?}.pool", names.join("+")).to_lowercase());
        let window = senders
            .iter()
            .map(|sender| sender.window())
            .min()
            .unwrap_or_default();
        // Signed a little ahead, it is good for nearly twice the window. Alipay's past is long enough.
        let now = self.clock.now().secs();
        let at = Timestamp::from_secs(now + AHEAD.min(window));
        let good_until = Timestamp::from_secs(at.secs() + window);
        let salt = u64::try_from(self.clock.now().micros()).unwrap_or_default() & 0xffff_ffff;
        let signer = Signer::new(&self.private_key, salt, at, kind != Kind::Forged)?;
        let workers = thread::available_parallelism().map_or(2, usize::from);
        let mut out = BufWriter::new(File::create(&file)?);
        // In chunks, so that what is built and not yet written stays small.
        let chunk = 4096;
        let mut begin = 0;
        while begin < count {
            let parts = (0..workers)
                .map(|part| begin + part * chunk)
                .filter(|from| *from < count);
            let built: Vec<anyhow::Result<Vec<u8>>> = thread::scope(|scope| {
                let running: Vec<_> = parts
                    .map(|from| {
                        let signer = &signer;
                        scope.spawn(move || records(signer, senders, from, count.min(from + chunk)))
                    })
                    .collect();
                let join = |part: thread::ScopedJoinHandle<'_, _>| {
                    part.join()
                        .unwrap_or_else(|_| Err(anyhow::anyhow!("signing panicked")))
                };
                running.into_iter().map(join).collect()
            });
            for part in built {
                out.write_all(&part?)?;
            }
            begin += workers * chunk;
        }
        out.into_inner().context("writing the pool")?.sync_all()?;
        eprintln!(
            "signed {count} {kind:?} requests of {} in {:.1} s",
            names.join("+"),
            began.elapsed().as_secs_f64()
        );
        Ok(Pool {
            file,
            count,
            good_until,
        })
    }
}

fn records(signer: &Signer, senders: &[Sender], from: usize, to: usize) -> anyhow::Result<Vec<u8>> {
    let mut all = Vec::with_capacity((to - from) * 2048);
    for (n, sender) in (from..to).zip(senders.iter().cycle().skip(from % senders.len().max(1))) {
        let record = signer.record(*sender, u64::try_from(n)?)?;
        let place = Sender::ALL
            .iter()
            .position(|one| one == sender)
            .unwrap_or_default();
        all.push(u8::try_from(place)?);
        all.extend_from_slice(&u32::try_from(record.len())?.to_le_bytes());
        all.extend_from_slice(&record);
    }
    Ok(all)
}

/// A pool in memory.
pub(crate) struct Loaded {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl Loaded {
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        Self::of(fs::read(file).with_context(|| file.display().to_string())?)
    }

    fn of(bytes: Vec<u8>) -> anyhow::Result<Self> {
        let mut places = Vec::new();
        let mut at = 0;
        while let Some((head, _)) = bytes.get(at..).and_then(|rest| rest.split_first_chunk::<5>()) {
            let [sender, length @ ..] = *head;
            let length = usize::try_from(u32::from_le_bytes(length))?;
            let sender = Sender::ALL.get(usize::from(sender)).context("an odd pool")?;
            places.push(Place {
                sender: *sender,
                at: at + 5,
                length,
            });
            at += 5 + length;
        }
        Ok(Self { bytes, places })
    }

    /// The first request of a pool alone.
    pub(crate) fn read_first(file: &Path) -> anyhow::Result<(Sender, Vec<u8>)> {
        let mut head = [0; 16 * 1024];
        let mut open = File::open(file)?;
        let read = open.read(&mut head)?;
        let whole = Self::of(head.get(..read).unwrap_or_default().to_vec())?;
        let (sender, record) = whole.get(0).context("an empty pool")?;
        Ok((sender, record.to_vec()))
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// The `n`th request: whose, and everything behind its `Host`.
    pub(crate) fn get(&self, n: usize) -> Option<(Sender, &[u8])> {
        let place = self.places.get(n)?;
        Some((place.sender, self.bytes.get(place.at..place.at + place.length)?))
    }
}
