//! The public side: the listener that providers call and, behind it, recorder and quarantine.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Stage, StartError, address, bind, flow_options, flows};
use crate::config::Config;
use crate::ingress::{Ingress, Quarantine, Recorder, RecorderOptions};
use crate::store::outbox::Handoff;
use crate::store::{Plans, Store, StoreOptions};

/// The connections that notifications are recorded over, and nothing else uses: one to commit, one to compare repeats,
/// one for the readiness probe. Made first, since a role may have no more to spare later.
pub(super) async fn recording(config: &Config, store: &Store) -> Store {
    let recording = store.dedicated(&StoreOptions {
        max_connections: 3,
        statement_timeout: config.server.ack_deadline,
        plans: Plans::Lookups,
        ..flow_options(config)
    });
    // A database that is away now is connected to later.
    drop(recording.connect().await);
    recording
}

/// Starts the public side: the listener and, behind it, recorder and quarantine. Returns the address of the listener.
pub(super) async fn receive(
    config: &Config,
    shared: &flows::Shared<'_>,
    recording: &Store,
    handoff: Option<mpsc::Sender<Handoff>>,
    public: &Stage,
) -> Result<SocketAddr, StartError> {
    let (server, clock) = (&config.server, shared.clock);
    let quarantine = Quarantine::start(shared.store.clone(), &public.tasks);
    let recorder = Recorder::start(
        recording,
        RecorderOptions {
            handoff,
            ..RecorderOptions::new(server.ack_deadline, shared.process)
        },
        quarantine.clone(),
        clock.clone(),
        &public.tasks,
    );
    let ingress = Ingress::new(
        Arc::clone(shared.registry),
        recorder,
        quarantine,
        server.clone(),
        clock.clone(),
        Arc::clone(shared.health),
    );
    let (senders, stop) = (ingress.senders.clone(), public.stop.clone());
    public.tasks.spawn(senders.run(shared.store.clone(), stop));
    let (key_uses, stop) = (ingress.key_uses.clone(), public.stop.clone());
    public.tasks.spawn(key_uses.run(shared.store.clone(), stop));
    let notify = bind(server.notify_addr, server, server.max_connections).await?;
    let addr = address(&notify, server.notify_addr)?;
    public
        .tasks
        .spawn(notify.serve(ingress.router(), public.stop.clone()));
    Ok(addr)
}
