// What `api.cpp` hands to the instruction sets' files. Plain data only: these structs are shared by
// files that are compiled for different processors.
#pragma once
#include <stdint.h>

#include "headwater.h"

constexpr int WEIGHT_BLOCK = 256;  // numbers that sampling sums up together
constexpr int MAX_PAIRS = 32;  // (query, head) pairs that attention computes together

// Rows of activations, as floats and, where a quantized matrix needs them, as signed bytes: in each
// group of 32 columns x = scale * q. `sum` is scale times the sum of q, which meets the minima.
struct Acts {
  const float* x;
  const int8_t* q;
  const float* scale;   // [row][group]
  const float* sum;     // [row][group]
  const int32_t* isum;  // [row][group], the sum of q
  int cols;
};

struct ActsOut {
  float* x;
  int8_t* q;
  float* scale;
  float* sum;
  int32_t* isum;
};

struct AttentionShape {
  int num_heads, num_kv_heads, head_dim, window;
  float scale;
};

// Neighbouring queries of one request, at positions [start, end).
struct Tile {
  int row, start, end;
  int token;  // of the first query, in the step
};

// Everything of one step of a decoder.
struct Step {
  const HwModel* model;
  const int64_t* token_ids;
  const HwRows* rows;
  const HwPool* pool;
  const int64_t* logit_rows;
  int num_logit_rows;
  float* logits;
  float* hidden;    // [token][hidden]
  float* wide;      // [token][widest product]
  float* q;         // [token][num_heads * head_dim]
  float* attended;  // the same
  ActsOut acts;     // [token][widest input]
  bool needs_q8;    // some matrix is quantized
  const int32_t* positions;  // [token]
  const int32_t* pages;      // [token], the page of its position
  const Tile* tiles;
  int num_tiles;
  float* scratch;  // for each thread
  int64_t scratch_size;
};

// A single product, for tests and benchmarks of it alone.
struct Product {
  const float* x;
  int num_rows;
  const HwLinear* linear;
  float* out;
  ActsOut acts;
  bool needs_q8;
};

// Attention alone, for the same.
struct AttentionStep {
  const HwRows* rows;
  const HwPool* pool;
  AttentionShape shape;
  const float* q;
  float* out;
  const Tile* tiles;
  int num_tiles;
  float* scratch;
  int64_t scratch_size;
};
