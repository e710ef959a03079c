//! What the cells with an idempotency key said, for callers that ask again.

use std::{
    collections::VecDeque,
    hash::{BuildHasher, RandomState},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use pandastack_agent_protocol::messages::{CellEvent, Refusal, RunCellRequest, cell_event::Kind};
use prost::Message;
use tokio::sync::Notify;
use tonic::Status;

use crate::{outbox::Events, refusal::Refused};

/// Keys that a context remembers: more than the cells that may wait in it.
const MOST_RECORDS: usize = 100;
/// Bytes kept of one cell's events.
const MOST_RECORD_BYTES: usize = 16 * 1024 * 1024;
/// Bytes kept of all of them.
const MOST_BYTES: usize = 32 * 1024 * 1024;
/// Bytes that an event takes beside its own.
const EVENT_OVERHEAD: usize = 128;

/// The records of one context, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    fingerprints: RandomState,
    shelf: Arc<Shelf>,
}

/// What a key stands for.
#[derive(Debug)]
pub(crate) enum Claim {
    /// A cell that is to run now.
    First(Recorder),
    /// A cell that runs or has run.
    Again(Arc<Record>),
}

impl Records {
    /// Looks up the key of a cell that is to run.
    ///
    /// # Errors
    /// If the key was used for another cell, or if what its cell said was too much to keep.
    pub(crate) fn claim(&self, request: &RunCellRequest) -> Result<Claim, Refused> {
        let key = &request.idempotency_key;
        let fingerprint = self.fingerprint(request);
        let mut records = self.shelf.lock();
        // What never ran may be tried again.
        records.retain(|record| !record.lock().is_refused());
        if let Some(record) = records.iter().find(|record| record.key == *key) {
            if record.fingerprint != fingerprint {
                let message =
                    format!("the idempotency key {key:?} was used in this context with other code or options");
                return Err(Refused::new(Refusal::IdempotencyConflict, message));
            }
            if record.lock().state == State::Dropped {
                return Err(record.too_large());
            }
            return Ok(Claim::Again(Arc::clone(record)));
        }
        if records.len() >= MOST_RECORDS
            && let Some(at) = records.iter().position(|record| record.lock().ended)
        {
            records.remove(at);
        }
        let record = Arc::new(Record { key: key.clone(), fingerprint, story: Mutex::default(), news: Notify::new() });
        records.push_back(Arc::clone(&record));
        Ok(Claim::First(Recorder { record, shelf: Arc::clone(&self.shelf) }))
    }

    /// Of everything that makes a request another one.
    fn fingerprint(&self, request: &RunCellRequest) -> u64 {
        let mut env: Vec<_> = request.env.iter().collect();
        env.sort();
        let RunCellRequest { code, cwd, stdin, timeout_ms, max_output_bytes, max_chars, .. } = request;
        self.fingerprints.hash_one((code, env, cwd, stdin, timeout_ms, max_output_bytes, max_chars))
    }
}

#[derive(Debug, Default)]
struct Shelf(Mutex<VecDeque<Arc<Record>>>);

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Record>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Empties the oldest records until the rest may stay.
    fn make_room(&self) {
        let records = self.lock();
        let mut bytes: usize = records.iter().map(|record| record.lock().bytes).sum();
        for record in records.iter() {
            if bytes <= MOST_BYTES {
                return;
            }
            let mut story = record.lock();
            if story.ended {
                bytes -= story.bytes;
                story.drop_events();
            }
        }
    }
}

/// One cell's events as far as they have come.
#[derive(Debug)]
pub(crate) struct Record {
    key: String,
    fingerprint: u64,
    story: Mutex<Story>,
    /// Told whenever the story has changed.
    news: Notify,
}

#[derive(Debug, Default)]
struct Story {
    events: Vec<CellEvent>,
    bytes: usize,
    ended: bool,
    state: State,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Kept,
    /// The events were too large.
    Dropped,
    /// The cell never began.
    Refused(Refused),
}

impl Story {
    fn drop_events(&mut self) {
        self.state = State::Dropped;
        self.bytes = 0;
        self.events = Vec::new();
    }

    fn is_refused(&self) -> bool {
        matches!(self.state, State::Refused(_))
    }
}

/// What a reader of a record finds at its place.
enum Found {
    Event(CellEvent),
    Nothing,
    End,
    Refused(Refused),
}

impl Record {
    fn lock(&self) -> MutexGuard<'_, Story> {
        self.story.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn too_large(&self) -> Refused {
        let message = format!(
            "the cell with the idempotency key {:?} was run, but what it said was too large to be kept; it is not run again",
            self.key
        );
        Refused::new(Refusal::TooLarge, message)
    }

    fn find(&self, at: usize) -> Found {
        let story = self.lock();
        match &story.state {
            State::Refused(refused) => Found::Refused(refused.clone()),
            State::Dropped => Found::Refused(self.too_large()),
            State::Kept => match story.events.get(at) {
                Some(event) => Found::Event(event.clone()),
                None if story.ended => Found::End,
                None => Found::Nothing,
            },
        }
    }

    /// Sends the events from the first to the end, which may be still to come.
    pub(crate) async fn tell(self: Arc<Self>, events: Events) {
        let mut at = 0;
        loop {
            let news = self.news.notified();
            let told = match self.find(at) {
                Found::Event(event) => events.send(Ok(event)).await,
                Found::Refused(refused) => {
                    if events.send(Err(Status::from(refused))).await.is_err() {
                        tracing::debug!("who asked again is gone");
                    }
                    return;
                }
                Found::End => return,
                Found::Nothing => {
                    tokio::select! {
                        () = news => continue,
                        () = events.closed() => return,
                    }
                }
            };
            if told.is_err() {
                return;
            }
            at += 1;
        }
    }
}

/// The writing end of a record. Dropped without an end it says that the cell never began.
#[derive(Debug)]
pub(crate) struct Recorder {
    record: Arc<Record>,
    shelf: Arc<Shelf>,
}

impl Recorder {
    pub(crate) fn push(&self, kind: &Kind) {
        {
            let mut story = self.record.lock();
            if story.state != State::Kept {
                return;
            }
            let event = CellEvent { kind: Some(kind.clone()) };
            story.bytes += event.encoded_len() + EVENT_OVERHEAD;
            story.events.push(event);
            if story.bytes > MOST_RECORD_BYTES {
                story.drop_events();
            }
        }
        self.shelf.make_room();
        self.record.news.notify_waiters();
    }

    pub(crate) fn finish(self) {
        self.record.lock().ended = true;
    }

    /// The cell does not run: who has attached to it hears why, and the key is free.
    pub(crate) fn refuse(self, refused: Refused) {
        let mut story = self.record.lock();
        story.drop_events();
        story.ended = true;
        story.state = State::Refused(refused);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let mut story = self.record.lock();
        if !mem::replace(&mut story.ended, true) {
            story.state = State::Refused(Refused::new(Refusal::ContextNotFound, "the context was closed"));
        }
        drop(story);
        self.record.news.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use pandastack_agent_protocol::messages::CellEnd;
    use tokio::sync::mpsc;

    use super::*;

    fn request(key: &str, code: &str) -> RunCellRequest {
        RunCellRequest { idempotency_key: key.to_owned(), code: code.to_owned(), ..RunCellRequest::default() }
    }

    fn first(records: &Records, key: &str) -> Recorder {
        match records.claim(&request(key, "code")) {
            Ok(Claim::First(recorder)) => recorder,
            other => panic!("{other:?}"),
        }
    }

    fn again(records: &Records, key: &str) -> Arc<Record> {
        match records.claim(&request(key, "code")) {
            Ok(Claim::Again(record)) => record,
            other => panic!("{other:?}"),
        }
    }

    fn refusal(records: &Records, key: &str, code: &str) -> Refusal {
        records.claim(&request(key, code)).unwrap_err().refusal
    }

    async fn told(record: Arc<Record>) -> Vec<Result<Option<Kind>, String>> {
        let (events, mut receiver) = mpsc::channel(1);
        let telling = tokio::spawn(record.tell(events));
        let mut all = Vec::new();
        while let Some(event) = receiver.recv().await {
            all.push(event.map(|event| event.kind).map_err(|status| status.message().to_owned()));
        }
        telling.await.unwrap();
        all
    }

    fn text(size: usize) -> Kind {
        Kind::Stdout("x".repeat(size))
    }

    #[tokio::test]
    async fn who_asks_again_hears_all_from_the_first_event_to_the_end() {
        let records = Records::default();
        let recorder = first(&records, "k");
        recorder.push(&text(1));
        let listening = tokio::spawn(told(again(&records, "k")));
        tokio::task::yield_now().await;
        recorder.push(&Kind::End(CellEnd::default()));
        recorder.finish();
        let all = vec![Ok(Some(text(1))), Ok(Some(Kind::End(CellEnd::default())))];
        assert_eq!(listening.await.unwrap(), all);
        assert_eq!(told(again(&records, "k")).await, all);
        assert_eq!(refusal(&records, "k", "other code"), Refusal::IdempotencyConflict);
    }

    #[tokio::test]
    async fn a_cell_that_never_began_leaves_its_key_free() {
        let records = Records::default();
        let recorder = first(&records, "k");
        let record = again(&records, "k");
        recorder.refuse(Refused::new(Refusal::Exhausted, "no"));
        assert_eq!(told(record).await, [Err("no".to_owned())]);
        drop(first(&records, "k"));
        first(&records, "k").finish();
    }

    #[tokio::test]
    async fn what_is_too_large_is_not_kept_and_not_run_again() {
        let records = Records::default();
        let recorder = first(&records, "large");
        recorder.push(&text(MOST_RECORD_BYTES));
        recorder.finish();
        assert_eq!(refusal(&records, "large", "code"), Refusal::TooLarge);
        for key in ["a", "b", "c", "d"] {
            let recorder = first(&records, key);
            recorder.push(&text(MOST_BYTES / 4));
            recorder.finish();
        }
        assert_eq!(refusal(&records, "a", "code"), Refusal::TooLarge);
        assert_eq!(told(again(&records, "d")).await, [Ok(Some(text(MOST_BYTES / 4)))]);
    }

    #[test]
    fn the_oldest_of_too_many_keys_is_forgotten_and_running_ones_are_not() {
        let records = Records::default();
        let running = first(&records, "running");
        for number in 0..=MOST_RECORDS {
            first(&records, &number.to_string()).finish();
        }
        again(&records, "running");
        again(&records, &MOST_RECORDS.to_string());
        first(&records, "0").finish();
        running.finish();
    }
}
