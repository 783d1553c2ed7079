// Vectors of LANES floats under one set of names, for the instruction set this file is compiled for.
// Everything stands in an unnamed namespace: the same names are compiled once for each set, and a
// linker must not take one's copy for another's. For the same reason no standard container is used.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(HW_AVX512) || defined(HW_AVX2)
#include <immintrin.h>
#else
#include "half.h"
#endif

namespace {

#if defined(HW_AVX512)

constexpr int LANES = 16;
typedef __m512 vf;
typedef __m512i vi;

inline vf v_load(const float* p) { return _mm512_loadu_ps(p); }
inline void v_store(float* p, vf x) { _mm512_storeu_ps(p, x); }
inline vf v_set(float x) { return _mm512_set1_ps(x); }
inline vf v_add(vf a, vf b) { return _mm512_add_ps(a, b); }
inline vf v_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
inline vf v_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
inline vf v_div(vf a, vf b) { return _mm512_div_ps(a, b); }
inline vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
// Of a NaN and a number: the second argument.
inline vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }
inline vf v_min(vf a, vf b) { return _mm512_min_ps(a, b); }
inline vf v_abs(vf a) { return _mm512_abs_ps(a); }
inline vf v_from_int(vi a) { return _mm512_cvtepi32_ps(a); }
inline vi v_round(vf a) { return _mm512_cvtps_epi32(a); }
// 2 to the power of integers in [-126, 127].
inline vf v_pow2(vi n) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
}
inline vf v_load_half(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
}
inline void v_store_half(uint16_t* p, vf x) {
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
inline vf v_load_brain(const uint16_t* p) {
  __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
inline void v_store_int8(int8_t* p, vi x) { _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(x)); }

#elif defined(HW_AVX2)

constexpr int LANES = 8;
typedef __m256 vf;
typedef __m256i vi;

inline vf v_load(const float* p) { return _mm256_loadu_ps(p); }
inline void v_store(float* p, vf x) { _mm256_storeu_ps(p, x); }
inline vf v_set(float x) { return _mm256_set1_ps(x); }
inline vf v_add(vf a, vf b) { return _mm256_add_ps(a, b); }
inline vf v_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
inline vf v_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
inline vf v_div(vf a, vf b) { return _mm256_div_ps(a, b); }
inline vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
inline vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }
inline vf v_min(vf a, vf b) { return _mm256_min_ps(a, b); }
inline vf v_abs(vf a) {
  return _mm256_and_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
}
inline vf v_from_int(vi a) { return _mm256_cvtepi32_ps(a); }
inline vi v_round(vf a) { return _mm256_cvtps_epi32(a); }
inline vf v_pow2(vi n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
inline vf v_load_half(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
}
inline void v_store_half(uint16_t* p, vf x) {
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
inline vf v_load_brain(const uint16_t* p) {
  __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
inline void v_store_int8(int8_t* p, vi x) {
  __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  _mm_storel_epi64((__m128i*)p, _mm_packs_epi16(words, words));
}

#else

// The compiler's own vectors: whatever the processor has (SSE2, NEON), or plain loops.
constexpr int LANES = 8;
typedef float vf __attribute__((vector_size(32)));
typedef int32_t vi __attribute__((vector_size(32)));

inline vf v_load(const float* p) {
  vf x;
  memcpy(&x, p, sizeof x);
  return x;
}
inline void v_store(float* p, vf x) { memcpy(p, &x, sizeof x); }
inline vf v_set(float x) { return vf{x, x, x, x, x, x, x, x}; }
inline vf v_add(vf a, vf b) { return a + b; }
inline vf v_sub(vf a, vf b) { return a - b; }
inline vf v_mul(vf a, vf b) { return a * b; }
inline vf v_div(vf a, vf b) { return a / b; }
inline vf v_fma(vf a, vf b, vf c) { return a * b + c; }
inline vf v_max(vf a, vf b) { return a > b ? a : b; }
inline vf v_min(vf a, vf b) { return a < b ? a : b; }
inline vf v_abs(vf a) { return (vf)((vi)a & 0x7fffffff); }
inline vf v_from_int(vi a) { return __builtin_convertvector(a, vf); }
inline vi v_round(vf a) {
  vi n;
  for (int i = 0; i < LANES; i++) n[i] = (int32_t)rintf(a[i]);
  return n;
}
inline vf v_pow2(vi n) { return (vf)((n + 127) << 23); }
inline vf v_load_half(const uint16_t* p) {
  vf x;
  for (int i = 0; i < LANES; i++) x[i] = half_to_float(p[i]);
  return x;
}
inline void v_store_half(uint16_t* p, vf x) {
  for (int i = 0; i < LANES; i++) p[i] = float_to_half(x[i]);
}
inline vf v_load_brain(const uint16_t* p) {
  vi wide;
  for (int i = 0; i < LANES; i++) wide[i] = (int32_t)((uint32_t)p[i] << 16);
  return (vf)wide;
}
inline void v_store_int8(int8_t* p, vi x) {
  for (int i = 0; i < LANES; i++) p[i] = (int8_t)x[i];
}

#endif

// Sum and greatest of the lanes, always in the same order.
inline float v_sum(vf x) {
  float lanes[LANES];
  v_store(lanes, x);
  for (int width = LANES / 2; width; width /= 2)
    for (int i = 0; i < width; i++) lanes[i] += lanes[i + width];
  return lanes[0];
}
inline float v_greatest(vf x) {
  float lanes[LANES];
  v_store(lanes, x);
  for (int width = LANES / 2; width; width /= 2)
    for (int i = 0; i < width; i++) lanes[i] = lanes[i] > lanes[i + width] ? lanes[i] : lanes[i + width];
  return lanes[0];
}

// e to the power of x, relative error below 2e-7 in [-87, 88]; 0 below, so that what is masked with
// minus infinity weighs nothing; NaN stays. Cody-Waite reduction and the polynomial of Cephes' expf.
inline vf v_exp(vf x) {
  const vf low = v_set(-87.0f);
  vf y = v_min(v_set(88.0f), v_max(low, x));
  vi n = v_round(v_mul(y, v_set(1.44269504088896341f)));
  vf k = v_from_int(n);
  vf r = v_fma(k, v_set(-0.693359375f), y);
  r = v_fma(k, v_set(2.12194440e-4f), r);
  vf p = v_set(1.9875691500e-4f);
  p = v_fma(p, r, v_set(1.3981999507e-3f));
  p = v_fma(p, r, v_set(8.3334519073e-3f));
  p = v_fma(p, r, v_set(4.1665795894e-2f));
  p = v_fma(p, r, v_set(1.6666665459e-1f));
  p = v_fma(p, r, v_set(5.0000001201e-1f));
  p = v_add(v_fma(p, v_mul(r, r), r), v_set(1.0f));
  vf e = v_mul(p, v_pow2(n));
#if defined(HW_AVX512)
  return _mm512_mask_mov_ps(e, _mm512_cmp_ps_mask(x, low, _CMP_LT_OQ), _mm512_setzero_ps());
#elif defined(HW_AVX2)
  return _mm256_andnot_ps(_mm256_cmp_ps(x, low, _CMP_LT_OQ), e);
#else
  return (vf)((vi)e & ~(x < low));
#endif
}

}  // namespace
