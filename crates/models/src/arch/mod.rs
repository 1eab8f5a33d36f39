//! One file for each family: hyperparameters, tensors, graph.

pub mod gemma;
pub mod gemma2;
pub mod gemma3;
pub mod glm4;
pub mod granite;
pub mod llama;
pub mod olmo2;
pub mod phi3;
pub mod qwen2;
pub mod qwen3;
pub mod smollm3;
