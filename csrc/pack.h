// Checkpoint rows to packed matrices; no processor's special instructions, it runs once.
#pragma once
#include <math.h>
#include <string.h>

#include "half.h"
#include "layout.h"

namespace {

inline bool is_float_kind(int kind) { return kind <= HW_FROM_BF16; }

inline float brain_to_float(uint16_t h) {
  uint32_t bits = (uint32_t)h << 16;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

inline uint16_t float_to_brain(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if (isnan(x)) return (uint16_t)(bits >> 16) | 64;
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float source_float(const void* source, int kind, int64_t i) {
  if (kind == HW_FROM_F16) return half_to_float(((const uint16_t*)source)[i]);
  if (kind == HW_FROM_BF16) return brain_to_float(((const uint16_t*)source)[i]);
  return ((const float*)source)[i];
}

// One group of one row on its way: weight = scale * q + minimum.
struct Group {
  int8_t q[GROUP];  // Q4: 0 to 15
  float scale, minimum;
};

inline void quantize_q8(const float* x, Group& g) {
  float most = 0.0f;
  for (int i = 0; i < GROUP; i++) most = fmaxf(most, fabsf(x[i]));
  g.scale = half_to_float(float_to_half(most / 127.0f));
  g.minimum = 0.0f;
  for (int i = 0; i < GROUP; i++) {
    float q = g.scale > 0.0f ? rintf(x[i] / g.scale) : 0.0f;
    g.q[i] = (int8_t)fminf(fmaxf(q, -127.0f), 127.0f);
  }
}

inline void quantize_q4(const float* x, Group& g) {
  float low = x[0], high = x[0];
  for (int i = 1; i < GROUP; i++) low = fminf(low, x[i]), high = fmaxf(high, x[i]);
  g.minimum = half_to_float(float_to_half(low));
  g.scale = half_to_float(float_to_half((high - g.minimum) / 15.0f));
  for (int i = 0; i < GROUP; i++) {
    float q = g.scale > 0.0f ? rintf((x[i] - g.minimum) / g.scale) : 0.0f;
    g.q[i] = (int8_t)fminf(fmaxf(q, 0.0f), 15.0f);
  }
}

inline float half_at(const uint8_t* p) {
  uint16_t h;
  memcpy(&h, p, 2);
  return half_to_float(h);
}

inline void nibbles(const uint8_t* p, Group& g) {
  for (int i = 0; i < 16; i++) g.q[i] = p[i] & 15, g.q[16 + i] = p[i] >> 4;
}

// GGUF's blocks: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and the struct definitions
// that it names. `row` is the first byte of the row's blocks.
inline void read_gguf(const uint8_t* row, int kind, int group, Group& g) {
  if (kind == HW_FROM_GGUF_Q8_0) {
    const uint8_t* p = row + (int64_t)group * 34;
    g.scale = half_at(p), g.minimum = 0.0f;
    memcpy(g.q, p + 2, GROUP);
  } else if (kind == HW_FROM_GGUF_Q4_0) {
    const uint8_t* p = row + (int64_t)group * 18;
    g.scale = half_at(p), g.minimum = -8.0f * g.scale;
    nibbles(p + 2, g);
  } else if (kind == HW_FROM_GGUF_Q4_1) {
    const uint8_t* p = row + (int64_t)group * 20;
    g.scale = half_at(p), g.minimum = half_at(p + 2);
    nibbles(p + 4, g);
  } else {  // Q4_K: 8 groups share two halves; each has 6 bits of scale and of minimum
    const uint8_t *p = row + (int64_t)(group / 8) * 144, *s = p + 4;
    const int j = group % 8;
    int scale, minimum;
    if (j < 4)
      scale = s[j] & 63, minimum = s[j + 4] & 63;
    else
      scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4, minimum = s[j + 4] >> 4 | (s[j] >> 6) << 4;
    g.scale = half_at(p) * (float)scale, g.minimum = -half_at(p + 2) * (float)minimum;
    const uint8_t* bytes = p + 16 + 32 * (j / 2);
    for (int i = 0; i < GROUP; i++) g.q[i] = j % 2 ? bytes[i] >> 4 : bytes[i] & 15;
  }
}

inline int64_t source_row_bytes(int kind, int64_t cols) {
  switch (kind) {
    case HW_FROM_F32: return cols * 4;
    case HW_FROM_F16:
    case HW_FROM_BF16: return cols * 2;
    case HW_FROM_GGUF_Q4_0: return cols / GROUP * 18;
    case HW_FROM_GGUF_Q4_1: return cols / GROUP * 20;
    case HW_FROM_GGUF_Q8_0: return cols / GROUP * 34;
    default: return cols / 256 * 144;
  }
}

inline bool can_pack(int format, int kind, int cols) {
  if (is_quantized(format) && cols % GROUP) return false;
  switch (kind) {
    case HW_FROM_F32:
    case HW_FROM_F16:
    case HW_FROM_BF16: return format != HW_Q4_WIDE;
    case HW_FROM_GGUF_Q4_0:
    case HW_FROM_GGUF_Q4_1: return format == HW_Q4;
    case HW_FROM_GGUF_Q4_K: return format == HW_Q4_WIDE && cols % 256 == 0;
    case HW_FROM_GGUF_Q8_0: return format == HW_Q8;
  }
  return false;
}

inline void put_group(uint8_t* block, int format, int groups, int group, int row, const Group& g) {
  const bool is_q8 = format == HW_Q8, is_wide = format == HW_Q4_WIDE;
  const int unit = is_q8 ? Q8_UNITS : Q4_UNITS;
  uint8_t* units = block + (int64_t)group * unit + 4 * row;
  if (is_q8)
    for (int u = 0; u < 8; u++) memcpy(units + 64 * u, g.q + 4 * u, 4);
  else
    for (int i = 0; i < 16; i++) units[64 * (i / 4) + i % 4] = (uint8_t)(g.q[i] | g.q[16 + i] << 4);
  uint8_t* scales = block + (int64_t)groups * unit;
  const int64_t at = (int64_t)group * BLOCK + row;
  if (is_wide) {
    ((float*)scales)[at] = g.scale;
    ((float*)scales)[(int64_t)groups * BLOCK + at] = g.minimum;
    return;
  }
  ((uint16_t*)scales)[at] = float_to_half(g.scale);
  if (!is_q8) ((uint16_t*)scales)[(int64_t)groups * BLOCK + at] = float_to_half(g.minimum);
}

inline void pack_quantized_row(uint8_t* block, int format, int cols, int row, const uint8_t* source,
                               int kind) {
  const int groups = cols / GROUP;
  for (int i = 0; i < groups; i++) {
    Group g;
    if (is_float_kind(kind)) {
      float x[GROUP];
      for (int c = 0; c < GROUP; c++) x[c] = source_float(source, kind, (int64_t)i * GROUP + c);
      format == HW_Q8 ? quantize_q8(x, g) : quantize_q4(x, g);
    } else {
      read_gguf(source, kind, i, g);
    }
    put_group(block, format, groups, i, row, g);
  }
}

inline void pack_plain_row(uint8_t* block, int format, int cols, int row, const uint8_t* source,
                           int kind) {
  for (int64_t k = 0; k < cols; k++) {
    const int64_t at = k * BLOCK + row;
    // Numbers of the same type are copied, not converted: a NaN's bits stay.
    if (format == HW_F16)
      ((uint16_t*)block)[at] = kind == HW_FROM_F16 ? ((const uint16_t*)source)[k]
                                                   : float_to_half(source_float(source, kind, k));
    else if (format == HW_BF16)
      ((uint16_t*)block)[at] = kind == HW_FROM_BF16 ? ((const uint16_t*)source)[k]
                                                    : float_to_brain(source_float(source, kind, k));
    else
      ((float*)block)[at] = source_float(source, kind, k);
  }
}

}  // namespace
