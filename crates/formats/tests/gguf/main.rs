//! Tests of the GGUF reader and writer through their public interface.

mod allocations;
mod bad_files;
mod corruption;
mod getters;
mod open;
mod raw;
mod real_models;
mod round_trip;
mod split;
mod table;
mod walk;
