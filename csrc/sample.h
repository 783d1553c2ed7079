// The passes of sampling that touch the whole vocabulary.
#pragma once
#include "simd.h"
#include "steps.h"

namespace {

// The greatest of n logits. `*is_finite` tells whether all of them are, `*is_number` whether none is NaN
// or plus infinity (minus infinity is a token that is masked).
inline float row_most(const float* x, int n, bool* is_finite, bool* is_number) {
  vf most = v_set(-INFINITY), poison = v_set(0.0f), bad = v_set(0.0f);
  const vf zero = v_set(0.0f), low = v_set(-3.4028235e38f);
  int i = 0;
  auto visit = [&](vf v) {
    most = v_max(most, v);
    poison = v_fma(v, zero, poison);
    bad = v_fma(v_max(low, v), zero, bad);
  };
  for (; i + LANES <= n; i += LANES) visit(v_load(x + i));
  if (i < n) {
    float rest[LANES];
    for (int k = 0; k < LANES; k++) rest[k] = i + k < n ? x[i + k] : x[n - 1];
    visit(v_load(rest));
  }
  *is_finite = v_sum(poison) == 0.0f;
  *is_number = v_sum(bad) == 0.0f;
  return v_greatest(most);
}

// weights[i] = exp((x[i] - most) * inverse) for `n` logits; sum and greatest of each WEIGHT_BLOCK of them.
inline void weigh_row(const float* x, int n, float most, float inverse, float* weights, double* sums,
                      float* greatest) {
  const vf top = v_set(most), by = v_set(inverse);
  for (int block = 0; block * WEIGHT_BLOCK < n; block++) {
    const int begin = block * WEIGHT_BLOCK, end = n - begin < WEIGHT_BLOCK ? n : begin + WEIGHT_BLOCK;
    vf sum = v_set(0.0f), top_weight = v_set(0.0f);
    int i = begin;
    for (; i + LANES <= end; i += LANES) {
      vf w = v_exp(v_mul(v_sub(v_load(x + i), top), by));
      v_store(weights + i, w);
      sum = v_add(sum, w);
      top_weight = v_max(top_weight, w);
    }
    if (i < end) {
      float rest[LANES];
      for (int k = 0; k < LANES; k++) rest[k] = i + k < end ? x[i + k] : -INFINITY;
      vf w = v_exp(v_mul(v_sub(v_load(rest), top), by));
      v_store(rest, w);
      memcpy(weights + i, rest, (end - i) * sizeof(float));
      sum = v_add(sum, w);
      top_weight = v_max(top_weight, w);
    }
    sums[block] = v_sum(sum);
    greatest[block] = v_greatest(top_weight);
  }
}

}  // namespace
