//! Requests with an idempotency key: the second of two with the same key gets what the first made.

use std::{
    collections::{HashMap, hash_map},
    sync::{Arc, Mutex, PoisonError},
};

use pandastack_api_types::WorkspaceName;
use pandastack_store::{RequestKey, SandboxRecord, StoreError};
use serde::Serialize;
use tokio::sync::watch;

use crate::{error::CreateError, manager::Inner, validate};

type Key = (WorkspaceName, String);

/// The keys of requests under way.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<HashMap<Key, watch::Receiver<()>>>);

/// Ends when the request with this key has ended.
#[derive(Debug)]
pub(crate) struct Turn {
    inner: Arc<Inner>,
    key: Key,
    _end: watch::Sender<()>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.inner.requests.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// Whether a request is to be carried out.
#[derive(Debug)]
pub(crate) enum Claim {
    First(Option<Turn>),
    /// What the first made, oldest first.
    Again(Vec<SandboxRecord>),
}

/// The key of a request, with a hash of everything that makes it another one.
pub(crate) fn key(given: Option<String>, what: &impl Serialize) -> Result<Option<RequestKey>, CreateError> {
    let key = validate::idempotency_key(given)?;
    if key.is_empty() {
        return Ok(None);
    }
    let text = serde_json::to_vec(what).map_err(|error| validate::invalid("body", error.to_string()))?;
    Ok(Some(RequestKey { key, hash: blake3::hash(&text).to_hex().to_string() }))
}

impl Inner {
    /// Waits for an earlier request with the same key, and finds what that made.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        workspace: &WorkspaceName,
        request: Option<&RequestKey>,
    ) -> Result<Claim, CreateError> {
        let Some(request) = request else { return Ok(Claim::First(None)) };
        let turn = self.turn((workspace.clone(), request.key.clone())).await;
        let made = self.made_by(workspace, request).await?;
        if made.is_empty() {
            return Ok(Claim::First(Some(turn)));
        }
        if made.iter().any(|record| record.request.as_ref() != Some(request)) {
            return Err(CreateError::KeyMismatch(request.key.clone()));
        }
        Ok(Claim::Again(made))
    }

    /// Waits until nobody else has the turn of this key.
    pub(crate) async fn turn(self: &Arc<Self>, key: Key) -> Turn {
        loop {
            let mut earlier = match self.requests.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key.clone()) {
                hash_map::Entry::Occupied(entry) => entry.get().clone(),
                hash_map::Entry::Vacant(entry) => {
                    let (end, watcher) = watch::channel(());
                    entry.insert(watcher);
                    return Turn { inner: Arc::clone(self), key, _end: end };
                }
            };
            // Nothing is ever sent: this returns when the sender is dropped.
            drop(earlier.changed().await);
            tokio::task::yield_now().await;
        }
    }

    async fn made_by(&self, workspace: &WorkspaceName, request: &RequestKey) -> Result<Vec<SandboxRecord>, StoreError> {
        let mut records = self.store.sandboxes_of_request(workspace, &request.key).await?;
        // What never ran was undone, and the request failed.
        records.retain(|record| !record.boot_mode.is_empty());
        Ok(records)
    }
}
