// Products of activations with packed weights.
//
// The lanes of a vector are outputs, and every lane adds up its own sum from the first column to the
// last. So the bits of a row's result are the same whatever rows it is computed with.
#pragma once
#include "headwater.h"
#include "layout.h"
#include "simd.h"
#include "steps.h"

namespace {

// Rows that share what is unpacked of a block; as many as leave the registers enough room.
constexpr int TILE_ROWS = LANES == 16 ? 8 : 4;

inline Acts acts_of(const ActsOut& out, int cols) {
  return {out.x, out.q, out.scale, out.sum, out.isum, cols};
}

// Quantize one group of 32 numbers. A number that is not finite makes the group's scale NaN, so that it
// reaches the result; a group below 1e-30 counts as zeros.
inline void quantize_group(const float* x, int8_t* q, float* scale, float* sum, int32_t* isum) {
  constexpr int N = GROUP / LANES;
  vf v[N], most = v_set(0.0f), poison = v_set(0.0f);
  for (int i = 0; i < N; i++) {
    v[i] = v_load(x + i * LANES);
    most = v_max(most, v_abs(v[i]));
    poison = v_fma(v[i], v_set(0.0f), poison);
  }
  float top = v_greatest(most), bad = v_sum(poison);
  float inverse = top > 1e-30f ? 127.0f / top : 0.0f;
  bool is_finite = bad == 0.0f;
  int32_t total = 0;
  for (int i = 0; i < N; i++) {
    if (is_finite)
      v_store_int8(q + i * LANES, v_round(v_mul(v[i], v_set(inverse))));
    else
      memset(q + i * LANES, 1, LANES);
  }
  for (int i = 0; i < GROUP; i++) total += q[i];
  *scale = is_finite ? (top > 1e-30f ? top / 127.0f : 0.0f) : NAN;
  *sum = *scale * (float)total;
  *isum = total;
}

inline void quantize_row(const float* x, int cols, int row, const ActsOut& out) {
  int groups = cols / GROUP;
  int64_t base = (int64_t)row * groups;
  for (int g = 0; g < groups; g++)
    quantize_group(x + g * GROUP, out.q + (int64_t)row * cols + g * GROUP, out.scale + base + g,
                   out.sum + base + g, out.isum + base + g);
}

inline int32_t four_bytes(const int8_t* p) {
  int32_t x;
  memcpy(&x, p, 4);
  return x;
}

// Eight units of a group, unpacked: lane r of unit u holds the weights of columns 4u..4u+3 of output r.
struct Units {
#if defined(HW_AVX512) || defined(HW_AVX2)
  vi u[8];
#else
  uint8_t u[8][4 * LANES];
#endif
};

// `p` is the group's first unit, moved to the first of LANES outputs; a unit is 64 bytes.
inline void load_q4(const uint8_t* p, Units& w) {
#if defined(HW_AVX512)
  const vi mask = _mm512_set1_epi8(15);
  for (int i = 0; i < 4; i++) {
    vi both = _mm512_loadu_si512(p + 64 * i);
    w.u[i] = _mm512_and_si512(both, mask);
    w.u[4 + i] = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
  }
#elif defined(HW_AVX2)
  const vi mask = _mm256_set1_epi8(15);
  for (int i = 0; i < 4; i++) {
    vi both = _mm256_loadu_si256((const __m256i*)(p + 64 * i));
    w.u[i] = _mm256_and_si256(both, mask);
    w.u[4 + i] = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
  }
#else
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < 4 * LANES; k++) {
      w.u[i][k] = p[64 * i + k] & 15;
      w.u[4 + i][k] = p[64 * i + k] >> 4;
    }
#endif
}

// Signed bytes; with AVX-512 moved by 128, since its instruction wants unsigned weights.
inline void load_q8(const uint8_t* p, Units& w) {
  for (int i = 0; i < 8; i++) {
#if defined(HW_AVX512)
    w.u[i] = _mm512_xor_si512(_mm512_loadu_si512(p + 64 * i), _mm512_set1_epi8((char)0x80));
#elif defined(HW_AVX2)
    w.u[i] = _mm256_loadu_si256((const __m256i*)(p + 64 * i));
#else
    memcpy(w.u[i], p + 64 * i, 4 * LANES);
#endif
  }
}

inline vi dot_q4(const Units& w, const int8_t* a) {
#if defined(HW_AVX512)
  vi even = _mm512_setzero_si512(), odd = even;
  for (int i = 0; i < 8; i += 2) {
    even = _mm512_dpbusd_epi32(even, w.u[i], _mm512_set1_epi32(four_bytes(a + 4 * i)));
    odd = _mm512_dpbusd_epi32(odd, w.u[i + 1], _mm512_set1_epi32(four_bytes(a + 4 * i + 4)));
  }
  return _mm512_add_epi32(even, odd);
#elif defined(HW_AVX2)
  // 15 * 127 * 2 * 8 = 30480 fits 16 bits.
  vi words = _mm256_setzero_si256();
  for (int i = 0; i < 8; i++)
    words = _mm256_add_epi16(
        words, _mm256_maddubs_epi16(w.u[i], _mm256_set1_epi32(four_bytes(a + 4 * i))));
  return _mm256_madd_epi16(words, _mm256_set1_epi16(1));
#else
  vi total = {};
  for (int i = 0; i < 8; i++)
    for (int r = 0; r < LANES; r++)
      for (int c = 0; c < 4; c++) total[r] += (int32_t)w.u[i][4 * r + c] * a[4 * i + c];
  return total;
#endif
}

inline vi dot_q8(const Units& w, const int8_t* a, int32_t isum) {
#if defined(HW_AVX512)
  vi even = _mm512_set1_epi32(-128 * isum), odd = _mm512_setzero_si512();
  for (int i = 0; i < 8; i += 2) {
    even = _mm512_dpbusd_epi32(even, w.u[i], _mm512_set1_epi32(four_bytes(a + 4 * i)));
    odd = _mm512_dpbusd_epi32(odd, w.u[i + 1], _mm512_set1_epi32(four_bytes(a + 4 * i + 4)));
  }
  return _mm512_add_epi32(even, odd);
#elif defined(HW_AVX2)
  (void)isum;
  const vi ones = _mm256_set1_epi16(1);
  vi total = _mm256_setzero_si256();
  for (int i = 0; i < 8; i++) {
    vi b = _mm256_set1_epi32(four_bytes(a + 4 * i));
    vi pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w.u[i]), _mm256_sign_epi8(b, w.u[i]));
    total = _mm256_add_epi32(total, _mm256_madd_epi16(pairs, ones));
  }
  return total;
#else
  (void)isum;
  vi total = {};
  for (int i = 0; i < 8; i++)
    for (int r = 0; r < LANES; r++)
      for (int c = 0; c < 4; c++) total[r] += (int32_t)(int8_t)w.u[i][4 * r + c] * a[4 * i + c];
  return total;
#endif
}

template <int FORMAT>
inline vf load_scale(const uint8_t* p, int64_t i) {
  if (FORMAT == HW_Q4_WIDE) return v_load((const float*)p + i);
  return v_load_half((const uint16_t*)p + i);
}

// LANES outputs of one block, from lane `lane` on, for R rows of quantized activations.
template <int FORMAT, int R>
inline void quantized_tile(const uint8_t* block, int lane, const Acts& acts, int row, vf* acc) {
  constexpr bool is_q8 = FORMAT == HW_Q8;
  const int groups = acts.cols / GROUP;
  const uint8_t* units = block + 4 * lane;
  const uint8_t* scales = block + (int64_t)groups * (is_q8 ? Q8_UNITS : Q4_UNITS);
  const uint8_t* minima = scales + (int64_t)groups * BLOCK * (FORMAT == HW_Q4_WIDE ? 4 : 2);
  for (int r = 0; r < R; r++) acc[r] = v_set(0.0f);
  for (int g = 0; g < groups; g++) {
    Units w;
    if (is_q8)
      load_q8(units + (int64_t)g * Q8_UNITS, w);
    else
      load_q4(units + (int64_t)g * Q4_UNITS, w);
    vf scale = load_scale<FORMAT>(scales, (int64_t)g * BLOCK + lane);
    vf minimum = is_q8 ? v_set(0.0f) : load_scale<FORMAT>(minima, (int64_t)g * BLOCK + lane);
    for (int r = 0; r < R; r++) {
      const int64_t place = (int64_t)(row + r) * groups + g;
      const int8_t* a = acts.q + (int64_t)(row + r) * acts.cols + g * GROUP;
      vi dot = is_q8 ? dot_q8(w, a, acts.isum[place]) : dot_q4(w, a);
      acc[r] = v_fma(v_mul(scale, v_set(acts.scale[place])), v_from_int(dot), acc[r]);
      if (!is_q8) acc[r] = v_fma(minimum, v_set(acts.sum[place]), acc[r]);
    }
  }
}

template <int FORMAT>
inline vf load_weights(const uint8_t* p, int64_t i) {
  if (FORMAT == HW_F16) return v_load_half((const uint16_t*)p + i);
  if (FORMAT == HW_BF16) return v_load_brain((const uint16_t*)p + i);
  return v_load((const float*)p + i);
}

// The same for plain weights and rows of floats.
template <int FORMAT, int R>
inline void plain_tile(const uint8_t* block, int lane, const Acts& acts, int row, vf* acc) {
  const float* x = acts.x + (int64_t)row * acts.cols;
  for (int r = 0; r < R; r++) acc[r] = v_set(0.0f);
  for (int k = 0; k < acts.cols; k++) {
    vf w = load_weights<FORMAT>(block, (int64_t)k * BLOCK + lane);
    for (int r = 0; r < R; r++) acc[r] = v_fma(w, v_set(x[(int64_t)r * acts.cols + k]), acc[r]);
  }
}

template <int FORMAT, int R>
inline void tile(const uint8_t* block, int lane, const Acts& acts, int row, vf* acc) {
  if (FORMAT == HW_F32 || FORMAT == HW_F16 || FORMAT == HW_BF16)
    plain_tile<FORMAT, R>(block, lane, acts, row, acc);
  else
    quantized_tile<FORMAT, R>(block, lane, acts, row, acc);
}

// Where a product goes: out[row][first output + lane], set or added to what stands there.
struct Target {
  float* out;
  int64_t stride;     // from a row to the next
  const float* bias;  // of the block's first output, or null
  bool adds;
};

inline void put(const Target& target, int row, int lane, int count, vf value) {
  float* out = target.out + row * target.stride + lane;
  if (count >= LANES) {
    if (target.bias) value = v_add(value, v_load(target.bias + lane));
    if (target.adds) value = v_add(v_load(out), value);
    v_store(out, value);
    return;
  }
  float lanes[LANES];
  v_store(lanes, value);
  for (int i = 0; i < count; i++) {
    float x = lanes[i];
    if (target.bias) x += target.bias[lane + i];
    out[i] = target.adds ? out[i] + x : x;
  }
}

template <int FORMAT, int R>
inline void rows_of_block(const uint8_t* block, int num_outputs, const Acts& acts, int& row,
                          int end, const Target& target) {
  for (; row + R <= end; row += R)
    for (int lane = 0; lane < num_outputs; lane += LANES) {
      vf acc[R];
      tile<FORMAT, R>(block, lane, acts, row, acc);
      for (int r = 0; r < R; r++) put(target, row + r, lane, num_outputs - lane, acc[r]);
    }
}

// One block of outputs for rows [row, end).
template <int FORMAT>
inline void block_product(const uint8_t* block, int num_outputs, const Acts& acts, int row, int end,
                          const Target& target) {
  rows_of_block<FORMAT, TILE_ROWS>(block, num_outputs, acts, row, end, target);
  if (TILE_ROWS > 4) rows_of_block<FORMAT, 4>(block, num_outputs, acts, row, end, target);
  rows_of_block<FORMAT, 1>(block, num_outputs, acts, row, end, target);
}

inline void matrix_block(const HwMatrix& m, int index, const Acts& acts, int row, int end,
                         const Target& target) {
  const uint8_t* block = (const uint8_t*)m.data + index * block_bytes(m.format, m.cols);
  int left = m.rows - index * BLOCK;
  int count = left < BLOCK ? left : BLOCK;
  switch (m.format) {
    case HW_F32: return block_product<HW_F32>(block, count, acts, row, end, target);
    case HW_F16: return block_product<HW_F16>(block, count, acts, row, end, target);
    case HW_BF16: return block_product<HW_BF16>(block, count, acts, row, end, target);
    case HW_Q8: return block_product<HW_Q8>(block, count, acts, row, end, target);
    case HW_Q4: return block_product<HW_Q4>(block, count, acts, row, end, target);
    case HW_Q4_WIDE: return block_product<HW_Q4_WIDE>(block, count, acts, row, end, target);
  }
}

}  // namespace
