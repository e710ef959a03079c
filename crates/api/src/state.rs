//! What handlers share.

use std::sync::Arc;

use pandastack_sandbox::SandboxManager;
use pandastack_store::Store;

use crate::auth::Principal;

/// Settings of the surface.
#[derive(Clone, Debug)]
pub struct ApiConfig {
    /// The release, e.g. `0.1.0`.
    pub version: String,
    /// The commit it was built from, or `unknown`.
    pub commit: String,
    /// When it was built, RFC 3339, or `unknown`.
    pub build_time: String,
    /// Largest file that may be written through the API, in bytes.
    pub max_upload_bytes: u64,
    /// Most sandboxes at once and longest time to live in seconds, as the quota route shows them.
    pub max_sandboxes: usize,
    pub max_ttl_seconds: u64,
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: "unknown".to_owned(),
            build_time: "unknown".to_owned(),
            max_upload_bytes: 512 * 1024 * 1024,
            max_sandboxes: 256,
            max_ttl_seconds: 30 * 24 * 3600,
        }
    }
}

/// Everything a handler can reach. A clone is another handle to the same things.
#[derive(Clone, Debug)]
pub struct ApiState(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    manager: SandboxManager,
    store: Store,
    config: ApiConfig,
}

impl ApiState {
    /// Puts the parts together.
    #[must_use]
    pub fn new(manager: SandboxManager, store: Store, config: ApiConfig) -> Self {
        Self(Arc::new(Shared { manager, store, config }))
    }

    /// The sandboxes. Only for a caller who proved who it is: hence the witness.
    #[must_use]
    pub fn manager(&self, _witness: &Principal) -> &SandboxManager {
        &self.0.manager
    }

    pub(crate) fn store(&self) -> &Store {
        &self.0.store
    }

    pub(crate) fn config(&self) -> &ApiConfig {
        &self.0.config
    }

    /// Engine and isolation, which anybody may know.
    pub(crate) fn engine(&self) -> (&str, &str) {
        (self.0.manager.engine_name(), self.0.manager.isolation_name())
    }
}
