//! One file for each family: hyperparameters, tensors, graph.

pub mod llama;
pub mod qwen2;
