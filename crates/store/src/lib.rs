//! What the server must still know after it was killed: tokens and sandboxes, in one SQLite file.
//!
//! A call that returned `Ok` survives `kill -9` of the process (write-ahead log, `synchronous = NORMAL`); a power
//! failure may lose the last moments but never leaves the file inconsistent. What a sandbox *does* is not decided
//! here, and what is true of a sandbox's processes is known only to the engine.

mod error;
mod records;
mod sandboxes;
mod secret;
mod store;
mod tokens;

#[cfg(test)]
mod tests;

pub use error::StoreError;
pub use records::{NewToken, SandboxRecord, TokenRecord};
pub use secret::{InvalidTokenSecret, TokenSecret};
pub use store::Store;
