//! Machines restored ahead of time, frozen, without identity.
//!
//! One task keeps one template's shelf full. A claim takes a machine off the shelf at once; an empty shelf restores on demand.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use pandastack_agent_client::AgentClient;
use pandastack_engine::{Engine, VmId};
use pandastack_template::BuiltTemplate;
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::launch::{self, VmGuard};

/// After a claim the shelf is filled again only when the claimer's first moments are over: a restore takes a core for a third of a second.
const REFILL_DELAY: Duration = Duration::from_millis(750);
/// After a failed restore.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// A machine that waits for a claim.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) guard: VmGuard,
    pub(crate) client: AgentClient,
}

#[derive(Debug)]
struct Shelf {
    template: Arc<BuiltTemplate>,
    ready: Mutex<VecDeque<Ready>>,
    claimed: Notify,
    retired: CancellationToken,
}

impl Shelf {
    fn take(&self) -> Option<Ready> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn put(&self, ready: Ready) {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).push_back(ready);
    }

    fn len(&self) -> usize {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// All shelves.
#[derive(Debug)]
pub(crate) struct Pool {
    engine: Arc<dyn Engine>,
    size: usize,
    launch_timeout: Duration,
    shelves: Mutex<HashMap<String, Arc<Shelf>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Pool {
    pub(crate) fn new(engine: Arc<dyn Engine>, size: usize, launch_timeout: Duration) -> Self {
        Self {
            engine,
            size,
            launch_timeout,
            shelves: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Takes a machine off the template's shelf; the first call for a template sets up the shelf.
    pub(crate) fn claim(&self, template: &Arc<BuiltTemplate>) -> Option<Ready> {
        let shelf = self.shelf(template)?;
        let ready = shelf.take();
        shelf.claimed.notify_one();
        ready
    }

    /// Starts filling the template's shelf.
    pub(crate) fn prepare(&self, template: &Arc<BuiltTemplate>) {
        self.shelf(template);
    }

    /// How many machines wait, over all templates.
    pub(crate) fn ready(&self) -> usize {
        let shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        shelves.values().map(|shelf| shelf.len()).sum()
    }

    /// Ends every waiting machine and the tasks that make them.
    pub(crate) async fn shut_down(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn shelf(&self, template: &Arc<BuiltTemplate>) -> Option<Arc<Shelf>> {
        if self.size == 0 || self.stop.is_cancelled() {
            return None;
        }
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shelf) = shelves.get(&template.name) {
            if shelf.template.hash == template.hash {
                return Some(Arc::clone(shelf));
            }
            shelf.retired.cancel();
        }
        let shelf = Arc::new(Shelf {
            template: Arc::clone(template),
            ready: Mutex::default(),
            claimed: Notify::new(),
            retired: self.stop.child_token(),
        });
        shelves.insert(template.name.clone(), Arc::clone(&shelf));
        self.tasks.spawn(fill(Arc::clone(&self.engine), Arc::clone(&shelf), self.size, self.launch_timeout));
        Some(shelf)
    }
}

async fn fill(engine: Arc<dyn Engine>, shelf: Arc<Shelf>, size: usize, limit: Duration) {
    while !shelf.retired.is_cancelled() {
        if shelf.len() >= size {
            wait_for_claims(&shelf).await;
            continue;
        }
        // Not cancelled half-way: an engine's restore must run to its end or its undoing.
        match make(engine.as_ref(), &shelf.template, limit).await {
            Ok(ready) => shelf.put(ready),
            Err(error) => {
                tracing::warn!(template = %shelf.template.name, error = %chain(&error), "could not prepare a machine");
                pause(&shelf, RETRY_DELAY).await;
            }
        }
    }
    while let Some(ready) = shelf.take() {
        ready.guard.end().await;
    }
}

/// Returns once there was a claim and then none for a while, or the shelf is empty.
async fn wait_for_claims(shelf: &Shelf) {
    tokio::select! {
        () = shelf.claimed.notified() => {}
        () = shelf.retired.cancelled() => return,
    }
    while shelf.len() > 0 {
        tokio::select! {
            () = shelf.claimed.notified() => {}
            () = shelf.retired.cancelled() => return,
            () = tokio::time::sleep(REFILL_DELAY) => return,
        }
    }
}

async fn pause(shelf: &Shelf, delay: Duration) {
    tokio::select! {
        () = tokio::time::sleep(delay) => {}
        () = shelf.retired.cancelled() => {}
    }
}

#[derive(Debug, thiserror::Error)]
enum PrepareError {
    #[error("could not start a machine")]
    Launch(#[from] crate::error::LaunchError),
    #[error("could not freeze a machine")]
    Freeze(#[from] pandastack_engine::PauseError),
}

async fn make(engine: &dyn Engine, template: &BuiltTemplate, limit: Duration) -> Result<Ready, PrepareError> {
    let (guard, client, _mode) = launch::start_template(engine, template, VmId::random(), limit).await?;
    guard.vm().pause().await?;
    Ok(Ready { guard, client })
}

/// An error with everything that led to it, in one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
