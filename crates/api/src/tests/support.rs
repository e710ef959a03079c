use std::{collections::BTreeSet, path::Path, sync::Arc};

use async_trait::async_trait;
use axum::{Router, body::Body};
use http::{Method, Request, Response, header};
use http_body_util::BodyExt;
use pandastack_engine::{
    AdoptError, BootError, Capabilities, Engine, EngineKind, Isolation, ReapError, ReapReport, SnapshotSupport, Vm,
    VmId, VmSpec,
};
use pandastack_sandbox::{ManagerConfig, SandboxManager};
use pandastack_store::Store;
use serde_json::Value;
use tempfile::TempDir;
use tower::ServiceExt;

use crate::{ApiConfig, ApiState, router};

/// An engine that starts nothing.
#[derive(Debug)]
struct NoEngine(Capabilities);

#[async_trait]
impl Engine for NoEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Sim
    }

    fn capabilities(&self) -> &Capabilities {
        &self.0
    }

    async fn boot(&self, _spec: &VmSpec) -> Result<Arc<dyn Vm>, BootError> {
        Err(BootError::Died { detail: "no machines here".to_owned() })
    }

    async fn restore(&self, spec: &VmSpec, _snapshot_dir: &Path) -> Result<Arc<dyn Vm>, BootError> {
        self.boot(spec).await
    }

    async fn adopt(&self, id: &VmId) -> Result<Arc<dyn Vm>, AdoptError> {
        Err(AdoptError::NotFound(id.clone()))
    }

    async fn reap(&self, _keep: &BTreeSet<VmId>) -> Result<ReapReport, ReapError> {
        Ok(ReapReport::default())
    }
}

pub(super) const UNKNOWN: &str = "/v1/sandboxes/0190a8b0-0000-7000-8000-000000000000";

/// A surface with a token of workspace `alpha` and one of `beta`.
pub(super) struct Surface {
    pub(super) router: Router,
    pub(super) alpha: String,
    pub(super) beta: String,
    _data: TempDir,
}

impl Surface {
    pub(super) async fn new() -> Self {
        Self::with(ApiConfig::default()).await
    }

    pub(super) async fn with(config: ApiConfig) -> Self {
        let data = tempfile::tempdir().unwrap();
        let store = Store::open(&data.path().join("state.db")).await.unwrap();
        let alpha = store.create_token(&"alpha".parse().unwrap(), "a", None).await.unwrap();
        let beta = store.create_token(&"beta".parse().unwrap(), "b", None).await.unwrap();
        let engine = NoEngine(Capabilities {
            isolation: Isolation::None,
            snapshot: SnapshotSupport::None,
            snapshot_stops_source: false,
            shares_pages: false,
            engine_version: "none".to_owned(),
            missing_limits: Vec::new(),
        });
        std::fs::write(data.path().join("agent"), "not started by anything here").unwrap();
        let mut settings = ManagerConfig::new(data.path().join("agent"));
        settings.pool_size = 0;
        let manager = SandboxManager::start(Arc::new(engine), store.clone(), data.path(), settings).await.unwrap();
        Self {
            router: router(ApiState::new(manager, store, config)),
            alpha: alpha.secret.expose().to_owned(),
            beta: beta.secret.expose().to_owned(),
            _data: data,
        }
    }

    /// A request of workspace `alpha`.
    pub(super) async fn ask(&self, method: Method, path: &str, body: impl Into<Body>) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.alpha))
            .body(body.into())
            .unwrap();
        self.send(request).await
    }

    pub(super) async fn send(&self, request: Request<Body>) -> Answer {
        Answer::read(self.router.clone().oneshot(request).await.unwrap()).await
    }
}

/// A whole answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: http::HeaderMap,
    pub(super) body: Value,
}

impl Answer {
    async fn read(response: Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
        Self { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    pub(super) fn error(&self) -> &str {
        self.body["error"].as_str().unwrap_or_default()
    }

    pub(super) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }
}
