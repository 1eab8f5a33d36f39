//! The binary as a user meets it: every test runs it in a folder of its own, with no variable of
//! the caller's.

mod bad_files;
mod bench;
mod cache;
mod chat;
mod doctor;
mod help;
mod interrupt;
mod limits;
mod logprobs;
mod memory;
mod perplexity;
mod place;
mod plurals;
mod progress;
mod real;
mod run;
mod serve;
mod session;
mod show;
mod streams;
mod terminal;
mod text;
mod usage;
