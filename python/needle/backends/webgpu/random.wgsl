// random converts Philox's words to elements, bit for bit as src/core/random_formulas.h does. A
// thread computes the four elements of a block.

// Coefficients of Wichura's AS 241, 8 each for numerator and denominator, central and in the tails.
const MIDDLE = array<vec2<u32>, 16>(
  vec2<u32>(0x40a39a29u, 0x6f7d925eu), vec2<u32>(0x40e052d2u, 0x6b2e45e4u),
  vec2<u32>(0x40f06c1cu, 0x55b78f20u), vec2<u32>(0x40e66c3eu, 0x869b752au),
  vec2<u32>(0x40cad1d8u, 0xcd4ee71du), vec2<u32>(0x409ece5du, 0x2213c0ccu),
  vec2<u32>(0x4060a488u, 0x8b1a436eu), vec2<u32>(0x400b18d9u, 0x1e9eef75u),
  vec2<u32>(0x40b46a7eu, 0xca984b69u), vec2<u32>(0x40dc0e45u, 0x7cb1ae76u),
  vec2<u32>(0x40e3317cu, 0xaa64f4beu), vec2<u32>(0x40d4b772u, 0xd5d65266u),
  vec2<u32>(0x40b51232u, 0x2e75c89fu), vec2<u32>(0x4085797eu, 0xfdc8b3f7u),
  vec2<u32>(0x4045281bu, 0x386e1ab5u), vec2<u32>(0x3ff00000u, 0x00000000u),
);
const TAIL = array<vec2<u32>, 16>(
  vec2<u32>(0x3f49615au, 0xc0b7ace9u), vec2<u32>(0x3f9744ebu, 0x6c45ec67u),
  vec2<u32>(0x3fcef2abu, 0xb9b85c37u), vec2<u32>(0x3ff453ccu, 0x085375b2u),
  vec2<u32>(0x400d2ecbu, 0x1a3d02c4u), vec2<u32>(0x401713f7u, 0x1462256au),
  vec2<u32>(0x40128577u, 0x48cab19bu), vec2<u32>(0x3ff6c665u, 0xfde9526au),
  vec2<u32>(0x3e120d3fu, 0x686439e4u), vec2<u32>(0x3f41f18cu, 0xbfdf2728u),
  vec2<u32>(0x3f8f207au, 0x7eab17bfu), vec2<u32>(0x3fc2f512u, 0x3394f040u),
  vec2<u32>(0x3fe61292u, 0xf23385c9u), vec2<u32>(0x3ffad278u, 0xe6526633u),
  vec2<u32>(0x40006cefu, 0xbb46a449u), vec2<u32>(0x3ff00000u, 0x00000000u),
);
// Coefficients 1 / 23, 1 / 21, ... 1 of the series of atanh.
const ATANH = array<vec2<u32>, 12>(
  vec2<u32>(0x3fa642c8u, 0x590b2164u), vec2<u32>(0x3fa86186u, 0x18618618u),
  vec2<u32>(0x3faaf286u, 0xbca1af28u), vec2<u32>(0x3fae1e1eu, 0x1e1e1e1eu),
  vec2<u32>(0x3fb11111u, 0x11111111u), vec2<u32>(0x3fb3b13bu, 0x13b13b14u),
  vec2<u32>(0x3fb745d1u, 0x745d1746u), vec2<u32>(0x3fbc71c7u, 0x1c71c71cu),
  vec2<u32>(0x3fc24924u, 0x92492492u), vec2<u32>(0x3fc99999u, 0x9999999au),
  vec2<u32>(0x3fd55555u, 0x55555555u), vec2<u32>(0x3ff00000u, 0x00000000u),
);

fn polynomial(table: array<vec2<u32>, 16>, first: i32, x: F64) -> F64 {
  var numbers = table;
  var sum = f64_of_words(numbers[first]);
  for (var i = first + 1; i < first + 8; i++) {
    sum = f64_add(f64_multiply(sum, x), f64_of_words(numbers[i]));
  }
  return sum;
}

// Returns the logarithm of odd / 2^33.
fn log_share(odd: u32) -> F64 {
  var x = f64_of_integer(odd, 0);
  var exponent = 32 - x.exponent;  // odd / 2^33 is x / 2^exponent
  x.exponent = -1;
  if (x.high <= 0xb504f333u) {  // x < sqrt(1/2)
    x.exponent = 0;
    exponent += 1;
  }
  let one = f64_of_integer(1u, 0);
  let s = f64_divide(f64_subtract(x, one), f64_add(x, one));
  let square = f64_multiply(s, s);
  var numbers = ATANH;
  var sum = f64_of_words(numbers[0]);
  for (var i = 1; i < 12; i++) {
    sum = f64_add(f64_multiply(sum, square), f64_of_words(numbers[i]));
  }
  var twice = s;
  if (s.high != 0u) { twice.exponent += 1; }
  let log_2 = f64_of_words(vec2<u32>(0x3fe62e42u, 0xfefa39efu));
  let whole = f64_negative(f64_multiply(f64_of_integer(u32(exponent), 0), log_2));
  return f64_add(whole, f64_multiply(twice, sum));
}

fn normal(word: u32) -> f32 {
  let negative = (word >> 31u) == 0u;
  let magnitude = select((word << 1u) | 1u, ~(word << 1u), negative);  // |q| * 2^33
  var q = f64_of_integer(magnitude, -33);
  q.negative = negative;
  if (magnitude <= 3650722201u) {  // |q| <= 0.425
    let r = f64_subtract(f64_of_words(vec2<u32>(0x3fc71eb8u, 0x51eb851fu)), f64_multiply(q, q));
    let above = f64_multiply(polynomial(MIDDLE, 0, r), q);
    return float32_of(f64_divide(above, polynomial(MIDDLE, 8, r)));
  }
  let nearer = select(~word, word, negative);
  let root = f64_sqrt(f64_negative(log_share((nearer << 1u) | 1u)));
  let r = f64_subtract(root, f64_of_words(vec2<u32>(0x3ff99999u, 0x9999999au)));
  let distance = float32_of(f64_divide(polynomial(TAIL, 0, r), polynomial(TAIL, 8, r)));
  return select(distance, -distance, negative);
}

fn philox_block(start: vec4<u32>, seed: vec2<u32>) -> vec4<u32> {
  var c = start;
  var key = seed;
  for (var i = 0; i < 10; i++) {
    let p0 = wide_product(0xd2511f53u, c.x);
    let p1 = wide_product(0xcd9e8d57u, c.z);
    c = vec4<u32>(p1.x ^ c.y ^ key.x, p1.y, p0.x ^ c.w ^ key.y, p0.y);
    key += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
  }
  return c;
}

// P[0] = (blocks, axes, distribution 0 to 3, workgroups per row), P[1] = (key, draw, stream), P[2]
// = (elements, offset, words of a and b), P[3] = (largest word that maps to b, ...), then for each
// axis in row-major order its size and its stride.
fn element(word: u32) -> f32 {
  let a = bitcast<f32>(P[2].z);
  let b = bitcast<f32>(P[2].w);
  if (P[0].z == 3) { return 0.0; }
  if (P[0].z == 2) { return select(0.0, b, word <= u32(P[3].x)); }
  var x = 0.0;
  if (P[0].z == 1) { x = normal(word); } else { x = f32(word >> 8u) * 0x1p-24f; }
  // The xor with 0, which a compiler cannot know, keeps it from fusing the multiply and the add.
  let zero = u32(P[0].y) >> 31u;
  return bitcast<f32>(bitcast<u32>(x * b) ^ zero) + a;
}

fn run(block: i32) {
  let key = vec2<u32>(P[1].xy);
  var words = philox_block(vec4<u32>(u32(block), 0u, u32(P[1].z), u32(P[1].w)), key);
  for (var i = 0; i < 4; i++) {
    var rest = 4 * block + i;
    if (rest >= P[2].x) { return; }
    var at = P[2].y;
    for (var axis = P[0].y - 1; axis >= 0; axis--) {
      let size = P[4 + axis].x;
      at += (rest % size) * P[4 + axis].y;
      rest = rest / size;
    }
    out[at] = store(element(words[i]));
  }
}
