//! The HTTP server: the APIs of OpenAI, Anthropic and Ollama on one engine.
//!
//! A route reads its own JSON and makes one neutral request of it
//! ([`generate::chat::ChatRequest`]). [`generate`] runs it on the engine and gives back a stream of
//! [`generate::output::Output`]s, which the route writes in its API's shape, whole or as events.
//! Errors are [`error::ApiError`]s.
//!
//! The HTTP runtime has threads of its own and never runs a model; the engine's worker never waits
//! for a client.
#![forbid(unsafe_code)]

mod anthropic;
mod app;
mod auth;
mod config;
pub mod error;
pub mod generate;
mod id;
mod infill;
mod json;
mod listen;
mod metrics;
mod native;
mod ollama;
mod openai;
mod registry;
mod routes;
mod slots;
mod slots_file;
mod state;
mod stream;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use hyper_util::server::graceful::GracefulShutdown;

pub use config::{ServerConfig, TlsFiles};
pub use registry::{LoadFault, Source};
pub use state::Served;

use state::App;

/// What responses say of the program that made them.
pub(crate) const FINGERPRINT: &str = concat!("minfer-", env!("CARGO_PKG_VERSION"));
/// Threads of the HTTP runtime.
const THREADS: usize = 2;
/// How often the end of requests is looked for while the server drains.
const POLL: Duration = Duration::from_millis(20);
/// How long connections may take to send what was answered, at the end.
const LAST_BYTES: Duration = Duration::from_secs(2);

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A host or a path that cannot be listened on.
    #[error("--host {host}, port {port}: {cause}")]
    Bind {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// The system's reason.
        cause: io::Error,
    },
    /// A socket that was handed over cannot be used.
    #[error("the socket that was handed over cannot be used: {0}")]
    Activation(io::Error),
    /// The certificate or the key cannot be used.
    #[error("{}: {reason}", path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// No thread could be started.
    #[error("the threads of the HTTP server could not be started: {0}")]
    Threads(io::Error),
    /// The first model cannot be loaded.
    #[error("{0}")]
    Load(String),
}

/// What a server tells about its course.
pub trait Observer: Send + Sync {
    /// It listens. Until the model is loaded requests are answered with 503.
    fn listening(&self, urls: &[String], addresses: &[SocketAddr]);
    /// The model is loaded.
    fn ready(&self, served: &Served);
}

/// Listens, loads the first model, and serves all of them until `stop` is ready: the others are
/// loaded when a request first names them. Then running requests get
/// [`ServerConfig::drain_timeout`] to end.
///
/// # Errors
/// An address cannot be listened on, the certificate cannot be used, or loading failed.
pub fn run(
    config: ServerConfig,
    sources: Vec<Source>,
    observer: &dyn Observer,
    stop: impl Future<Output = ()>,
) -> Result<(), ServerError> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(THREADS).thread_name("minfer-http").enable_all().build();
    let runtime = runtime.map_err(ServerError::Threads)?;
    let served = runtime.block_on(serve(config, sources, observer, stop));
    // Renderings that nobody waits for any more are not waited for.
    runtime.shutdown_background();
    served
}

async fn serve(
    config: ServerConfig,
    sources: Vec<Source>,
    observer: &dyn Observer,
    stop: impl Future<Output = ()>,
) -> Result<(), ServerError> {
    let tls = config.tls.as_ref().map(listen::tls).transpose()?;
    let listeners = listen::bind(&config).await?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let urls: Vec<String> = listeners.iter().map(|listener| listener.address(scheme)).collect();
    let addresses: Vec<SocketAddr> = listeners.iter().filter_map(listen::Listener::local_address).collect();
    let app = Arc::new(App::new(config, sources));
    let router = app::router(&app);
    let graceful = Arc::new(GracefulShutdown::new());
    let accepting = listeners.into_iter().map(|listener| {
        let graceful = Arc::clone(&graceful);
        listener.serve(router.clone(), tls.clone(), move || graceful.watcher())
    });
    let mut accept = Box::pin(join_all(accepting.collect::<Vec<_>>()));
    observer.listening(&urls, &addresses);
    let registry = Arc::clone(&app.registry);
    let mut loading = tokio::task::spawn_blocking(move || registry.load(0));
    let mut stop = pin!(stop);
    let loaded = tokio::select! {
        loaded = &mut loading => Some(loaded),
        () = &mut stop => None,
        _ = &mut accept => None,
    };
    let Some(loaded) = loaded else { return Ok(()) };
    let served = loaded.map_err(|panic| panic.to_string()).and_then(|loaded| loaded);
    let served = served.map_err(ServerError::Load)?;
    observer.ready(&served);
    app.start();
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    tokio::select! {
        () = &mut stop => {}
        _ = &mut accept => {}
    }
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    app.drain();
    tokio::select! {
        () = drain(&app) => {}
        _ = &mut accept => {}
    }
    drop(accept);
    let registry = Arc::clone(&app.registry);
    // Writing the slots' files takes a while.
    let _ = tokio::task::spawn_blocking(move || registry.close()).await;
    // Connections that are left after that are dropped, which cancels what they wait for.
    if let Ok(graceful) = Arc::try_unwrap(graceful) {
        let _ = tokio::time::timeout(LAST_BYTES, graceful.shutdown()).await;
    }
    Ok(())
}

/// Waits until all answers are generated and sent, as long as they may take.
async fn drain(app: &App) {
    let idle = async {
        while app.answering.load(Ordering::Acquire) > 0 {
            tokio::time::sleep(POLL).await;
        }
    };
    if tokio::time::timeout(app.config.drain_timeout, idle).await.is_err() {
        tracing::warn!("requests were still running at the end of the drain timeout");
    }
}
