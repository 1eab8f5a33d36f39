//! The model families, one file each with three functions: `hyperparameters` reads and checks the
//! metadata, `tensors` lists the tensors with their shapes, `graph` builds the body and head
//! graphs.

pub mod cohere2;
pub mod command_r;
pub mod exaone4;
pub mod falcon;
pub mod gemma;
pub mod gemma2;
pub mod gemma3;
pub mod glm4;
pub mod gpt2;
pub mod granite;
pub mod internlm2;
pub mod llama;
pub mod minicpm;
pub mod olmo2;
pub mod phi2;
pub mod phi3;
pub mod qwen2;
pub mod qwen3;
pub mod smollm3;
pub mod stablelm;
pub mod starcoder2;
