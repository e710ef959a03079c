//! Every route.

mod contexts;
mod exec;
mod files;
mod forks;
mod lifecycle;
mod sandboxes;
mod server;
mod snapshots;
mod templates;
mod tokens;
mod unbuilt;

#[cfg(test)]
pub(crate) use self::{contexts::frame as cell_frame, exec::frames as exec_frames};

use axum::{
    Router, middleware,
    routing::{delete, get, post},
};
use http::HeaderName;
use pandastack_api_types::ErrorCode;
use tower_http::cors::{Any, CorsLayer};

use crate::{
    envelope::{REQUEST_ID, envelope},
    error::ApiError,
    state::ApiState,
};

/// The whole surface.
pub fn router(state: ApiState) -> Router {
    Router::new()
        .route("/healthz", get(server::health))
        .route("/version", get(server::version))
        .nest("/v1", versioned())
        .fallback(no_such_route)
        .method_not_allowed_fallback(no_such_method)
        .layer(middleware::from_fn(envelope))
        .layer(cors())
        .with_state(state)
}

fn versioned() -> Router<ApiState> {
    Router::new()
        .route("/healthz", get(server::health))
        .route("/version", get(server::version))
        .route("/me", get(server::me))
        .route("/me/tokens", get(tokens::list).post(tokens::create))
        .route("/me/tokens/{prefix}", delete(tokens::revoke))
        .route("/quotas", get(server::quotas))
        .route("/templates", get(templates::list))
        .route("/templates/{name}", get(templates::get).delete(templates::delete))
        .route("/repl/languages", get(contexts::languages))
        .route("/snapshots", get(snapshots::list))
        .route("/snapshots/gc", post(snapshots::collect))
        .route("/snapshots/{id}", get(snapshots::get).delete(snapshots::delete))
        .route("/sandboxes", get(sandboxes::list).post(sandboxes::create))
        .route("/sandboxes/{id}", get(sandboxes::get).delete(sandboxes::kill))
        .nest("/sandboxes/{id}", sandbox())
        .merge(unbuilt::routes())
}

/// What one sandbox answers.
fn sandbox() -> Router<ApiState> {
    Router::new()
        .route("/lifecycle", get(lifecycle::get).patch(lifecycle::patch))
        .route("/pause", post(lifecycle::pause))
        .route("/resume", post(lifecycle::resume))
        .route("/hibernate", post(lifecycle::hibernate))
        .route("/stop", post(lifecycle::hibernate))
        .route("/wake", post(lifecycle::wake))
        .route("/start", post(lifecycle::wake))
        .route("/events", get(lifecycle::events))
        .route("/snapshots", post(snapshots::create))
        .route("/fork", post(forks::fork))
        .route("/fork-tree", post(forks::fork_tree))
        .route("/promote", post(forks::promote))
        .route("/ports", get(sandboxes::ports).post(unbuilt::sandbox_feature))
        .route("/exec", post(exec::run))
        .route("/exec/stream", post(exec::stream))
        .route("/fs", get(files::read).put(files::write).delete(files::remove))
        .route("/fs/dir", get(files::list))
        .route("/fs/stat", get(files::stat))
        .route("/repl", post(contexts::run_once))
        .route("/repl/sessions", get(contexts::list).post(contexts::create))
        .route("/repl/sessions/{sid}", delete(contexts::close))
        .route("/repl/sessions/{sid}/run", post(contexts::run))
        .route("/repl/sessions/{sid}/interrupt", post(contexts::interrupt))
        .merge(unbuilt::sandbox_routes())
}

async fn no_such_route() -> ApiError {
    ApiError::new(ErrorCode::RouteNotFound, "no such route")
}

async fn no_such_method() -> ApiError {
    ApiError::new(ErrorCode::MethodNotAllowed, "this route does not take this method; see the Allow header")
}

/// Open to pages of any origin: a token has to be named explicitly, no browser sends one by itself.
fn cors() -> CorsLayer {
    CorsLayer::new().allow_origin(Any).allow_methods(Any).allow_headers(Any).expose_headers([
        HeaderName::from_static(REQUEST_ID),
        http::header::RETRY_AFTER,
        http::header::CONTENT_LENGTH,
    ])
}
