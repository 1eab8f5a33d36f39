//! NumPy's `default_rng(seed).standard_normal()`, number for number.
//!
//! Seeding is O'Neill's seed sequence ("Developing a seed_seq alternative"), the generator is PCG
//! XSL-RR 128/64 (O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good
//! Algorithms for Random Number Generation"), and normals come from a ziggurat of 256 layers
//! (Marsaglia and Tsang, "The Ziggurat Method for Generating Random Variables").

/// Where the base layer of the ziggurat ends and the tail begins.
const TAIL_START: f64 = 3.654_152_885_361_009;
/// The area of each layer.
const LAYER_AREA: f64 = 0.004_928_673_233_974_652;
/// Random mantissas are below this.
const MANTISSA_RANGE: f64 = (1_u64 << 52) as f64;

/// A generator of standard normals.
#[derive(Debug, Clone)]
pub struct NormalRng {
    bits: Pcg64,
    layers: Ziggurat,
}

impl NormalRng {
    /// The generator that NumPy makes from a small seed.
    pub fn new(seed: u32) -> NormalRng {
        NormalRng { bits: Pcg64::new(seed), layers: Ziggurat::new() }
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.bits.next_u64()
    }

    /// A number drawn from the normal distribution of mean 0 and variance 1.
    pub fn standard_normal(&mut self) -> f64 {
        loop {
            let bits = self.bits.next_u64();
            let layer = (bits & 0xff) as usize;
            let negative = (bits >> 8) & 1 == 1;
            let mantissa = (bits >> 9) & ((1 << 52) - 1);
            let magnitude = mantissa as f64 * self.layers.width[layer];
            let x = if negative { -magnitude } else { magnitude };
            if mantissa < self.layers.inside[layer] {
                return x;
            }
            if layer == 0 {
                let far = self.tail();
                return if (mantissa >> 8) & 1 == 1 { -far } else { far };
            }
            let (below, above) = (self.layers.height[layer - 1], self.layers.height[layer]);
            if (below - above) * self.bits.next_f64() + above < (-0.5 * x * x).exp() {
                return x;
            }
        }
    }

    fn tail(&mut self) -> f64 {
        loop {
            let x = -(1.0 / TAIL_START) * (-self.bits.next_f64()).ln_1p();
            let y = -(-self.bits.next_f64()).ln_1p();
            if y + y > x * x {
                return TAIL_START + x;
            }
        }
    }
}

/// PCG XSL-RR 128/64.
#[derive(Debug, Clone)]
struct Pcg64 {
    state: u128,
    increment: u128,
}

impl Pcg64 {
    const MULTIPLIER: u128 = (2_549_297_995_355_413_924 << 64) | 4_865_540_595_714_422_341;

    fn new(seed: u32) -> Pcg64 {
        let [a, b, c, d] = seed_sequence(seed).map(u128::from);
        let mut generator = Pcg64 { state: 0, increment: (((c << 64) | d) << 1) | 1 };
        generator.step();
        generator.state = generator.state.wrapping_add((a << 64) | b);
        generator.step();
        generator
    }

    fn step(&mut self) {
        self.state = self.state.wrapping_mul(Self::MULTIPLIER).wrapping_add(self.increment);
    }

    fn next_u64(&mut self) -> u64 {
        self.step();
        let folded = (self.state >> 64) as u64 ^ self.state as u64;
        folded.rotate_right((self.state >> 122) as u32)
    }

    /// Uniform in [0, 1), 53 random bits.
    fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Four words of state from one word of entropy.
fn seed_sequence(seed: u32) -> [u64; 4] {
    let mut constant = 0x43b0_d7e5_u32;
    let mut hash = |mut value: u32| {
        value ^= constant;
        constant = constant.wrapping_mul(0x931e_8875);
        value = value.wrapping_mul(constant);
        value ^ (value >> 16)
    };
    let mut pool = [seed, 0, 0, 0].map(&mut hash);
    for source in 0..pool.len() {
        for target in (0..pool.len()).filter(|&target| target != source) {
            let mixed = pool[target]
                .wrapping_mul(0xca01_f9dd)
                .wrapping_sub(hash(pool[source]).wrapping_mul(0x4973_f715));
            pool[target] = mixed ^ (mixed >> 16);
        }
    }
    let mut constant = 0x8b51_f9dd_u32;
    let mut word = |index: usize| {
        let mut value = pool[index % pool.len()] ^ constant;
        constant = constant.wrapping_mul(0x58f3_8ded);
        value = value.wrapping_mul(constant);
        u64::from(value ^ (value >> 16))
    };
    std::array::from_fn(|index| word(2 * index) | (word(2 * index + 1) << 32))
}

/// Layers of equal area under exp(-x^2 / 2).
#[derive(Debug, Clone)]
struct Ziggurat {
    /// Mantissas below this lie under the curve without a further look.
    inside: [u64; 256],
    /// The layer's right edge, per unit of mantissa.
    width: [f64; 256],
    /// The curve at the layer's right edge.
    height: [f64; 256],
}

impl Ziggurat {
    fn new() -> Ziggurat {
        let (mut inside, mut width, mut height) = ([0; 256], [0.0; 256], [0.0; 256]);
        let mut edge = TAIL_START;
        width[255] = edge / MANTISSA_RANGE;
        height[255] = (-0.5 * edge * edge).exp();
        inside[0] = (edge * height[255] / LAYER_AREA * MANTISSA_RANGE) as u64;
        width[0] = LAYER_AREA / height[255] / MANTISSA_RANGE;
        height[0] = 1.0;
        for layer in (1..255).rev() {
            let next = (-2.0 * (LAYER_AREA / edge + height[layer + 1]).ln()).sqrt();
            inside[layer + 1] = (next / edge * MANTISSA_RANGE) as u64;
            width[layer] = next / MANTISSA_RANGE;
            height[layer] = (-0.5 * next * next).exp();
            edge = next;
        }
        Ziggurat { inside, width, height }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_numpys() {
        // np.random.default_rng(s).bit_generator.random_raw(2)
        for (seed, wanted) in [(0, WANTED_RAW_0), (531, WANTED_RAW_531)] {
            let mut rng = NormalRng::new(seed);
            assert_eq!([rng.next_u64(), rng.next_u64()], wanted, "seed {seed}");
        }
    }

    #[test]
    fn normals_are_numpys() {
        // x = np.random.default_rng(7).standard_normal(1_000_000)
        let mut rng = NormalRng::new(7);
        let values: Vec<f64> = (0..1_000_000).map(|_| rng.standard_normal()).collect();
        let near = |found: f64, wanted: f64| (found - wanted).abs() <= 1e-13 * wanted.abs();
        assert!(near(values[0], WANTED_FIRST), "{}", values[0]);
        assert!(near(values[999_999], WANTED_LAST), "{}", values[999_999]);
        // The largest lies in the tail, so both slow paths were taken on the way to the last.
        let largest = values.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
        assert!(near(largest, WANTED_LARGEST), "{largest}");
    }

    const WANTED_RAW_0: [u64; 2] = [11749869230777074271, 4976686463289251617];
    const WANTED_RAW_531: [u64; 2] = [15407966641469787121, 17204198735955618987];
    const WANTED_FIRST: f64 = 0.0012301533574825742;
    const WANTED_LAST: f64 = 1.617001458485082;
    const WANTED_LARGEST: f64 = 4.947871460149176;
}
