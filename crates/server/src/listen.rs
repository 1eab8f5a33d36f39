//! Sockets: addresses, Unix paths, sockets handed over by systemd, and TLS.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::Watcher;
use hyper_util::service::TowerToHyperService;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;

use crate::{ServerConfig, ServerError, TlsFiles};

/// How long a client may take to send the head of a request, or to shake hands.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long accepting pauses after the system refused it, as when files run out.
const PAUSE: Duration = Duration::from_millis(50);

/// A bound socket.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, OwnedPath),
}

/// A socket's path, which is removed at the end.
pub(crate) struct OwnedPath(PathBuf);

impl Drop for OwnedPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Binds every host, or takes the sockets that systemd hands over.
pub(crate) async fn bind(config: &ServerConfig) -> Result<Vec<Listener>, ServerError> {
    let mut listeners = from_systemd()?;
    if !listeners.is_empty() {
        return Ok(listeners);
    }
    for host in &config.hosts {
        let failed = |cause| ServerError::Bind { host: host.clone(), port: config.port, cause };
        let listener = match host.strip_prefix("unix:") {
            Some(path) => bind_unix(path.into()).map_err(failed)?,
            None => {
                let name = host.trim_start_matches('[').trim_end_matches(']');
                Listener::Tcp(TcpListener::bind((name, config.port)).await.map_err(failed)?)
            }
        };
        listeners.push(listener);
    }
    Ok(listeners)
}

/// A socket that nobody listens on any more is replaced; another file is not.
fn bind_unix(path: PathBuf) -> io::Result<Listener> {
    use std::os::unix::fs::FileTypeExt;
    let is_socket = std::fs::symlink_metadata(&path).is_ok_and(|data| data.file_type().is_socket());
    if is_socket && std::os::unix::net::UnixStream::connect(&path).is_err() {
        std::fs::remove_file(&path)?;
    }
    Ok(Listener::Unix(UnixListener::bind(&path)?, OwnedPath(path)))
}

fn from_systemd() -> Result<Vec<Listener>, ServerError> {
    let (mut passed, mut listeners) = (listenfd::ListenFd::from_env(), Vec::new());
    for index in 0..passed.len() {
        let taken = passed.take_tcp_listener(index).and_then(|listener| {
            listener
                .map(|listener| {
                    listener.set_nonblocking(true)?;
                    TcpListener::from_std(listener)
                })
                .transpose()
        });
        listeners.extend(taken.map_err(ServerError::Activation)?.map(Listener::Tcp));
    }
    Ok(listeners)
}

impl Listener {
    /// Where clients find it.
    pub(crate) fn address(&self, scheme: &str) -> String {
        match self {
            Listener::Tcp(listener) => match listener.local_addr() {
                Ok(address) => format!("{scheme}://{address}"),
                Err(_) => "a socket".to_owned(),
            },
            Listener::Unix(_, path) => format!("unix:{}", path.0.display()),
        }
    }

    /// The address, where it has one.
    pub(crate) fn local_address(&self) -> Option<std::net::SocketAddr> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Unix(..) => None,
        }
    }

    /// Serves connections for as long as the future is polled.
    pub(crate) async fn serve(self, router: Router, tls: Option<TlsAcceptor>, watcher: impl Fn() -> Watcher) {
        loop {
            let (router, tls, watcher) = (router.clone(), tls.clone(), watcher());
            let accepted = match &self {
                Listener::Tcp(listener) => listener.accept().await.map(|(stream, _)| {
                    // Tokens are small and must not wait for each other.
                    let _ = stream.set_nodelay(true);
                    tokio::spawn(shake_hands(stream, router, tls, watcher));
                }),
                Listener::Unix(listener, _) => listener.accept().await.map(|(stream, _)| {
                    tokio::spawn(shake_hands(stream, router, tls, watcher));
                }),
            };
            if let Err(error) = accepted {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Serves one connection, behind TLS where there is a certificate.
async fn shake_hands<S>(stream: S, router: Router, tls: Option<TlsAcceptor>, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some(tls) = tls else { return connection(stream, router, watcher).await };
    match tokio::time::timeout(HEAD_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => connection(stream, router, watcher).await,
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

async fn connection<S>(stream: S, router: Router, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = TowerToHyperService::new(tower::ServiceExt::map_request(
        router,
        |request: hyper::Request<Incoming>| request.map(axum::body::Body::new),
    ));
    // The future of a request is dropped when its client closes the connection, which cancels what
    // was asked.
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "a connection ended");
    }
}

/// The certificate and the key of a TLS server.
pub(crate) fn tls(files: &TlsFiles) -> Result<TlsAcceptor, ServerError> {
    let failed = |path: &PathBuf, reason: String| ServerError::Tls { path: path.clone(), reason };
    let open = |path: &PathBuf| {
        File::open(path).map(BufReader::new).map_err(|error| failed(path, error.to_string()))
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_reader_iter(open(&files.certificate)?).collect();
    let chain = chain.map_err(|error| failed(&files.certificate, error.to_string()))?;
    let key = PrivateKeyDer::from_pem_reader(open(&files.key)?)
        .map_err(|error| failed(&files.key, error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| failed(&files.certificate, error.to_string()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
