//! Settings of the server.

use std::path::PathBuf;
use std::time::Duration;

/// Settings of one server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where it listens: addresses, names, or `unix:PATH`.
    pub hosts: Vec<String>,
    /// The port of every host that is no path; 0 takes a free one.
    pub port: u16,
    /// Keys of which a client must send one; none lets everybody in.
    pub api_keys: Vec<String>,
    /// Origins whose pages may call the server; `*` is any.
    pub cors_origins: Vec<String>,
    /// Certificate chain and private key in PEM; without them the server speaks plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Bytes that a request's body may have.
    pub most_body_bytes: usize,
    /// How long a client may take to send its request.
    pub read_timeout: Duration,
    /// The file that keeps the conversations of the slots; where there are several models, each has
    /// one with its name behind this one's.
    pub slots_file: Option<PathBuf>,
    /// The folder of files that clients save slots to and restore them from.
    pub slot_save_path: Option<PathBuf>,
    /// How long running requests may go on once the server is told to stop.
    pub drain_timeout: Duration,
}

/// Files of a TLS server.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// Certificate chain, PEM.
    pub certificate: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            hosts: vec!["127.0.0.1".to_owned()],
            port: 8080,
            api_keys: Vec::new(),
            cors_origins: Vec::new(),
            tls: None,
            most_body_bytes: 32 << 20,
            read_timeout: Duration::from_secs(60),
            slots_file: None,
            slot_save_path: None,
            drain_timeout: Duration::from_secs(30),
        }
    }
}
