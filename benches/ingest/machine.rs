//! What the machine did meanwhile, from `/proc`: CPU by process tree, peak memory, flushes of the disk, and how
//! fast it flushes at all.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use crate::load::per_second;

/// Ticks of `/proc/*/stat` in a second: fixed for everything that user space sees on Linux.
const TICKS: f64 = 100.0;

/// CPU seconds that the processes of a tree have used, by process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Used(BTreeMap<u32, u64>);

impl Used {
    /// `root` and all below it, with the children they have already buried.
    pub(crate) fn of(root: u32) -> Self {
        Self(
            tree(root)
                .into_iter()
                .filter_map(|pid| Some((pid, ticks(&stat(pid)?)?)))
                .collect(),
        )
    }

    /// Cores used since `earlier`, `seconds` ago.
    pub(crate) fn cores_since(&self, earlier: &Self, seconds: f64) -> f64 {
        let used = self.0.iter().map(|(pid, ticks)| {
            let before = earlier.0.get(pid).copied().unwrap_or_default();
            ticks.saturating_sub(before)
        });
        per_second(used.sum(), seconds) / TICKS
    }
}

/// Behind the name of `/proc/PID/stat`, which may hold anything.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    Some(rest.split(' ').map(str::to_owned).collect())
}

/// utime, stime, cutime and cstime together.
fn ticks(fields: &[String]) -> Option<u64> {
    fields
        .get(11..15)?
        .iter()
        .map(|field| field.parse::<u64>().ok())
        .sum()
}

/// `root` and all its descendants.
fn tree(root: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for pid in processes() {
        if let Some(parent) = stat(pid).and_then(|fields| fields.get(1)?.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![root];
    let mut at = 0;
    while let Some(pid) = found.get(at).copied() {
        found.extend(children.remove(&pid).unwrap_or_default());
        at += 1;
    }
    found
}

/// Lets SIGINT and SIGTERM end what was started, too: servers and programs are process groups of their own.
pub(crate) fn end_with_everything() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (mut interrupt, mut terminate) = {
        let _entered = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
        let own = std::process::id();
        let all = tree(own).into_iter().filter(|pid| *pid != own);
        let pids: Vec<String> = all.map(|pid| pid.to_string()).collect();
        drop(Command::new("kill").arg("-9").args(pids).status());
        std::process::exit(130);
    });
    Ok(())
}

fn processes() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// Peak resident memory of a tree, in MiB: the sum of each process's own peak.
pub(crate) fn peak_memory(root: u32) -> f64 {
    let kib = |pid: u32| -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    };
    per_second(tree(root).into_iter().filter_map(kib).sum(), 1024.0)
}

/// Seconds that all cores together have been busy since boot.
pub(crate) fn busy() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<u64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|field| field.parse().ok())
        .collect();
    let idle = fields.iter().skip(3).take(2).sum::<u64>();
    per_second(fields.iter().sum::<u64>() - idle, TICKS)
}

/// Waits until others leave the machine alone, but not for ever; cores used by them in the last moment.
pub(crate) fn quiet() -> f64 {
    let until = Instant::now() + Duration::from_secs(15);
    loop {
        let (began, before) = (Instant::now(), busy());
        std::thread::sleep(Duration::from_millis(400));
        let cores = (busy() - before) / began.elapsed().as_secs_f64();
        if cores < 0.25 || Instant::now() > until {
            return cores;
        }
    }
}

/// Flushes that the disks have completed since boot: what an fsync comes down to.
pub(crate) fn flushes() -> u64 {
    let text = fs::read_to_string("/proc/diskstats").unwrap_or_default();
    let flushes = text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(18)?.parse::<u64>().ok()
    });
    flushes.sum()
}

/// How often in a second 8 KiB can be written into `folder` and flushed, one after the other.
pub(crate) fn flushes_a_second(folder: &Path) -> anyhow::Result<f64> {
    let path = folder.join("flush-probe");
    let mut file = File::create(&path)?;
    file.set_len(1 << 20)?;
    file.sync_all()?;
    let page = [7_u8; 8192];
    let (began, mut count) = (Instant::now(), 0_u64);
    while began.elapsed() < Duration::from_millis(500) {
        file.seek(SeekFrom::Start((count % 128) * 8192))?;
        file.write_all(&page)?;
        file.sync_data()?;
        count += 1;
    }
    let rate = per_second(count, began.elapsed().as_secs_f64());
    fs::remove_file(path)?;
    Ok(rate)
}

/// The machine in words.
pub(crate) fn describe() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown", |rest| rest.trim_start_matches(['\t', ':', ' ']));
    let cores = cpu.lines().filter(|line| line.starts_with("processor")).count();
    let memory = read("/proc/meminfo")
        .lines()
        .find_map(|line| {
            line.strip_prefix("MemTotal:")?
                .trim()
                .split(' ')
                .next()?
                .parse()
                .ok()
        })
        .map_or(0, |kib: u64| kib >> 20);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{cores} × {model}, {memory} GiB, Linux {}", kernel.trim())
}
