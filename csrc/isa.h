// What each instruction set's file offers to `api.cpp`.
#pragma once
#include "headwater.h"
#include "steps.h"
#include "team.h"

struct Isa {
  const char* name;
  int64_t (*attention_scratch)(int head_dim);  // floats
  void (*run_step)(Team& team, const Step& step, int thread);
  void (*run_product)(Team& team, const Product& product, int thread);
  void (*run_attention)(Team& team, const AttentionStep& attention, int thread);
  void (*rms_norm_row)(const float* x, const float* weight, float eps, int size, float* out);
  void (*silu_mul_row)(const float* gate_up, int size, float* out);
  float (*row_most)(const float* x, int n, bool* is_finite, bool* is_number);
  void (*weigh_row)(const float* x, int n, float most, float inverse, float* weights, double* sums,
                    float* greatest);
  void (*unpack_row)(const HwMatrix& matrix, int row, float* out);
};

extern const Isa isa_generic;
#if defined(__x86_64__)
extern const Isa isa_avx2;
extern const Isa isa_avx512;
#endif
