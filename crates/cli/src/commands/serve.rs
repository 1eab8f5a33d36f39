//! `minfer serve`: a model over HTTP.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use minfer::engine::EngineConfig;
use minfer::{LoadError, LoadOptions, Model};
use minfer_server::{LoadFault, Observer, Served, ServerConfig, Source, TlsFiles};
use tracing_subscriber::EnvFilter;

use super::{input, prompt};
use crate::args::{LogFormat, ServeArgs};
use crate::counted::counted;
use crate::signals::Interrupts;
use crate::{loading, output};

/// How often signals are looked for.
const POLL: Duration = Duration::from_millis(25);

pub(super) fn serve(args: ServeArgs) -> Result<()> {
    let config = config(&args)?;
    if config.api_keys.is_empty() && args.host.iter().any(|host| !is_local(host)) {
        output::note("warning: without --api-key everybody who reaches this host may use the server");
    }
    log_to_stderr(args.log_format);
    let sources = sources(&args)?;
    let interrupts = Interrupts::listen().map_err(output::no_signals)?;
    let stop = async move {
        while interrupts.code().is_none() {
            tokio::time::sleep(POLL).await;
        }
    };
    Ok(minfer_server::run(config, sources, &Notes, stop)?)
}

/// The models, all of them for one machine. What is not found is an error at once.
fn sources(args: &ServeArgs) -> Result<Vec<Source>> {
    if args.model_name.len() > args.models.len() {
        return Err(output::Wrong(format!(
            "--model-name has {} for {}",
            counted(args.model_name.len(), "name"),
            counted(args.models.len(), "model")
        ))
        .into());
    }
    let machine = loading::machine(&args.context)?;
    let options = LoadOptions {
        n_slots: args.n_slots,
        prefix_cache: !args.no_prefix_cache,
        speculation: !args.no_speculation,
        chat_template: args.chat_template.as_deref().map(prompt::template_choice).transpose()?,
        ..loading::load_options(&args.model_args, &args.tokenizer, &args.context)
    };
    let (queue, step_target) = (args.queue as usize, args.step_target);
    let source = |(index, model): (usize, &OsString)| {
        loading::find(model)?;
        let name = args.model_name.get(index).cloned().unwrap_or_else(|| name_of(model));
        let (machine, options, model) = (machine.clone(), options.clone(), model.clone());
        let served = name.clone();
        let load = move || -> Result<Served> {
            let loaded = loading::load_on(&machine, loading::find(&model)?, &options)?;
            let defaults = loaded.engine_config();
            let step_target = step_target.unwrap_or(defaults.step_target);
            let config = EngineConfig { queue, step_target, ..defaults };
            let model = Model::from_loaded(loaded, config, machine.clone(), &model)?;
            let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
            Ok(Served::new(served.clone(), model, created))
        };
        let load = Box::new(move || load().map_err(|error| fault(&error)));
        Ok(Source { name, load })
    };
    args.models.iter().enumerate().map(source).collect()
}

fn fault(error: &anyhow::Error) -> LoadFault {
    let wants_memory = matches!(error.downcast_ref(), Some(LoadError::Memory { .. }));
    LoadFault { message: output::sentence(error), wants_memory }
}

/// The name of a file without its ending, or a name as it was given.
fn name_of(model: &OsStr) -> String {
    let path = Path::new(model);
    let is_file = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    let name = if is_file { path.file_stem().unwrap_or(model) } else { model };
    name.to_string_lossy().into_owned()
}

fn config(args: &ServeArgs) -> Result<ServerConfig> {
    let mut api_keys = args.api_key.clone();
    if let Some(path) = &args.api_key_file {
        let text = input::file_text(path).context("--api-key-file")?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let before = api_keys.len();
        api_keys.extend(lines.map(str::to_owned));
        if api_keys.len() == before {
            bail!("--api-key-file: {} has no key", path.display());
        }
    }
    if let Some(folder) = args.slot_save_path.as_deref().filter(|folder| !folder.is_dir()) {
        bail!("--slot-save-path: there is no folder {}", folder.display());
    }
    let tls = args.tls_cert.clone().zip(args.tls_key.clone());
    Ok(ServerConfig {
        hosts: args.host.clone(),
        port: args.port,
        api_keys,
        cors_origins: args.cors_origins.clone(),
        tls: tls.map(|(certificate, key)| TlsFiles { certificate, key }),
        slots_file: args.slots_file.clone(),
        slot_save_path: args.slot_save_path.clone(),
        drain_timeout: args.drain_timeout,
        ..ServerConfig::default()
    })
}

fn is_local(host: &str) -> bool {
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let address: Option<std::net::IpAddr> = name.parse().ok();
    host.starts_with("unix:") || name == "localhost" || address.is_some_and(|address| address.is_loopback())
}

fn log_to_stderr(format: LogFormat) {
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,minfer_server=info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second subscriber in one process would be a bug of the caller; logs then go to the first.
    let _ = match format {
        LogFormat::Text => builder.with_ansi(output::stderr_is_terminal()).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

/// Tells on stderr where the server is and when it is ready.
struct Notes;

impl Observer for Notes {
    fn listening(&self, urls: &[String], _: &[SocketAddr]) {
        output::note(&format!("listening on {}", urls.join(", ")));
    }

    fn ready(&self, served: &Served) {
        let (model, config) = (&served.model, served.model.engine().config());
        output::note(&format!(
            "{} is ready: {}, {}, {}, {}",
            served.name,
            counted(model.context(), "position"),
            counted(config.n_slots, "slot"),
            counted(model.machine().threads(), "thread"),
            model.machine().isa()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_named_by_their_file_or_as_given() {
        for (model, name) in [
            ("/a/b/tiny-q4_0.gguf", "tiny-q4_0"),
            ("smollm2", "smollm2"),
            ("qwen2.5-coder:0.5b", "qwen2.5-coder:0.5b"),
        ] {
            assert_eq!(name_of(model.as_ref()), name);
        }
    }

    #[test]
    fn hosts_of_this_machine_only() {
        for host in ["127.0.0.1", "localhost", "::1", "[::1]", "unix:/tmp/minfer.sock", "127.0.0.2"] {
            assert!(is_local(host), "{host}");
        }
        for host in ["0.0.0.0", "::", "192.168.0.1", "example.org"] {
            assert!(!is_local(host), "{host}");
        }
    }
}
