//! A consumer of order messages, as a merchant's own program would be: a process that acks what it takes.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use futures_util::StreamExt as _;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};

/// Taken before they are acked.
const PREFETCH: u16 = 512;

/// What it takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    url: String,
    #[arg(long)]
    queue: String,
}

/// The process, as the harness sees it.
pub(crate) struct Consumer {
    process: Child,
    counts: BufReader<ChildStdout>,
}

impl Consumer {
    pub(crate) fn start(url: &str, queue: &str) -> anyhow::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["consume", "--url", url, "--queue", queue])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let counts = BufReader::new(process.stdout.take().context("no stdout")?);
        Ok(Self { process, counts })
    }

    /// Ends it; how many messages it took.
    pub(crate) fn stop(mut self) -> anyhow::Result<u64> {
        drop(self.process.stdin.take());
        let mut line = String::new();
        self.counts.read_line(&mut line)?;
        self.process.wait()?;
        Ok(line.trim().parse()?)
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Consumes until stdin ends; after a break it connects again.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let count = runtime.block_on(async {
        let (end, ended) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let orders = std::io::stdin().lock().lines().count();
            end.send(orders)
        });
        let mut count = 0;
        let consuming = async {
            loop {
                // The broker may be away for a while: that is what is measured.
                if consume(args, &mut count).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        };
        tokio::select! {
            () = consuming => {}
            _ = ended => {}
        }
        count
    });
    println!("{count}");
    Ok(())
}

async fn consume(args: &Args, count: &mut u64) -> anyhow::Result<()> {
    let connection = Connection::connect(&args.url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
    let (queue, tag) = (args.queue.as_str().into(), "benchmark".into());
    let mut deliveries = channel
        .basic_consume(queue, tag, BasicConsumeOptions::default(), FieldTable::default())
        .await?;
    let every = BasicAckOptions { multiple: true };
    while let Some(delivery) = deliveries.next().await {
        let delivery = delivery?;
        *count += 1;
        // Every 64th for all before it; what is left over comes again after a break.
        if count.is_multiple_of(64) {
            delivery.acker.ack(every).await?;
        }
    }
    Ok(())
}
