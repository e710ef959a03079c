//! A context's process forked ahead of time. A fork of the warm interpreter takes gVisor a quarter of a second; handing over one that
//! is there takes a millisecond. The template's snapshot holds one, so the first context of every sandbox has it.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{self, Instant},
};

use crate::{
    interpreter::{Interpreter, Origin},
    languages::PYTHON,
    late::LateOutput,
    reaper::Reaper,
    refusal::Refused,
    zygote::Zygote,
};

/// From a taking until the next fork: the first cells of the new context come first.
const REFILL_DELAY: Duration = Duration::from_secs(1);
/// The id that the zygote is told. A context's own id is a UUID.
const NAME: &str = "spare";
/// Takers that may wait.
const MOST_WAITING: usize = 8;

/// A process that belongs to no context yet.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) process: Interpreter,
    /// The identity that it has seeded its generators for.
    pub(crate) seeded_for: u64,
}

/// What a spare is made of.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) zygote: Zygote,
    pub(crate) reaper: Reaper,
    pub(crate) environment: HashMap<String, String>,
    pub(crate) workspace: String,
    pub(crate) identity: watch::Receiver<u64>,
}

impl Source {
    async fn fork(&self) -> Result<Ready, Refused> {
        let seeded_for = *self.identity.borrow();
        let origin = Origin {
            context_id: NAME.to_owned(),
            language: PYTHON,
            cwd: self.workspace.clone(),
            env: self.environment.clone(),
        };
        let process = Interpreter::start(&self.zygote, &self.reaper, origin).await?;
        Ok(Ready { process, seeded_for })
    }
}

#[derive(Debug, Default)]
struct State {
    pid: AtomicI32,
    preparing: AtomicBool,
}

type Taker = oneshot::Sender<Option<Ready>>;

/// The handle to the task that keeps one.
#[derive(Clone, Debug)]
pub(crate) struct Spare {
    takers: mpsc::Sender<Taker>,
    state: Arc<State>,
}

impl Spare {
    /// Starts keeping one.
    pub(crate) fn start(source: Source) -> Self {
        let (takers, waiting) = mpsc::channel(MOST_WAITING);
        let state = Arc::new(State::default());
        state.preparing.store(true, Ordering::Relaxed);
        tokio::spawn(keep(source, waiting, Arc::clone(&state)));
        Self { takers, state }
    }

    /// Takes it. `None` if there is none; one that is being forked is waited for.
    pub(crate) async fn take(&self) -> Option<Ready> {
        let (taker, taken) = oneshot::channel();
        self.takers.send(taker).await.ok()?;
        taken.await.ok().flatten()
    }

    /// The process that does nothing, 0 if there is none.
    ///
    /// # Errors
    /// Why the sandbox must not be frozen now.
    pub(crate) fn idle_process(&self) -> Result<i32, String> {
        if self.state.preparing.load(Ordering::Relaxed) {
            return Err("an interpreter process is being prepared".to_owned());
        }
        Ok(self.state.pid.load(Ordering::Relaxed))
    }
}

/// Why a spare is no more.
enum Parted {
    Taken(Taker),
    Died,
    /// Nobody will take one any more.
    Closed,
}

async fn keep(source: Source, mut waiting: mpsc::Receiver<Taker>, state: Arc<State>) {
    let mut delay = Duration::ZERO;
    loop {
        state.preparing.store(true, Ordering::Relaxed);
        if !refuse_until(&mut waiting, Instant::now() + delay).await {
            return;
        }
        delay = REFILL_DELAY;
        match source.fork().await {
            Ok(ready) => {
                state.pid.store(ready.process.pid.as_raw_nonzero().get(), Ordering::Relaxed);
                state.preparing.store(false, Ordering::Relaxed);
                if !part_with(ready, &mut waiting, &state).await {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "no interpreter process was prepared");
                state.preparing.store(false, Ordering::Relaxed);
                // Tried again only when somebody wants a context: what keeps it from starting may last.
                match waiting.recv().await {
                    Some(taker) => hand_over(taker, None).await,
                    None => return,
                }
            }
        }
    }
}

/// False if nobody will take one any more.
async fn refuse_until(waiting: &mut mpsc::Receiver<Taker>, until: Instant) -> bool {
    loop {
        tokio::select! {
            () = time::sleep_until(until) => return true,
            taker = waiting.recv() => match taker {
                Some(taker) => hand_over(taker, None).await,
                None => return false,
            },
        }
    }
}

/// False if nobody will take one any more.
async fn part_with(mut ready: Ready, waiting: &mut mpsc::Receiver<Taker>, state: &State) -> bool {
    let mut ignored = LateOutput::default();
    let parted = tokio::select! {
        biased;
        _ = ready.process.idle(&mut ignored) => Parted::Died,
        taker = waiting.recv() => taker.map_or(Parted::Closed, Parted::Taken),
    };
    state.preparing.store(true, Ordering::Relaxed);
    state.pid.store(0, Ordering::Relaxed);
    match parted {
        Parted::Taken(taker) => {
            hand_over(taker, Some(ready)).await;
            true
        }
        Parted::Died => {
            ready.process.kill().await;
            true
        }
        Parted::Closed => {
            ready.process.kill().await;
            false
        }
    }
}

async fn hand_over(taker: Taker, ready: Option<Ready>) {
    if let Err(Some(ready)) = taker.send(ready) {
        ready.process.kill().await;
    }
}
