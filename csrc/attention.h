// Attention over pages: each query walks the keys of its request in blocks of 32 positions, from a
// multiple of 32 on, with a softmax that is kept up to date block by block (arXiv:1805.02867). What a
// query adds up, and in which order, depends on its own position only.
//
// Keys lie in their page column by column, so that a vector holds one number of several keys; values lie
// row by row. Page sizes that are no multiple of 16 go through a copy.
#pragma once
#include "headwater.h"
#include "simd.h"
#include "steps.h"

namespace {

constexpr int KEYS = 32;                        // positions of a block
constexpr int PAIRS = LANES == 16 ? 4 : 2;      // of them, held in registers at once
constexpr float NEVER = -1e30f;                 // below every score, and still a number

// Floats of scratch memory that `attend` needs.
inline int64_t attention_scratch(int head_dim) {
  int64_t pad = (head_dim + LANES - 1) / LANES * LANES;
  return 2 * KEYS * pad + MAX_PAIRS * (2 * pad + KEYS + 2);
}

// Where the numbers of a page's keys and values begin, for one head.
inline int64_t page_start(const HwPool& pool, int64_t layer, int64_t page, int num_kv_heads, int kv_head,
                          int head_dim) {
  return ((layer * pool.num_pages + page) * num_kv_heads + kv_head) * head_dim * pool.page_size;
}

// A block of 32 keys and values of one head, in two runs of 16 positions that lie in one page each.
struct Block {
  const void *keys, *values;
  bool is_half;
  int64_t key_at[2], value_at[2];
  int64_t key_stride;  // from a number to the next
  int64_t value_stride;  // from a position to the next
  int count;  // positions before the request's end
};

template <bool HALF>
inline vf load_of(const void* base, int64_t at) {
  return HALF ? v_load_half((const uint16_t*)base + at) : v_load((const float*)base + at);
}

// Scores of P pairs with the block's keys; where there is no key they mean nothing.
template <int P, bool HALF>
inline void score(const float* q, int pad, int head_dim, const Block& block, float* scores) {
  constexpr int N = KEYS / LANES, M = 16 / LANES;
  vf acc[P][N];
  for (int p = 0; p < P; p++)
    for (int i = 0; i < N; i++) acc[p][i] = v_set(0.0f);
  for (int d = 0; d < head_dim; d++) {
    vf key[N];
    for (int i = 0; i < N; i++)
      key[i] = load_of<HALF>(block.keys, block.key_at[i / M] + d * block.key_stride + i % M * LANES);
    for (int p = 0; p < P; p++) {
      vf x = v_set(q[p * pad + d]);
      for (int i = 0; i < N; i++) acc[p][i] = v_fma(x, key[i], acc[p][i]);
    }
  }
  for (int p = 0; p < P; p++)
    for (int i = 0; i < N; i++) v_store(scores + p * KEYS + i * LANES, acc[p][i]);
}

// out[p] = factor[p] * out[p] + weights[p] times the values; C vectors of a value at a time.
template <int P, int C, bool HALF>
inline void gather(const float* weights, const float* factors, int pad, int d, const Block& block,
                   float* out) {
  vf acc[P][C];
  for (int p = 0; p < P; p++)
    for (int c = 0; c < C; c++)
      acc[p][c] = v_mul(v_load(out + p * pad + d + c * LANES), v_set(factors[p]));
  for (int k = 0; k < block.count; k++) {
    const int64_t at = block.value_at[k / 16] + k % 16 * block.value_stride + d;
    vf value[C];
    for (int c = 0; c < C; c++) value[c] = load_of<HALF>(block.values, at + c * LANES);
    for (int p = 0; p < P; p++) {
      vf weight = v_set(weights[p * KEYS + k]);
      for (int c = 0; c < C; c++) acc[p][c] = v_fma(weight, value[c], acc[p][c]);
    }
  }
  for (int p = 0; p < P; p++)
    for (int c = 0; c < C; c++) v_store(out + p * pad + d + c * LANES, acc[p][c]);
}

template <int P, bool HALF>
inline void gather_values(const float* weights, const float* factors, int pad, const Block& block,
                          float* out) {
  int d = 0;
  for (; d + 2 * LANES <= pad; d += 2 * LANES)
    gather<P, 2, HALF>(weights, factors, pad, d, block, out);
  if (d < pad) gather<P, 1, HALF>(weights, factors, pad, d, block, out);
}

// Scores to weights; what is outside [low, high] weighs nothing. Returns the factor of what was summed
// up before.
inline float soften(float* scores, int low, int high, float* most, float* total) {
  constexpr int N = KEYS / LANES;
  if (low > 0 || high < KEYS - 1)
    for (int i = 0; i < KEYS; i++)
      if (i < low || i > high) scores[i] = -INFINITY;
  vf top = v_load(scores);
  for (int i = 1; i < N; i++) top = v_max(top, v_load(scores + i * LANES));
  float block_most = v_greatest(top);
  float new_most = *most > block_most ? *most : block_most;
  vf sum = v_set(0.0f);
  for (int i = 0; i < N; i++) {
    vf weight = v_exp(v_sub(v_load(scores + i * LANES), v_set(new_most)));
    v_store(scores + i * LANES, weight);
    sum = v_add(sum, weight);
  }
  float lanes[LANES];
  v_store(lanes, v_exp(v_set(*most - new_most)));
  *total = *total * lanes[0] + v_sum(sum);
  *most = new_most;
  return lanes[0];
}

// All pairs of a tile: scores, weights, sums.
struct Pairs {
  int num_pairs, group, start;  // pair p is query start + p / group
  int head_dim, pad, window;
  float *queries, *sums, *scores, *most, *totals;
};

template <bool HALF>
inline void visit_block(const Pairs& t, const Block& block, int base) {
  const int pad = t.pad;
  float factors[MAX_PAIRS];
  int p = 0;
  for (; p + PAIRS <= t.num_pairs; p += PAIRS)
    score<PAIRS, HALF>(t.queries + p * pad, pad, t.head_dim, block, t.scores + p * KEYS);
  switch (t.num_pairs - p) {
    case 3: score<3, HALF>(t.queries + p * pad, pad, t.head_dim, block, t.scores + p * KEYS); break;
    case 2: score<2, HALF>(t.queries + p * pad, pad, t.head_dim, block, t.scores + p * KEYS); break;
    case 1: score<1, HALF>(t.queries + p * pad, pad, t.head_dim, block, t.scores + p * KEYS); break;
  }
  for (p = 0; p < t.num_pairs; p++) {
    const int position = t.start + p / t.group;
    const int low = t.window ? position - t.window + 1 - base : 0;
    factors[p] = soften(t.scores + p * KEYS, low, position - base, t.most + p, t.totals + p);
  }
  p = 0;
  for (; p + PAIRS <= t.num_pairs; p += PAIRS)
    gather_values<PAIRS, HALF>(t.scores + p * KEYS, factors + p, pad, block, t.sums + p * pad);
  switch (t.num_pairs - p) {
    case 3: gather_values<3, HALF>(t.scores + p * KEYS, factors + p, pad, block, t.sums + p * pad); break;
    case 2: gather_values<2, HALF>(t.scores + p * KEYS, factors + p, pad, block, t.sums + p * pad); break;
    case 1: gather_values<1, HALF>(t.scores + p * KEYS, factors + p, pad, block, t.sums + p * pad); break;
  }
}

// One position's number d of a key, or of a value, as a float.
inline float number_at(const HwPool& pool, const void* base, int64_t at) {
  float lanes[LANES];
  if (!pool.is_half) return ((const float*)base)[at];
  uint16_t half[LANES] = {((const uint16_t*)base)[at]};
  v_store(lanes, v_load_half(half));
  return lanes[0];
}

struct Source {
  const HwPool* pool;
  const int32_t* pages;
  int64_t layer;
  int num_kv_heads, kv_head, head_dim;
};

// The block at `base` as it lies in its pages.
inline Block block_in_pages(const Source& s, int base, int end) {
  const int size = s.pool->page_size;
  Block block = {s.pool->k, s.pool->v, s.pool->is_half != 0, {0, 0}, {0, 0}, size, s.head_dim,
                 end - base < KEYS ? end - base : KEYS};
  for (int half = 0; half < 2; half++) {
    const int position = base + 16 * half;
    // A run beyond the end is never used, but read: any page will do.
    const int64_t page = s.pages[(position < end ? position : base) / size];
    const int64_t at = page_start(*s.pool, s.layer, page, s.num_kv_heads, s.kv_head, s.head_dim);
    block.key_at[half] = at + position % size;
    block.value_at[half] = at + (int64_t)(position % size) * s.head_dim;
  }
  return block;
}

// The same as a copy in floats: keys [number][32], values [32][pad].
inline Block block_copy(const Source& s, int base, int end, int pad, float* keys, float* values) {
  const int size = s.pool->page_size, count = end - base < KEYS ? end - base : KEYS;
  memset(keys, 0, sizeof(float) * KEYS * pad);
  memset(values, 0, sizeof(float) * KEYS * pad);
  for (int k = 0; k < count; k++) {
    const int64_t page = s.pages[(base + k) / size], off = (base + k) % size;
    const int64_t at = page_start(*s.pool, s.layer, page, s.num_kv_heads, s.kv_head, s.head_dim);
    for (int d = 0; d < s.head_dim; d++) {
      keys[d * KEYS + k] = number_at(*s.pool, s.pool->k, at + d * size + off);
      values[k * pad + d] = number_at(*s.pool, s.pool->v, at + off * s.head_dim + d);
    }
  }
  return {keys, values, false, {0, 16}, {0, 16 * pad}, KEYS, pad, count};
}

// Fetch the next block while this one is computed.
inline void fetch_ahead(const Block& block, int head_dim) {
#if defined(HW_AVX512) || defined(HW_AVX2)
  const int64_t size = block.is_half ? 2 : 4, bytes = 16 * head_dim * size;
  for (int half = 0; half < 2; half++) {
    const char* keys = (const char*)block.keys + block.key_at[half] * size;
    const char* values = (const char*)block.values + block.value_at[half] * size;
    for (int64_t i = 0; i < bytes; i += 64) {
      _mm_prefetch(keys + i, _MM_HINT_T0);
      _mm_prefetch(values + i, _MM_HINT_T0);
    }
  }
#else
  (void)block, (void)head_dim;
#endif
}

inline void visit_blocks(const Pairs& t, const Source& s, int lowest, int end, float* scratch) {
  // Padded numbers would be read from the neighbour's: only whole vectors are read in place.
  const bool in_place = s.pool->page_size % 16 == 0 && t.pad == t.head_dim;
  const int first = lowest / KEYS * KEYS;
  for (int base = first; base < end; base += KEYS) {
    if (!in_place) {
      visit_block<false>(t, block_copy(s, base, end, t.pad, scratch, scratch + KEYS * t.pad), base);
      continue;
    }
    if (base + KEYS < end) fetch_ahead(block_in_pages(s, base + KEYS, end), t.head_dim);
    const Block block = block_in_pages(s, base, end);
    block.is_half ? visit_block<true>(t, block, base) : visit_block<false>(t, block, base);
  }
}

// Queries of one request at positions [start, end) (few enough for a tile), heads of one key head.
// `q` and `out` are those of the first query: [query][num_heads][head_dim].
inline void attend(const float* q, int start, int end, const int32_t* pages, const HwPool& pool,
                   int64_t layer, int kv_head, const AttentionShape& shape, float* out,
                   float* scratch) {
  const int D = shape.head_dim, pad = (D + LANES - 1) / LANES * LANES;
  const int whole_group = shape.num_heads / shape.num_kv_heads;
  const int64_t row = (int64_t)shape.num_heads * D;
  const Source source = {&pool, pages, layer, shape.num_kv_heads, kv_head, D};
  const int lowest = shape.window && start >= shape.window ? start - shape.window + 1 : 0;
  float* memory = scratch + 2 * KEYS * pad;
  for (int first = 0; first < whole_group; first += MAX_PAIRS) {
    const int group = whole_group - first < MAX_PAIRS ? whole_group - first : MAX_PAIRS;
    const int num_pairs = (end - start) * group;
    const int64_t head = (int64_t)(kv_head * whole_group + first) * D;
    Pairs t = {num_pairs, group, start, D, pad, shape.window, memory, nullptr, nullptr, nullptr, nullptr};
    t.sums = t.queries + MAX_PAIRS * pad;
    t.scores = t.sums + MAX_PAIRS * pad;
    t.most = t.scores + MAX_PAIRS * KEYS;
    t.totals = t.most + MAX_PAIRS;
    for (int p = 0; p < num_pairs; p++) {
      const float* from = q + (p / group) * row + head + (p % group) * D;
      for (int d = 0; d < D; d++) t.queries[p * pad + d] = from[d] * shape.scale;
      t.most[p] = NEVER;
      t.totals[p] = 0.0f;
    }
    memset(t.sums, 0, sizeof(float) * num_pairs * pad);
    visit_blocks(t, source, lowest, end, scratch);
    for (int p = 0; p < num_pairs; p++) {
      float* to = out + (p / group) * row + head + (p % group) * D;
      for (int d = 0; d < D; d++) to[d] = t.sums[p * pad + d] / t.totals[p];
    }
  }
}

// Put one head's key and value of a token into its page.
inline void store_head(const HwPool& pool, int64_t start, int off, int head_dim, const float* k,
                       const float* v) {
  const int size = pool.page_size;
  if (!pool.is_half) {
    for (int d = 0; d < head_dim; d++) ((float*)pool.k)[start + (int64_t)d * size + off] = k[d];
    memcpy((float*)pool.v + start + (int64_t)off * head_dim, v, head_dim * sizeof(float));
    return;
  }
  uint16_t* keys = (uint16_t*)pool.k + start + off;
  uint16_t* values = (uint16_t*)pool.v + start + (int64_t)off * head_dim;
  for (int d = 0; d < head_dim; d += LANES) {
    const int count = head_dim - d < LANES ? head_dim - d : LANES;
    float key[LANES] = {}, value[LANES] = {};
    uint16_t halves[LANES];
    memcpy(key, k + d, count * sizeof(float));
    memcpy(value, v + d, count * sizeof(float));
    v_store_half(halves, v_load(key));
    for (int i = 0; i < count; i++) keys[(int64_t)(d + i) * size] = halves[i];
    v_store_half(halves, v_load(value));
    memcpy(values + d, halves, count * sizeof(uint16_t));
  }
}

}  // namespace
