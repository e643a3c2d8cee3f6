//! The load generator: one thread of tokio on raw sockets, HTTP/1.1 with keep-alive, no pipelining.
//!
//! Closed loop: every connection sends its next request when the last one is answered. At a rate: requests
//! are due at fixed moments, wait for a connection that is free, and are timed from the moment they were due,
//! so that a server that stops for a second is charged for everything it made wait.
//!
//! It is told what to do by lines on stdin (each ends a phase; the end of stdin ends the load) and says what
//! happened in lines of JSON on stdout, one for each phase.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, BufRead as _, IoSlice};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinSet, LocalSet};

use crate::answer::{Answer, Reader};
use crate::notification::Sender;
use crate::pool::Loaded;

/// Latencies are kept up to this, in microseconds, to three digits.
const LONGEST: u64 = 60_000_000;

/// What the generator takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    target: SocketAddr,
    #[arg(long)]
    pool: PathBuf,
    /// Where each sender's notifications go, in the order of `Sender::ALL`.
    #[arg(long, value_delimiter = ',')]
    paths: Vec<String>,
    #[arg(long)]
    connections: usize,
    /// Requests a second; without it as many as are answered.
    #[arg(long)]
    rate: Option<u32>,
    /// Leave out so many requests of the pool: they have been sent.
    #[arg(long, default_value_t = 0)]
    skip: usize,
    /// Go round the pool instead of stopping at its end.
    #[arg(long)]
    wrap: bool,
    /// Send the whole pool once before reporting ready.
    #[arg(long)]
    prime: bool,
}

/// What one phase was like.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Phase {
    pub(crate) seconds: f64,
    pub(crate) acks: u64,
    pub(crate) refused: u64,
    /// 503 and the like.
    pub(crate) other: u64,
    /// Connections that broke.
    pub(crate) broken: u64,
    /// Came to the end of the pool.
    pub(crate) exhausted: bool,
    /// Requests that were due and had no connection, at the end.
    pub(crate) behind: usize,
    /// Microseconds from due to answered.
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
}

impl Phase {
    pub(crate) fn answered(&self) -> u64 {
        self.acks + self.refused
    }

    pub(crate) fn rate(&self) -> f64 {
        per_second(self.answered(), self.seconds)
    }
}

/// `count` in `seconds`.
pub(crate) fn per_second(count: u64, seconds: f64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / seconds.max(1e-9)
}

/// What has been counted since the last phase ended.
struct Tally {
    began: Instant,
    latencies: Histogram<u64>,
    acks: u64,
    refused: u64,
    other: u64,
    broken: u64,
}

impl Tally {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            began: Instant::now(),
            latencies: Histogram::new_with_bounds(1, LONGEST, 3)?,
            acks: 0,
            refused: 0,
            other: 0,
            broken: 0,
        })
    }

    fn phase(&self, exhausted: bool, behind: usize) -> Phase {
        let at = |quantile| self.latencies.value_at_quantile(quantile);
        Phase {
            seconds: self.began.elapsed().as_secs_f64(),
            acks: self.acks,
            refused: self.refused,
            other: self.other,
            broken: self.broken,
            exhausted,
            behind,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: self.latencies.max(),
        }
    }
}

/// What the connections share.
struct Load {
    pool: Loaded,
    /// Request line and `Host` of each sender.
    heads: Vec<Vec<u8>>,
    next: Cell<usize>,
    /// Up to here the pool is sent now.
    end: Cell<usize>,
    wrap: Cell<bool>,
    stopped: Cell<bool>,
    /// Moments at which requests are due that no connection has taken yet; `None`: there is no rate.
    due: Option<(Semaphore, RefCell<VecDeque<Instant>>)>,
    tally: RefCell<Tally>,
}

/// A request to be sent.
struct Turn {
    n: usize,
    since: Instant,
}

impl Load {
    async fn turn(&self) -> Option<Turn> {
        let since = match &self.due {
            None => Instant::now(),
            Some((permits, due)) => {
                permits.acquire().await.ok()?.forget();
                due.borrow_mut().pop_front()?
            }
        };
        if self.stopped.get() {
            return None;
        }
        let mut n = self.next.get();
        if n >= self.end.get() {
            if !self.wrap.get() {
                return None;
            }
            n = 0;
        }
        self.next.set(n + 1);
        Some(Turn { n, since })
    }

    fn is_exhausted(&self) -> bool {
        !self.wrap.get() && self.next.get() >= self.end.get()
    }

    async fn connection(&self, mut stream: TcpStream) -> TcpStream {
        let mut reader = Reader::new();
        while let Some(turn) = self.turn().await {
            let Ok(answer) = self.exchange(&mut stream, &mut reader, turn.n).await else {
                self.tally.borrow_mut().broken += 1;
                break;
            };
            let took = u64::try_from(turn.since.elapsed().as_micros()).unwrap_or(LONGEST);
            let mut tally = self.tally.borrow_mut();
            tally.latencies.saturating_record(took.clamp(1, LONGEST));
            match answer {
                Answer::Ack => tally.acks += 1,
                Answer::Refused => tally.refused += 1,
                Answer::Other => tally.other += 1,
            }
        }
        stream
    }

    async fn exchange(&self, stream: &mut TcpStream, reader: &mut Reader, n: usize) -> io::Result<Answer> {
        let (sender, rest) = self.pool.get(n).ok_or(io::ErrorKind::NotFound)?;
        let head = self.head(sender).ok_or(io::ErrorKind::NotFound)?;
        let mut sent = 0;
        while sent < head.len() {
            let parts = [
                IoSlice::new(head.get(sent..).unwrap_or_default()),
                IoSlice::new(rest),
            ];
            sent += stream.write_vectored(&parts).await?;
        }
        stream
            .write_all(rest.get(sent - head.len()..).unwrap_or_default())
            .await?;
        reader.next(stream).await
    }

    fn head(&self, sender: Sender) -> Option<&[u8]> {
        let place = Sender::ALL.iter().position(|one| *one == sender)?;
        self.heads.get(place).map(Vec::as_slice)
    }

    /// Ends the phase and says how it was.
    fn report(&self) -> anyhow::Result<()> {
        let tally = self.tally.replace(Tally::new()?);
        let behind = self.due.as_ref().map_or(0, |(_, due)| due.borrow().len());
        let phase = tally.phase(self.is_exhausted(), behind);
        println!("{}", serde_json::to_string(&phase)?);
        Ok(())
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    LocalSet::new().block_on(&runtime, generate(args))
}

async fn generate(args: Args) -> anyhow::Result<()> {
    let pool = Loaded::read(&args.pool)?;
    let head = |path: &String| format!("POST {path} HTTP/1.1\r\nHost: {}\r\n", args.target).into_bytes();
    let load = Rc::new(Load {
        heads: args.paths.iter().map(head).collect(),
        next: Cell::new(args.skip),
        end: Cell::new(pool.len()),
        wrap: Cell::new(false),
        stopped: Cell::new(false),
        due: args
            .rate
            .map(|_| (Semaphore::new(0), RefCell::new(VecDeque::new()))),
        tally: RefCell::new(Tally::new()?),
        pool,
    });
    let mut streams = Vec::with_capacity(args.connections);
    for _ in 0..args.connections {
        let stream = TcpStream::connect(args.target).await.context("connecting")?;
        stream.set_nodelay(true)?;
        streams.push(stream);
    }
    if args.prime {
        anyhow::ensure!(args.rate.is_none(), "a pool is not primed at a rate");
        streams = all(&load, streams).await;
        load.tally.replace(Tally::new()?);
    }
    load.wrap.set(args.wrap);
    println!("ready");
    let mut lines = lines();
    if lines.recv().await.is_none() {
        return Ok(());
    }
    load.tally.replace(Tally::new()?);
    let pace = args.rate.map(pace);
    let mut tasks = JoinSet::new();
    for stream in streams {
        let load = Rc::clone(&load);
        tasks.spawn_local(async move { drop(load.connection(stream).await) });
    }
    let mut moments = pace;
    loop {
        tokio::select! {
            line = lines.recv() => match line {
                Some(()) => load.report()?,
                None => break,
            },
            Some(moment) = next(&mut moments) => {
                if let Some((permits, due)) = &load.due {
                    due.borrow_mut().push_back(moment);
                    permits.add_permits(1);
                }
            }
        }
    }
    load.stopped.set(true);
    if let Some((permits, _)) = &load.due {
        permits.close();
    }
    let ended = tokio::time::timeout(Duration::from_secs(5), async {
        while tasks.join_next().await.is_some() {}
    });
    // What is still open after that is not going to be answered.
    drop(ended.await);
    load.report()
}

/// Every stream until the pool is at its end.
async fn all(load: &Rc<Load>, streams: Vec<TcpStream>) -> Vec<TcpStream> {
    let mut tasks = JoinSet::new();
    for stream in streams {
        let load = Rc::clone(load);
        tasks.spawn_local(async move { load.connection(stream).await });
    }
    tasks.join_all().await
}

async fn next(moments: &mut Option<mpsc::UnboundedReceiver<Instant>>) -> Option<Instant> {
    match moments {
        Some(moments) => moments.recv().await,
        None => std::future::pending().await,
    }
}

/// The lines of stdin.
fn lines() -> mpsc::UnboundedReceiver<()> {
    let (line, lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for read in io::stdin().lock().lines() {
            if read.is_err() || line.send(()).is_err() {
                return;
            }
        }
    });
    lines
}

/// The moments at which requests are due. A thread of its own, because the runtime's timers are a millisecond
/// coarse; it sleeps, so that it takes little of the machine.
fn pace(rate: u32) -> mpsc::UnboundedReceiver<Instant> {
    let (moment, moments) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let began = Instant::now();
        let gap = Duration::from_secs(1) / rate.max(1);
        // Not more often than the sleep is precise.
        let rest = gap.max(Duration::from_micros(100));
        let mut n = 0_u32;
        loop {
            let due = began + gap * n;
            if let Some(early) = due.checked_duration_since(Instant::now()) {
                std::thread::sleep(early.max(rest));
                continue;
            }
            if moment.send(due).is_err() {
                return;
            }
            n = n.saturating_add(1);
        }
    });
    moments
}
