//! Reads a GGUF file as a model: hyperparameters, checked tensors, graphs.

use std::collections::HashSet;
use std::sync::Arc;

use minfer_formats::gguf;
use minfer_graph::backend::{WeightError, WeightSource};
use minfer_graph::{KvChoice, KvFormat, KvLayout, KvSpec, KvSpecError, ModelGraph, WeightId};
use minfer_tensor::blocks::decode_row;

use crate::metadata::Overrides;
use crate::{
    AvailableTensors, ContextFactors, Family, Hyperparams, Metadata, MetadataOverride, ModelError,
    RopeHyperparams, RopeOverrides, TensorRule, TensorUse,
};

/// Overrides of a model file's metadata and RoPE settings, and the context length.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelOptions {
    /// Metadata values that replace the file's.
    pub metadata: Vec<MetadataOverride>,
    /// RoPE settings that replace the metadata's.
    pub rope: RopeOverrides,
    /// Positions of a sequence; absent: [`Model::default_context`]. Some models choose their
    /// rotation by it.
    pub n_ctx: Option<u32>,
}

/// A model file, checked: its hyperparameters and its graphs.
#[derive(Debug)]
pub struct Model {
    /// `general.name`, or the architecture where the file has no name.
    pub name: String,
    /// Its family.
    pub family: &'static Family,
    /// Its hyperparameters, overrides applied.
    pub hyperparams: Hyperparams,
    /// Its graphs. The names of their weights are those of the file's tensors.
    pub graph: ModelGraph,
    /// Elements of all tensors that it uses.
    pub parameters: u64,
    /// Names of tensors that the file has and the family does not know, in file order: worth a
    /// warning.
    pub unused: Vec<String>,
}

impl Model {
    /// Reads metadata and tensor entries, checks them against the family, and builds the model
    /// graph. Of the tensors' data only constants of the graph (rope factors) are read.
    ///
    /// # Errors
    /// The architecture is unknown, metadata or an override cannot be used, or a tensor is missing
    /// or has a wrong shape or type.
    pub fn read(file: &gguf::File, options: &ModelOptions) -> Result<Model, ModelError> {
        if let Some(list) = options.metadata.iter().find(|entry| is_list_of_tokenizer(&entry.key)) {
            return Err(ModelError::TokenizerOverride { key: list.key.clone() });
        }
        let overrides = Overrides::new(&options.metadata);
        let metadata = Metadata::new(file, &overrides);
        let architecture =
            metadata.string("general.architecture")?.ok_or_else(|| ModelError::MissingKey {
                key: "general.architecture".to_owned(),
                wanted: "the name of a model family".to_owned(),
            })?;
        let family = Family::of(architecture)?;
        let mut hyperparams = (family.hyperparameters)(&metadata)?;
        options.rope.apply(&mut hyperparams)?;
        let rules = (family.tensors)(&hyperparams);
        let (available, parameters) = check_tensors(file, &rules)?;
        read_rope_factors(file, &rules, &mut hyperparams.rope)?;
        hyperparams.rope.choose_factors(options.n_ctx.unwrap_or(hyperparams.default_context()));
        let known: HashSet<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
        let names = file.tensors().iter().map(|tensor| tensor.name());
        let name = metadata.string("general.name")?.unwrap_or(architecture).to_owned();
        overrides.refuse_useless(file.metadata())?;
        Ok(Model {
            name,
            family,
            graph: (family.graph)(&hyperparams, &available),
            hyperparams,
            parameters,
            unused: names.filter(|name| !known.contains(name)).map(str::to_owned).collect(),
        })
    }

    /// Positions that the model was trained for.
    pub fn context_length(&self) -> u32 {
        self.hyperparams.context_length
    }

    /// Positions of a sequence where nothing else is asked for.
    pub fn default_context(&self) -> u32 {
        self.hyperparams.default_context()
    }

    /// The geometry of the model's KV cache, as its model graph needs it.
    ///
    /// # Errors
    /// The block size is not allowed, or the format cannot store this head dim.
    pub fn kv_spec(
        &self,
        k_format: KvFormat,
        v_format: KvFormat,
        layout: KvLayout,
        block_tokens: u32,
        max_blocks: u32,
    ) -> Result<KvSpec, KvSpecError> {
        let choice = KvChoice { k_format, v_format, layout, block_tokens, max_blocks };
        let spec = KvSpec::for_model(&self.graph, choice);
        spec.validate()?;
        Ok(spec)
    }

    /// Access to the bytes of the model graph's weights in the file that the model was read from.
    ///
    /// # Panics
    /// `file` is another file and lacks a tensor.
    pub fn weights<'f>(&self, file: &'f gguf::File) -> FileWeights<'f> {
        let find = |name: &str| file.tensor(name).unwrap_or_else(|| panic!("{name} is not in this file"));
        FileWeights { file, tensors: self.graph.weights.iter().map(|weight| find(&weight.name)).collect() }
    }
}

/// Weights as a file stores them.
#[derive(Debug)]
pub struct FileWeights<'f> {
    file: &'f gguf::File,
    tensors: Vec<&'f gguf::Tensor>,
}

impl FileWeights<'_> {
    /// Bytes of all weights together.
    pub fn total_bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.byte_len()).sum()
    }
}

impl WeightSource for FileWeights<'_> {
    fn stored_bytes(&self, id: WeightId) -> u64 {
        self.tensors[id.0 as usize].byte_len()
    }

    fn read(&self, id: WeightId, offset: u64, target: &mut [u8]) -> Result<(), WeightError> {
        let read = self.file.read(self.tensors[id.0 as usize], offset, target);
        read.map_err(|error| WeightError(error.to_string()))
    }
}

/// Lists of the tokenizer and chat templates, which no override on a command line can hold.
fn is_list_of_tokenizer(key: &str) -> bool {
    const LISTS: [&str; 5] = ["tokens", "token_type", "scores", "merges", "precompiled_charsmap"];
    key.starts_with("tokenizer.chat_template")
        || key.strip_prefix("tokenizer.ggml.").is_some_and(|name| LISTS.contains(&name))
}

/// Checks the file's tensors against the rules. Returns those that become weights, and the number
/// of elements of all.
fn check_tensors(file: &gguf::File, rules: &[TensorRule]) -> Result<(AvailableTensors, u64), ModelError> {
    let (mut available, mut parameters) = (AvailableTensors::default(), 0);
    for rule in rules {
        let Some(tensor) = file.tensor(&rule.name) else {
            if rule.optional || rule.instead.as_ref().is_some_and(|name| file.tensor(name).is_some()) {
                continue;
            }
            return Err(ModelError::MissingTensor { name: rule.name.clone(), wanted: rule.shape.clone() });
        };
        let dtype = file.dtype(tensor)?;
        // GGUF counts dimensions from the contiguous one.
        let shape: Vec<u64> = tensor.dims().iter().rev().copied().collect();
        rule.check(&shape, dtype)?;
        parameters += tensor.elements();
        if rule.usage != TensorUse::Constant {
            available.insert(rule, dtype);
        }
    }
    Ok((available, parameters))
}

/// Puts the file's rope factors into the hyperparameters, where the family knows them and the file
/// has them.
fn read_rope_factors(
    file: &gguf::File,
    rules: &[TensorRule],
    rope: &mut RopeHyperparams,
) -> Result<(), ModelError> {
    rope.factors = constant(file, rules, "rope_freqs.weight")?;
    let [long, short] = ["rope_factors_long.weight", "rope_factors_short.weight"];
    rope.context_factors = match (constant(file, rules, long)?, constant(file, rules, short)?) {
        (Some(long), Some(short)) => Some(ContextFactors { short, long }),
        (None, None) => None,
        (found, _) => {
            let name = if found.is_none() { long } else { short };
            return Err(ModelError::MissingTensor { name: name.to_owned(), wanted: vec![rope.dims / 2] });
        }
    };
    Ok(())
}

/// The checked values of a constant of the graph: all positive.
fn constant(file: &gguf::File, rules: &[TensorRule], name: &str) -> Result<Option<Arc<[f32]>>, ModelError> {
    let rule = rules.iter().find(|rule| rule.name == name);
    let Some((rule, tensor)) = rule.and_then(|rule| Some((rule, file.tensor(&rule.name)?))) else {
        return Ok(None);
    };
    let mut values = vec![0.0; rule.shape.iter().product::<u32>() as usize];
    decode_row(file.dtype(tensor)?, &file.read_all(tensor)?, &mut values)
        .expect("shape and type were checked against the rule");
    match values.iter().position(|value| !(value.is_finite() && *value > 0.0)) {
        Some(index) => Err(ModelError::TensorValue { name: rule.name.clone(), index, value: values[index] }),
        None => Ok(Some(values.into())),
    }
}
