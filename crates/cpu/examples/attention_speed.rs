//! Prints how fast attention is: `cargo run --release -p minfer-cpu --example attention_speed [ROUNDS]`.

use minfer_cpu::speed::{AttentionShape, attention};
use minfer_cpu::{Isa, Pool};
use minfer_graph::KvFormat;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(20), |text| text.parse())?;
    println!("heads/kv dim format | threads | prefill 512, 4096 GFLOP/s | decode at 512, 4096 GB/s, GFLOP/s");
    for (heads, kv_heads, dim) in [(9, 3, 64), (14, 2, 64), (12, 2, 128), (4, 1, 256)] {
        for format in KvFormat::ALL {
            for threads in [1, 2] {
                let pool = Pool::new(threads)?;
                print!("{heads:2}/{kv_heads} {dim:3} {format:4} | {threads} |");
                for (cached, queries) in [(0, 512), (3584, 512), (511, 1), (4095, 1)] {
                    let shape = AttentionShape { heads, kv_heads, dim, format, cached, queries };
                    let rounds = if queries == 1 { 20 * rounds } else { rounds };
                    let speed = attention(&pool, Isa::best(), shape, rounds)?;
                    let gflops = speed.flops / speed.seconds / 1e9;
                    if queries == 1 {
                        print!(" {:6.1} {gflops:6.1}", speed.bytes / speed.seconds / 1e9);
                    } else {
                        print!(" {gflops:6.1}");
                    }
                }
                println!();
            }
        }
    }
    Ok(())
}
