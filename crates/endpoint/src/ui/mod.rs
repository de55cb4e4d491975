//! The page and the JSON API: the last ten minutes of the node, and what its recording has.

mod alone;
mod answers;
mod assets;
mod handlers;
mod json;
mod parameters;
mod past;
mod streams;
mod views;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;

pub(crate) use views::Views;
pub use views::{Ui, View};

/// All routes but the event stream.
pub(crate) fn pages(views: &Arc<Views>) -> Router {
    let routes = Router::new()
        .route("/", get(assets::index))
        .route("/ui/{file}", get(assets::file))
        .route("/api/v1/openapi.json", get(assets::openapi))
        .route("/api/v1/node", get(handlers::node))
        .route("/api/v1/pods", get(handlers::pods))
        .route("/api/v1/pods/{uid}", get(handlers::pod))
        .route("/api/v1/topology", get(handlers::topology))
        .route("/api/v1/interference", get(handlers::interference))
        .route("/api/v1/pins", get(handlers::pins))
        .route("/api/v1/doctor", get(handlers::doctor))
        .route("/api/v1/recording", get(handlers::recording))
        .route("/api/v1/history", get(handlers::history))
        .route("/api/v1/overview", get(handlers::overview))
        .route("/api/v1/frame", get(handlers::frame));
    routes.with_state(Arc::clone(views))
}

/// The event stream, which has limits of its own.
pub(crate) fn streams(views: &Arc<Views>) -> Router {
    Router::new().route("/api/v1/stream", get(handlers::stream)).with_state(Arc::clone(views))
}
