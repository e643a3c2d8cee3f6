//! The load generator as seen from the harness: started, told to begin the next phase, asked how it was.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::Context as _;

use crate::load::Phase;
use crate::pool::Pool;

/// What to send where.
#[derive(Clone, Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) target: SocketAddr,
    pub(crate) pool: &'a Pool,
    pub(crate) paths: &'a [String],
    pub(crate) connections: usize,
    pub(crate) rate: Option<u32>,
    pub(crate) skip: usize,
    pub(crate) wrap: bool,
    pub(crate) prime: bool,
}

/// A running generator.
pub(crate) struct Generator {
    process: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Generator {
    /// Starts it and waits until it has read its pool and is connected.
    pub(crate) fn start(plan: &Plan<'_>) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("load")
            .args(["--target", &plan.target.to_string()])
            .arg("--pool")
            .arg(&plan.pool.file)
            .args(["--paths", &plan.paths.join(",")])
            .args(["--connections", &plan.connections.to_string()])
            .args(["--skip", &plan.skip.to_string()]);
        if let Some(rate) = plan.rate {
            command.args(["--rate", &rate.to_string()]);
        }
        if plan.wrap {
            command.arg("--wrap");
        }
        if plan.prime {
            command.arg("--prime");
        }
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().context("no stdout")?);
        let mut generator = Self {
            process,
            orders,
            answers,
        };
        let ready = generator.line()?;
        anyhow::ensure!(ready == "ready", "the generator says {ready:?}");
        Ok(generator)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Begins sending.
    pub(crate) fn go(&mut self) -> anyhow::Result<()> {
        self.order()
    }

    /// Ends the phase, begins the next, and says how it was.
    pub(crate) fn phase(&mut self) -> anyhow::Result<Phase> {
        self.order()?;
        self.answer()
    }

    /// Stops; the rest since the last phase.
    pub(crate) fn stop(mut self) -> anyhow::Result<Phase> {
        drop(self.orders.take());
        let phase = self.answer()?;
        self.process.wait()?;
        Ok(phase)
    }

    fn order(&mut self) -> anyhow::Result<()> {
        let orders = self.orders.as_mut().context("stopped")?;
        orders.write_all(b"next\n")?;
        Ok(orders.flush()?)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    fn answer(&mut self) -> anyhow::Result<Phase> {
        let line = self.line()?;
        serde_json::from_str(&line).with_context(|| format!("the generator says {line:?}"))
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
