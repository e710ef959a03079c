//! The life of sandboxes: creating them from templates, keeping one driver task for each, running what callers ask for in them,
//! ending them when their time is up, and finding them again after a restart.
//!
//! - [`manager`]: [`SandboxManager`], what the API calls.
//! - `create`: from a checked request to a running machine on record.
//! - [`lifecycle`]: which event leads to which state, pure.
//! - [`driver`]: the one task that owns a sandbox's machine.
//! - [`launch`]: the steps from a template to a running machine, each undone if a later one fails.
//! - [`pool`]: machines restored ahead of time.
//! - `images`: how machines are saved on disk and brought back; `snapshots`, `fork`, `promote` and hibernation are built on it.
//! - [`journal`]: the steps at which an operation may be cut short, for tests that do.
//! - `admission`, `requests`: limits, and requests that are sent twice.
//! - [`reconcile`]: what a start finds of the life before.
//! - [`exec`], [`files`], [`contexts`], `cells`, `programs`: what callers do in a sandbox.
//! - `rendering`: a cell's whole answer as one text of bounded length.

mod admission;
mod cells;
pub mod config;
pub mod contexts;
mod create;
pub mod driver;
pub mod error;
mod events;
pub mod exec;
pub mod files;
mod fork;
mod images;
pub mod journal;
mod languages;
pub mod launch;
pub mod lifecycle;
mod lookup;
pub mod manager;
mod picture;
pub mod pool;
mod programs;
mod promote;
pub mod reconcile;
mod rendering;
mod requests;
mod snapshots;
pub mod templates;
mod terminal;
pub mod validate;
mod view;

pub use config::ManagerConfig;
pub use error::{
    AccessError, CaptureError, ContextError, CreateError, ExecError, FileError, ForkError, LanguageError,
    LifecycleError, LookupError, RestoreError, RunError, SnapshotError, StartError,
};
pub use exec::ExecStreamEvent;
pub use files::FileContent;
pub use fork::ForkKind;
pub use manager::{Quotas, SandboxManager};
