//! What stands before all routes.

use std::any::Any;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::header::HeaderName;
use axum::http::{HeaderValue, Method};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowOrigin, Any as AnyHeader, CorsLayer};
use tower_http::timeout::RequestBodyTimeoutLayer;

use crate::error::{ApiError, ErrorKind, write_error};
use crate::state::App;
use crate::{auth, id, routes};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The server as a service.
pub(crate) fn router(app: &Arc<App>) -> Router {
    routes::router()
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(Arc::clone(app), auth::require_key))
        .layer(cors(&app.config.cors_origins))
        .layer(RequestBodyTimeoutLayer::new(app.config.read_timeout))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn(write_error))
        .layer(middleware::from_fn(log))
        .with_state(Arc::clone(app))
}

async fn not_found(request: Request) -> ApiError {
    ApiError::new(ErrorKind::NotFound, format!("there is no route {}", request.uri().path()))
}

async fn method_not_allowed(request: Request) -> ApiError {
    let message = format!("{} does not take {}", request.uri().path(), request.method());
    ApiError::new(ErrorKind::MethodNotAllowed, message)
}

fn panicked(_: Box<dyn Any + Send>) -> Response {
    ApiError::new(ErrorKind::Server, "a bug ended this request; the log has more").into_response()
}

fn cors(origins: &[String]) -> CorsLayer {
    let allowed = match origins.iter().any(|origin| origin == "*") {
        true => AllowOrigin::any(),
        false => AllowOrigin::list(origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok())),
    };
    CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST])
        .allow_headers(AnyHeader)
        .expose_headers([REQUEST_ID])
}

/// Gives every request an identifier, the client's own where it sent one, and logs its end.
async fn log(request: Request, next: Next) -> Response {
    let sent = request.headers().get(&REQUEST_ID).filter(|id| id.len() <= 128).cloned();
    let id = sent.unwrap_or_else(|| {
        HeaderValue::from_str(&id::new("req-")).unwrap_or(HeaderValue::from_static("req"))
    });
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let started = std::time::Instant::now();
    let mut response = next.run(request).await;
    let milliseconds = started.elapsed().as_millis() as u64;
    let name = id.to_str().unwrap_or_default();
    tracing::info!(id = name, %method, path, status = response.status().as_u16(), milliseconds, "request");
    response.headers_mut().insert(REQUEST_ID, id);
    response
}
