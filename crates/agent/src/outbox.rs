//! A cell's events on their way to a host that may be slow or gone.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use pandastack_agent_protocol::messages::{CellEnd, CellEvent, cell_event::Kind};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};
use tonic::Status;

use crate::{loss::Loss, records::Recorder, refusal::Refused};

/// How long a cell with an idempotency key waits for a reader who takes nothing.
const KEYED_PATIENCE: Duration = Duration::from_secs(5);
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Where a cell's events go.
pub(crate) type Events = mpsc::Sender<Result<CellEvent, Status>>;

/// The events that the host has not taken yet. Those of a cell with an idempotency key are recorded beside.
#[derive(Debug)]
pub(crate) struct Outbox {
    events: Events,
    recorder: Option<Recorder>,
    pending: VecDeque<Kind>,
    gone: bool,
    /// When a reader who takes nothing is given up.
    patience_until: Option<Instant>,
}

impl Outbox {
    pub(crate) fn new(events: Events, recorder: Option<Recorder>) -> Self {
        Self { events, recorder, pending: VecDeque::new(), gone: false, patience_until: None }
    }

    /// Whether anybody will ever hear of the cell.
    pub(crate) fn is_wanted(&self) -> bool {
        self.recorder.is_some() || !self.events.is_closed()
    }

    /// Events that were not sent yet.
    pub(crate) fn held(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn push(&mut self, kind: Kind) {
        if let Some(recorder) = &self.recorder {
            recorder.push(&kind);
        }
        if !self.gone {
            self.pending.push_back(kind);
        }
    }

    /// A reader holds up the cell, except where others may wait for the record of it.
    fn patience(&self) -> Duration {
        if self.recorder.is_some() { KEYED_PATIENCE } else { FOREVER }
    }

    /// Sends one event. Must not be called when there is none.
    pub(crate) async fn send_one(&mut self) {
        let latest = Instant::now() + self.patience();
        let until = *self.patience_until.get_or_insert(latest);
        match timeout_at(until, self.events.reserve()).await {
            Ok(Ok(permit)) => {
                self.patience_until = None;
                if let Some(kind) = self.pending.pop_front() {
                    permit.send(Ok(CellEvent { kind: Some(kind) }));
                }
            }
            Ok(Err(_)) | Err(_) => {
                self.gone = true;
                self.pending.clear();
            }
        }
    }

    /// Sends what is left and the end, beside whatever comes next. `told` is the loss that the end tells of once more.
    pub(crate) fn finish(mut self, end: CellEnd, told: Option<Arc<Loss>>) {
        self.push(Kind::End(end));
        if let Some(recorder) = self.recorder.take() {
            recorder.finish();
        }
        tokio::spawn(async move {
            while !self.pending.is_empty() {
                self.send_one().await;
            }
            if let Some(loss) = told
                && !self.gone
            {
                loss.set_told();
            }
        });
    }

    /// Answers that the cell does not run.
    pub(crate) fn refuse(self, refused: Refused) {
        if let Some(recorder) = self.recorder {
            recorder.refuse(refused.clone());
        }
        if let Err(error) = self.events.try_send(Err(Status::from(refused))) {
            tracing::debug!(%error, "a cell's caller is gone");
        }
    }
}
