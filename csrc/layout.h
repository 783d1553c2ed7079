// Sizes of packed matrices; see `headwater.h` for the formats.
#pragma once
#include <stdint.h>

#include "headwater.h"

namespace {

constexpr int BLOCK = 16;      // outputs of a block
constexpr int GROUP = 32;      // inputs that share a scale
constexpr int Q8_UNITS = 512;  // bytes of a group's weights, without scales
constexpr int Q4_UNITS = 256;

inline bool is_quantized(int format) { return format >= HW_Q8; }

inline int64_t block_bytes(int format, int64_t cols) {
  const int64_t groups = cols / GROUP;
  int64_t bytes = 0;
  switch (format) {
    case HW_F32: bytes = cols * BLOCK * 4; break;
    case HW_F16:
    case HW_BF16: bytes = cols * BLOCK * 2; break;
    case HW_Q8: bytes = groups * (Q8_UNITS + BLOCK * 2); break;
    case HW_Q4: bytes = groups * (Q4_UNITS + 2 * BLOCK * 2); break;
    case HW_Q4_WIDE: bytes = groups * (Q4_UNITS + 2 * BLOCK * 4); break;
  }
  return (bytes + 63) / 64 * 64;
}

inline int64_t num_blocks(int64_t rows) { return (rows + BLOCK - 1) / BLOCK; }

}  // namespace
