//! What the server must still know after it was killed: tokens, sandboxes, snapshots and events, in one SQLite file.
//!
//! A call that returned `Ok` survives `kill -9` of the process (write-ahead log, `synchronous = NORMAL`); a power
//! failure may lose what came after the last [`Store::sync`] but never leaves the file inconsistent. What a sandbox *does* is not decided
//! here, and what is true of a sandbox's processes is known only to the engine.

mod columns;
mod error;
mod events;
mod records;
mod sandboxes;
mod secret;
mod snapshots;
mod store;
mod tokens;
mod transitions;

#[cfg(test)]
mod tests;

pub use error::StoreError;
pub use records::{
    EventRecord, NewToken, RequestKey, SandboxRecord, SnapshotKind, SnapshotRecord, SnapshotStatus, Started,
    TokenRecord,
};
pub use secret::{InvalidTokenSecret, TokenSecret};
pub use store::Store;
