//! What happened to a sandbox, for people and programs that ask afterwards.

use std::collections::BTreeMap;

use pandastack_api_types::views;
use pandastack_store::{EventRecord, SandboxRecord, Store};

use crate::{contexts::timestamp, driver::now_ms, lifecycle::StopReason, pool::chain};

/// Events that one question is answered with, at most.
pub(crate) const MOST_EVENTS: u32 = 1000;
/// How many without being told.
pub(crate) const DEFAULT_EVENTS: u32 = 50;

/// Something worth knowing later. The text forms are part of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    Running { boot_mode: String },
    Paused,
    Resumed,
    Hibernated(Option<StopReason>),
    Woken,
    Snapshotted { snapshot: String },
    Forked { snapshot: String, children: usize },
    Promoted { tree: String },
    Failed(Option<StopReason>),
    Deleted(Option<StopReason>),
}

impl Happening {
    fn kind(&self) -> &'static str {
        match self {
            Self::Running { .. } => "sandbox.running",
            Self::Paused => "sandbox.paused",
            Self::Resumed => "sandbox.resumed",
            Self::Hibernated(_) => "sandbox.hibernated",
            Self::Woken => "sandbox.woken",
            Self::Snapshotted { .. } => "sandbox.snapshotted",
            Self::Forked { .. } => "sandbox.forked",
            Self::Promoted { .. } => "fork_tree.promoted",
            Self::Failed(_) => "sandbox.failed",
            Self::Deleted(_) => "sandbox.deleted",
        }
    }

    fn payload(&self) -> BTreeMap<String, String> {
        let pairs = match self {
            Self::Running { boot_mode } => vec![("boot_mode", boot_mode.clone())],
            Self::Snapshotted { snapshot } => vec![("snapshot_id", snapshot.clone())],
            Self::Forked { snapshot, children } => {
                vec![("snapshot_id", snapshot.clone()), ("children", children.to_string())]
            }
            Self::Promoted { tree } => vec![("tree_id", tree.clone())],
            Self::Hibernated(Some(reason)) | Self::Failed(Some(reason)) | Self::Deleted(Some(reason)) => {
                vec![("reason", reason.as_str().to_owned())]
            }
            _ => Vec::new(),
        };
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// Keeps it. An event that cannot be kept is no reason to fail what happened.
    pub(crate) async fn record(&self, store: &Store, sandbox: &SandboxRecord) {
        let event = EventRecord {
            time_ms: now_ms(),
            sandbox_id: sandbox.id.clone(),
            kind: self.kind().to_owned(),
            payload: self.payload(),
        };
        if let Err(error) = store.record_event(&sandbox.workspace, &event).await {
            tracing::warn!(sandbox = %sandbox.id, error = %chain(&error), event = self.kind(), "an event was not kept");
        }
    }
}

pub(crate) fn view(event: EventRecord) -> views::Event {
    views::Event {
        time: timestamp(event.time_ms),
        sandbox_id: event.sandbox_id.to_string(),
        kind: event.kind,
        payload: event.payload,
    }
}
