//! `minfer pull`, `minfer list` and `minfer rm`.

use anyhow::Result;
use minfer_hub::CATALOG;
use serde_json::json;

use crate::args::{ListArgs, PullArgs, RmArgs};
use crate::{loading, output};

/// Brings a model into the cache.
pub(super) fn pull(args: &PullArgs) -> Result<()> {
    let cache = loading::cache()?;
    let target = minfer_hub::pull_target(&args.name, &cache)?;
    let pulled = loading::pull(&target, &cache)?;
    let state = if pulled.already { "is there" } else { "pulled" };
    output::note(&format!("{state}: {} ({})", pulled.path.display(), output::bytes(pulled.bytes)));
    Ok(())
}

/// Lists what is in the cache, then what can be pulled by name.
pub(super) fn list(args: &ListArgs) -> Result<()> {
    let cache = loading::cache()?;
    let models = minfer_hub::list(&cache)?;
    let missing = CATALOG.iter().filter(|entry| models.iter().all(|model| model.file != entry.file));
    if args.json {
        let present =
            models.iter().map(|model| json!({"name": model.name, "file": model.file, "bytes": model.bytes}));
        let available = missing.map(|entry| json!({"name": entry.name, "bytes": entry.bytes}));
        let listing = json!({
            "folder": cache.path(),
            "models": present.collect::<Vec<_>>(),
            "available": available.collect::<Vec<_>>(),
        });
        println!("{listing}");
        return Ok(());
    }
    for model in &models {
        println!("{:24} {:>12}  {}", model.name, output::bytes(model.bytes), model.path.display());
    }
    for entry in missing {
        println!("{:24} {:>12}  (minfer pull {})", entry.name, output::bytes(entry.bytes), entry.name);
    }
    Ok(())
}

/// Removes a model from the cache.
pub(super) fn remove(args: &RmArgs) -> Result<()> {
    let freed = minfer_hub::remove(&args.name, &loading::cache()?)?;
    output::note(&format!("removed {}, {} freed", args.name, output::bytes(freed)));
    Ok(())
}
