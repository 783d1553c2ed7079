// IEEE half precision without the processor's help.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

namespace {

inline float half_to_float(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 1023;
  if (exponent == 31) {
    uint32_t bits = sign | 0x7f800000 | (mantissa << 13);
    float x;
    memcpy(&x, &bits, 4);
    return x;
  }
  // Denormals and zero: the mantissa counts units of 2^-24.
  float x = exponent ? ldexpf((float)(mantissa | 1024), (int)exponent - 25) : ldexpf((float)mantissa, -24);
  return sign ? -x : x;
}
inline uint16_t float_to_half(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  uint16_t sign = (uint16_t)((bits >> 16) & 0x8000);
  uint32_t rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return sign | 0x7e00;
  if (rest >= 0x477ff000) return sign | 0x7c00;
  if (rest < 0x38800000) {  // below 2^-14: units of 2^-24
    float units;
    memcpy(&units, &rest, 4);
    return sign | (uint16_t)rintf(units * 16777216.0f);
  }
  uint32_t odd = (rest >> 13) & 1;
  return sign | (uint16_t)((rest - 0x38000000 + 0xfff + odd) >> 13);
}

}  // namespace
