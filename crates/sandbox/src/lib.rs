//! The life of sandboxes: creating them from templates, keeping one driver task for each, running what callers ask for in them,
//! ending them when their time is up, and finding them again after a restart.
//!
//! - [`manager`]: [`SandboxManager`], what the API calls.
//! - `create`: from a checked request to a running machine on record.
//! - [`lifecycle`]: which event leads to which state, pure.
//! - [`driver`]: the one task that owns a sandbox's machine.
//! - [`launch`]: the steps from a template to a running machine, each undone if a later one fails.
//! - [`pool`]: machines restored ahead of time.
//! - [`reconcile`]: what a start finds of the life before.
//! - [`exec`], [`files`], [`contexts`], `cells`, `programs`: what callers do in a sandbox.
//! - `rendering`: a cell's whole answer as one text of bounded length.

mod cells;
pub mod config;
pub mod contexts;
mod create;
pub mod driver;
pub mod error;
pub mod exec;
pub mod files;
mod languages;
pub mod launch;
pub mod lifecycle;
pub mod manager;
mod picture;
pub mod pool;
mod programs;
pub mod reconcile;
mod rendering;
pub mod templates;
mod terminal;
pub mod validate;
mod view;

pub use config::ManagerConfig;
pub use error::{
    AccessError, ContextError, CreateError, ExecError, FileError, LanguageError, LifecycleError, LookupError, RunError,
    StartError,
};
pub use exec::ExecStreamEvent;
pub use files::FileContent;
pub use manager::SandboxManager;
