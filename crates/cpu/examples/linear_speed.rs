//! Prints how fast products, packing and quantising are, and their shares of what the machine does in the same minute:
//! `cargo run --release -p minfer-cpu --example linear_speed [ROUNDS] [ISA] [TYPE]`.

use minfer_cpu::speed::{LinearShape, linear, pack, quantise};
use minfer_cpu::{Isa, Pool, limits};
use minfer_tensor::DType;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let rounds = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let isa = Isa::choose(&arguments.next().unwrap_or_else(|| "auto".to_owned()))?;
    let only = arguments.next();
    println!("{isa}; GOP/s and GB/s, in brackets the share of the peak or of the bandwidth around it");
    for threads in [1, 2] {
        let pool = Pool::new(threads)?;
        let floats = quantise(&pool, isa, 480, 1024, rounds);
        println!("{threads} threads: quantise {:.1} GB/s of f32", floats.bytes / floats.seconds / 1e9);
        for dtype in DType::ALL
            .into_iter()
            .filter(|dtype| dtype.is_real())
            .filter(|dtype| only.as_ref().is_none_or(|only| only == dtype.name()))
        {
            row(&pool, isa, dtype, rounds)?;
        }
    }
    Ok(())
}

fn row(pool: &Pool, isa: Isa, dtype: DType, rounds: usize) -> Result<(), Box<dyn std::error::Error>> {
    print!("{dtype:7}");
    for (rows, columns, tokens) in [(4864, 1024, 480), (1024, 4864, 480), (4864, 1024, 32), (4864, 1024, 8)] {
        let columns = if dtype.block_len() == 256 { columns / 256 * 256 } else { columns };
        let before = limits::int8_peak(pool, isa, 3);
        let speed = linear(pool, isa, LinearShape { dtype, rows, columns, tokens }, rounds)?;
        let peak = before.max(limits::int8_peak(pool, isa, 3));
        let done = speed.operations / speed.seconds;
        print!(" | T{tokens} {:6.0} ({:2.0} %)", done / 1e9, 100.0 * done / peak);
    }
    // The bandwidth is that of a buffer of the same size, since part of it may stay in a cache.
    let shape = LinearShape { dtype, rows: 32768, columns: 4096, tokens: 1 };
    let mut speed = linear(pool, isa, shape, rounds)?;
    let bandwidth = limits::buffer_bandwidth(pool, isa, speed.bytes as usize, rounds)?;
    let again = linear(pool, isa, shape, rounds)?;
    speed.seconds = speed.seconds.min(again.seconds);
    let read = speed.bytes / speed.seconds;
    print!(" | T1 {:5.1} ({:3.0} %)", read / 1e9, 100.0 * read / bandwidth);
    let packed = pack(pool, LinearShape { rows: 16384, ..shape }, 2)?;
    println!(
        " | pack {:4.1} x {:.3}",
        packed.file_bytes / packed.seconds / 1e9,
        packed.bytes / packed.file_bytes
    );
    Ok(())
}
