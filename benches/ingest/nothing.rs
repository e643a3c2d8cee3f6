//! The limit: a server of the same kind that reads each request whole, answers it, and does nothing.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::post;
use bytes::Bytes;

/// What it takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    listen: SocketAddr,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(args.listen).await?;
        let answer = |body: Bytes| async move {
            drop(body);
            r#"{"received":true}"#
        };
        let router = Router::new().route("/{*path}", post(answer));
        axum::serve(listener, router).await?;
        Ok(())
    })
}
