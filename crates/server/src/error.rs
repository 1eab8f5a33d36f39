//! Errors of the API: a kind, a message, and the field that is wrong.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use minfer::engine::kv::session::SessionError;
use minfer::engine::{EngineError, ErrorClass, ParamError, RequestError, SubmitError};
use minfer::text::TemplateError;
use serde_json::{Value as Json, json};

/// What kind of error it is. Each has one HTTP status and one name in OpenAI's envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request is wrong: 400 `invalid_request_error`.
    InvalidRequest,
    /// The prompt is longer than the context or the KV cache: 400 `exceed_context_size_error`.
    ExceedsContext,
    /// No API key, or an unknown one: 401 `authentication_error`.
    Authentication,
    /// No such route, model or file: 404 `not_found_error`.
    NotFound,
    /// The route has no such method: 405 `invalid_request_error`.
    MethodNotAllowed,
    /// The body is too large: 413 `request_too_large`.
    TooLarge,
    /// The body is not JSON by its content type: 415 `invalid_request_error`.
    UnsupportedMediaType,
    /// A fault of the server: 500 `server_error`.
    Server,
    /// Something that this model or server cannot do: 501 `not_supported_error`.
    NotSupported,
    /// The queue is full, or the server is loading, draining or stalled: 503 `unavailable_error`.
    Unavailable,
    /// The request's deadline has passed: 504 `timeout_error`.
    Timeout,
}

impl ErrorKind {
    /// The HTTP status.
    pub fn status(self) -> StatusCode {
        match self {
            ErrorKind::InvalidRequest | ErrorKind::ExceedsContext => StatusCode::BAD_REQUEST,
            ErrorKind::Authentication => StatusCode::UNAUTHORIZED,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ErrorKind::Server => StatusCode::INTERNAL_SERVER_ERROR,
            ErrorKind::NotSupported => StatusCode::NOT_IMPLEMENTED,
            ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The `type` in OpenAI's envelope.
    pub fn openai_type(self) -> &'static str {
        match self {
            ErrorKind::InvalidRequest | ErrorKind::MethodNotAllowed | ErrorKind::UnsupportedMediaType => {
                "invalid_request_error"
            }
            ErrorKind::ExceedsContext => "exceed_context_size_error",
            ErrorKind::Authentication => "authentication_error",
            ErrorKind::NotFound => "not_found_error",
            ErrorKind::TooLarge => "request_too_large",
            ErrorKind::Server => "server_error",
            ErrorKind::NotSupported => "not_supported_error",
            ErrorKind::Unavailable => "unavailable_error",
            ErrorKind::Timeout => "timeout_error",
        }
    }

    /// The `type` in Anthropic's envelope.
    pub fn anthropic_type(self) -> &'static str {
        match self {
            ErrorKind::InvalidRequest
            | ErrorKind::ExceedsContext
            | ErrorKind::MethodNotAllowed
            | ErrorKind::UnsupportedMediaType
            | ErrorKind::NotSupported => "invalid_request_error",
            ErrorKind::Authentication => "authentication_error",
            ErrorKind::NotFound => "not_found_error",
            ErrorKind::TooLarge => "request_too_large",
            ErrorKind::Server => "api_error",
            ErrorKind::Unavailable => "overloaded_error",
            ErrorKind::Timeout => "timeout_error",
        }
    }
}

/// An error of the API, before it is written in the envelope of the API that was called.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    /// What kind of error it is.
    pub kind: ErrorKind,
    /// What is wrong, for people.
    pub message: String,
    /// Path of the field that is wrong, such as `messages[1].content`.
    pub param: Option<String>,
    /// Numbers of a prompt that is too long.
    pub context: Option<ContextNumbers>,
    /// Seconds after which trying again makes sense.
    pub retry_after: Option<u32>,
}

/// Numbers of a prompt that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextNumbers {
    /// Tokens of the prompt.
    pub n_prompt_tokens: usize,
    /// Tokens that a sequence may have.
    pub n_ctx: usize,
}

impl ApiError {
    /// An error without a field.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> ApiError {
        ApiError { kind, message: message.into(), param: None, context: None, retry_after: None }
    }

    /// A field of the request that is wrong.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> ApiError {
        ApiError { param: Some(param.into()), ..ApiError::new(ErrorKind::InvalidRequest, message) }
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

impl ApiError {
    /// The model or the server cannot do this.
    pub fn not_supported(param: impl Into<String>, message: impl Into<String>) -> ApiError {
        ApiError { param: Some(param.into()), ..ApiError::new(ErrorKind::NotSupported, message) }
    }
}

/// How an API writes errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorStyle {
    OpenAi,
    Anthropic,
    Ollama,
}

impl ErrorStyle {
    /// That of the API to which a path belongs.
    pub(crate) fn of_path(path: &str) -> ErrorStyle {
        match path.strip_prefix("/v1").unwrap_or(path) {
            path if path == "/messages" || path.starts_with("/messages/") => ErrorStyle::Anthropic,
            path if path.starts_with("/api/") => ErrorStyle::Ollama,
            _ => ErrorStyle::OpenAi,
        }
    }

    /// The body of an error.
    pub(crate) fn json(self, error: &ApiError) -> Json {
        match self {
            ErrorStyle::OpenAi => openai_json(error),
            ErrorStyle::Anthropic => json!({
                "type": "error",
                "error": {"type": error.kind.anthropic_type(), "message": error.message},
            }),
            ErrorStyle::Ollama => json!({"error": error.message}),
        }
    }
}

fn openai_json(error: &ApiError) -> Json {
    let mut body = json!({
        "code": error.kind.status().as_u16(),
        "message": error.message,
        "type": error.kind.openai_type(),
        "param": error.param,
    });
    if let Some(ContextNumbers { n_prompt_tokens, n_ctx }) = error.context {
        body["n_prompt_tokens"] = n_prompt_tokens.into();
        body["n_ctx"] = n_ctx.into();
    }
    json!({ "error": body })
}

impl IntoResponse for ApiError {
    /// The status; the body is written where the API that was called is known.
    fn into_response(self) -> Response {
        let mut response = self.kind.status().into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// Gives an error its body, in the style of the API that was called.
pub(crate) async fn write_error(request: Request, next: Next) -> Response {
    let style = ErrorStyle::of_path(request.uri().path());
    let mut response = next.run(request).await;
    let Some(error) = response.extensions_mut().remove::<ApiError>() else { return response };
    let (parts, _) = response.into_parts();
    let body = axum::Json(style.json(&error)).into_response();
    let mut written = Response::from_parts(parts, axum::body::Body::empty());
    written.headers_mut().extend(body.headers().clone());
    *written.body_mut() = body.into_body();
    written
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> ApiError {
        let message = error.to_string();
        match error {
            SubmitError::ExceedsContext { n_prompt_tokens, n_ctx } => {
                let context = Some(ContextNumbers { n_prompt_tokens, n_ctx });
                ApiError { context, ..ApiError::new(ErrorKind::ExceedsContext, message) }
            }
            SubmitError::ExceedsKv { n_prompt_tokens, kv_tokens } => {
                let context = Some(ContextNumbers { n_prompt_tokens, n_ctx: kv_tokens });
                ApiError { context, ..ApiError::new(ErrorKind::ExceedsContext, message) }
            }
            SubmitError::QueueFull { .. } => {
                ApiError { retry_after: Some(1), ..ApiError::new(ErrorKind::Unavailable, message) }
            }
            SubmitError::Stopped => ApiError::new(ErrorKind::Unavailable, message),
            SubmitError::Invalid(error) => {
                let param = match &error {
                    RequestError::Sampling(ParamError::OutOfRange { param, .. }) => Some(param.to_string()),
                    _ => None,
                };
                ApiError { param, ..ApiError::new(ErrorKind::InvalidRequest, message) }
            }
            // A refusal that this server does not know yet.
            _ => ApiError::new(ErrorKind::InvalidRequest, message),
        }
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> ApiError {
        let kind = match error.class() {
            ErrorClass::Request => ErrorKind::InvalidRequest,
            ErrorClass::Unavailable if error == EngineError::Deadline => ErrorKind::Timeout,
            ErrorClass::Unavailable => ErrorKind::Unavailable,
            ErrorClass::Failure => ErrorKind::Server,
        };
        ApiError::new(kind, error.to_string())
    }
}

impl From<SessionError> for ApiError {
    fn from(error: SessionError) -> ApiError {
        let message = error.to_string();
        let not_found = |source: &std::io::Error| source.kind() == std::io::ErrorKind::NotFound;
        match error {
            SessionError::NoSession => ApiError::new(ErrorKind::NotFound, message),
            SessionError::Io { source, .. } if not_found(&source) => {
                ApiError { param: Some("filename".to_owned()), ..ApiError::new(ErrorKind::NotFound, message) }
            }
            SessionError::Io { .. } | SessionError::Backend(_) | SessionError::NoFolder(_) => {
                ApiError::new(ErrorKind::Server, message)
            }
            SessionError::Busy
            | SessionError::Interrupted
            | SessionError::Stopped
            | SessionError::NotInCache(_)
            | SessionError::Store(_) => {
                ApiError { retry_after: Some(1), ..ApiError::new(ErrorKind::Unavailable, message) }
            }
            // What is wrong with the file.
            _ => ApiError::invalid("filename", format!("`filename`: {message}")),
        }
    }
}

impl From<minfer::Error> for ApiError {
    /// Errors of templates and of encoding; those of generations come as [`EngineError`].
    fn from(error: minfer::Error) -> ApiError {
        let kind = match error.kind() {
            minfer::ErrorKind::Template | minfer::ErrorKind::InvalidParameter => ErrorKind::InvalidRequest,
            _ => ErrorKind::Server,
        };
        ApiError::new(kind, error.to_string())
    }
}

impl From<TemplateError> for ApiError {
    fn from(error: TemplateError) -> ApiError {
        let message = error.to_string();
        match error {
            TemplateError::InvalidMessage { index, .. } => {
                ApiError::invalid(format!("messages[{index}]"), message)
            }
            TemplateError::NoThread(_) => ApiError::new(ErrorKind::Server, message),
            _ => ApiError::new(ErrorKind::InvalidRequest, message),
        }
    }
}
