//! Prints the machine's limits: `cargo run --release -p minfer-cpu --example limits`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for threads in [1, 2] {
        let pool = minfer_cpu::Pool::new(threads)?;
        for isa in minfer_cpu::Isa::available() {
            let peak = minfer_cpu::limits::int8_peak(&pool, isa, 5) / 1e9;
            print!("{threads} threads, {isa}: int8 {peak:.0} GOP/s, read");
            for megabytes in [1, 16, 96, 480, 1024] {
                let rate = minfer_cpu::limits::buffer_bandwidth(&pool, isa, megabytes << 20, 5)? / 1e9;
                print!(" {megabytes} MiB {rate:.1} GB/s");
            }
            println!();
        }
    }
    Ok(())
}
