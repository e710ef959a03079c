//! Templates: what sandboxes start from.
//!
//! A recipe (base system, apt packages, pinned Python lock, files, warm-up) becomes a root file system, then a machine with a warm
//! interpreter, then a snapshot of that machine. Everything is found by the hash of what went into it and is complete if it exists:
//!
//! ```text
//!   {data_dir}/building/              one build at a time; whatever is in it without a lock holder is rubbish
//!   {data_dir}/rootfs/{hash}/         root/ and rootfs.json     hash of suite, apt packages, lock, files
//!   {data_dir}/runtime/{hash}/        agent and interpreter/    hash of the files
//!   {data_dir}/templates/{name}/{hash}/   template.json and snapshot/   hash of the two above, warm-up, resources, engine, processor
//! ```
//!
//! This crate starts machines only to bake them. It does not pool, claim or place sandboxes.

mod apt;
mod bake;
mod chroot;
mod error;
mod host;
mod manifest;
mod progress;
mod recipe;
mod rootfs;
mod runtime;
mod store;
mod tool;
mod workshop;

pub use error::{BakeError, BuildError, HostError, RecipeError, RootfsError, StoreError, ToolError, WorkshopError};
pub use progress::{Progress, Silent};
pub use recipe::{Interpreter, Recipe, RecipeFile, System};
pub use store::{BuiltTemplate, PruneReport, TemplateStore};
