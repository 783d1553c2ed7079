// The C interface: memory, threads and the choice of an instruction set.
#include <stdlib.h>

#include <vector>
#if defined(_OPENMP)
#include <omp.h>
#endif

#include "headwater.h"
#include "isa.h"
#include "layout.h"
#include "pack.h"
#include "pick.h"

namespace {

bool has_isa(const Isa& isa) {
#if defined(__x86_64__)
  if (&isa == &isa_avx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("f16c");
  if (&isa == &isa_avx2)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
#endif
  return &isa == &isa_generic;
}

const Isa* const ALL[] = {
#if defined(__x86_64__)
    &isa_avx512, &isa_avx2,
#endif
    &isa_generic};

const Isa* best_isa() {
  for (const Isa* isa : ALL)
    if (has_isa(*isa)) return isa;
  return &isa_generic;
}

const Isa* chosen = best_isa();

// Run `work(team, thread)` on a team of threads.
template <typename Work>
void run_team(int num_threads, int num_stages, Work work) {
  std::vector<Stage> stages(num_stages, Stage{0, 0});
  Team team = {1, stages.data()};
#if defined(_OPENMP)
#pragma omp parallel num_threads(num_threads)
  {
#pragma omp single
    team.size = omp_get_num_threads();
    work(team, omp_get_thread_num());
  }
#else
  (void)num_threads;
  work(team, 0);
#endif
}

// Memory that is cut into aligned pieces; the first pass only counts.
class Arena {
 public:
  explicit Arena(uint8_t* base) : base_(base) {}
  template <typename T>
  T* take(int64_t count) {
    T* piece = base_ ? (T*)(base_ + used_) : nullptr;
    used_ += (count * (int64_t)sizeof(T) + 63) / 64 * 64;
    return piece;
  }
  int64_t used() const { return used_; }

 private:
  uint8_t* base_;
  int64_t used_ = 0;
};

ActsOut take_acts(Arena& arena, int64_t rows, int64_t cols, bool with_floats, bool with_q8) {
  const int64_t groups = cols / GROUP;
  ActsOut acts = {};
  if (with_floats) acts.x = arena.take<float>(rows * cols);
  if (with_q8) {
    acts.q = arena.take<int8_t>(rows * cols);
    acts.scale = arena.take<float>(rows * groups);
    acts.sum = arena.take<float>(rows * groups);
    acts.isum = arena.take<int32_t>(rows * groups);
  }
  return acts;
}

bool linear_needs_q8(const HwLinear& linear) {
  for (int i = 0; i < linear.num_parts; i++)
    if (is_quantized(linear.parts[i].format)) return true;
  return false;
}

std::vector<Tile> tiles_of(const HwRows& rows, const AttentionShape& shape) {
  const int group = shape.num_heads / shape.num_kv_heads;
  const int most = group >= MAX_PAIRS ? 1 : MAX_PAIRS / group;
  std::vector<Tile> tiles;
  int token = 0;
  for (int i = 0; i < rows.num_rows; i++)
    for (int start = rows.starts[i]; start < rows.ends[i]; start += most) {
      const int end = start + most < rows.ends[i] ? start + most : rows.ends[i];
      tiles.push_back({i, start, end, token});
      token += end - start;
    }
  return tiles;
}

// Grows, and never gives back.
class Memory {
 public:
  ~Memory() { free(data_); }
  uint8_t* at_least(int64_t size) {
    if (size > size_) {
      free(data_);
      data_ = nullptr;
      size_ = 0;
      void* data = nullptr;
      if (posix_memalign(&data, 64, size) == 0) data_ = (uint8_t*)data, size_ = size;
    }
    return data_;
  }

 private:
  uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace

struct HwDecoder {
  HwModel model;
  int num_threads;
  bool needs_q8;
  Memory memory;
};

namespace {

int widest_input(const HwModel& m) {
  int width = m.num_heads * m.head_dim;
  if (m.hidden_size > width) width = m.hidden_size;
  return m.intermediate_size > width ? m.intermediate_size : width;
}

int widest_product(const HwModel& m) {
  const int qkv = (m.num_heads + 2 * m.num_kv_heads) * m.head_dim;
  return 2 * m.intermediate_size > qkv ? 2 * m.intermediate_size : qkv;
}

void take_memory(Arena& arena, const HwDecoder& decoder, Step& s, int32_t** positions,
                 int32_t** pages) {
  const HwModel& m = decoder.model;
  const int64_t T = s.rows->num_tokens, R = s.num_logit_rows;
  s.hidden = arena.take<float>(T * m.hidden_size);
  s.wide = arena.take<float>(T * widest_product(m));
  s.q = arena.take<float>(T * m.num_heads * m.head_dim);
  s.attended = arena.take<float>(T * m.num_heads * m.head_dim);
  s.acts = take_acts(arena, T > R ? T : R, widest_input(m), true, decoder.needs_q8);
  *positions = arena.take<int32_t>(T);
  *pages = arena.take<int32_t>(T);
  s.scratch_size = (chosen->attention_scratch(m.head_dim) + 15) / 16 * 16;
  s.scratch = arena.take<float>(s.scratch_size * decoder.num_threads);
}

void place_tokens(const HwRows& rows, int page_size, int32_t* positions, int32_t* pages) {
  int64_t token = 0;
  for (int i = 0; i < rows.num_rows; i++)
    for (int p = rows.starts[i]; p < rows.ends[i]; p++, token++) {
      positions[token] = p;
      pages[token] = rows.pages[rows.page_offsets[i] + p / page_size];
    }
}

}  // namespace

extern "C" {

int32_t hw_abi_version(void) { return HW_ABI_VERSION; }

const char* hw_isa(void) { return chosen->name; }

int32_t hw_set_isa(const char* name) {
  for (const Isa* isa : ALL)
    if (strcmp(isa->name, name) == 0 && has_isa(*isa)) {
      chosen = isa;
      return 0;
    }
  return -1;
}

int32_t hw_has_threads(void) {
#if defined(_OPENMP)
  return 1;
#else
  return 0;
#endif
}

int64_t hw_packed_bytes(int32_t format, int32_t rows, int32_t cols) {
  return num_blocks(rows) * block_bytes(format, cols);
}

int32_t hw_pack(void* packed, int32_t format, int32_t rows, int32_t cols, int32_t first_row,
                int32_t num_rows, const void* source, int32_t source_kind) {
  if (!can_pack(format, source_kind, cols)) return -1;
  if (first_row % BLOCK || (num_rows % BLOCK && first_row + num_rows != rows)) return -1;
  const int64_t row_bytes = source_row_bytes(source_kind, cols);
  const int64_t bytes = block_bytes(format, cols);
#if defined(_OPENMP)
#pragma omp parallel for schedule(static)
#endif
  for (int64_t b = 0; b < num_blocks(num_rows); b++) {
    uint8_t* block = (uint8_t*)packed + (first_row / BLOCK + b) * bytes;
    memset(block, 0, bytes);
    for (int64_t r = 0; r < BLOCK && b * BLOCK + r < num_rows; r++) {
      const uint8_t* row = (const uint8_t*)source + (b * BLOCK + r) * row_bytes;
      if (is_quantized(format))
        pack_quantized_row(block, format, cols, (int)r, row, source_kind);
      else
        pack_plain_row(block, format, cols, (int)r, row, source_kind);
    }
  }
  return 0;
}

void hw_unpack_row(const HwMatrix* matrix, int32_t row, float* out) {
  chosen->unpack_row(*matrix, row, out);
}

int32_t hw_linear(const float* x, int32_t num_rows, const HwLinear* linear, float* out,
                  int32_t num_threads) {
  Product p = {x, num_rows, linear, out, {}, linear_needs_q8(*linear)};
  Memory memory;
  for (uint8_t* base = nullptr;;) {
    Arena arena(base);
    p.acts = take_acts(arena, num_rows, linear->parts[0].cols, false, p.needs_q8);
    if (base || !p.needs_q8) break;
    base = memory.at_least(arena.used());
    if (!base) return -1;
  }
  run_team(num_threads, 2, [&](Team& team, int thread) { chosen->run_product(team, p, thread); });
  return 0;
}

int32_t hw_attention(const float* q, const HwRows* rows, const HwPool* pool, int32_t num_heads,
                     int32_t num_kv_heads, int32_t head_dim, float scale, int32_t window, float* out,
                     int32_t num_threads) {
  const AttentionShape shape = {num_heads, num_kv_heads, head_dim, window, scale};
  const std::vector<Tile> tiles = tiles_of(*rows, shape);
  AttentionStep a = {rows, pool, shape, q, out, tiles.data(), (int)tiles.size(), nullptr, 0};
  a.scratch_size = (chosen->attention_scratch(head_dim) + 15) / 16 * 16;
  Memory memory;
  a.scratch = (float*)memory.at_least(a.scratch_size * num_threads * (int64_t)sizeof(float));
  if (!a.scratch) return -1;
  run_team(num_threads, 1, [&](Team& team, int thread) { chosen->run_attention(team, a, thread); });
  return 0;
}

void hw_rms_norm(const float* x, const float* weight, float eps, int32_t num_rows, int32_t size,
                 float* out) {
  for (int64_t i = 0; i < num_rows; i++)
    chosen->rms_norm_row(x + i * size, weight, eps, size, out + i * size);
}

void hw_silu_mul(const float* gate_up, int32_t num_rows, int32_t size, float* out) {
  for (int64_t i = 0; i < num_rows; i++)
    chosen->silu_mul_row(gate_up + 2 * i * size, size, out + i * size);
}

void hw_pick(const float* logits, int32_t num_rows, int32_t vocab_size, const HwPick* picks,
             int64_t* tokens, int32_t num_threads) {
  (void)num_threads;
#if defined(_OPENMP)
#pragma omp parallel for schedule(dynamic) num_threads(num_threads) if (num_rows > 1)
#endif
  for (int64_t i = 0; i < num_rows; i++)
    tokens[i] = pick_row(*chosen, logits + i * vocab_size, vocab_size, picks[i]);
}

HwDecoder* hw_decoder_new(const HwModel* model, int32_t num_threads) {
  HwDecoder* decoder = new HwDecoder{*model, num_threads, is_quantized(model->lm_head.format), {}};
  for (int i = 0; i < model->num_layers; i++) {
    const HwLayer& layer = model->layers[i];
    for (const HwLinear* linear : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down})
      decoder->needs_q8 |= linear_needs_q8(*linear);
  }
  return decoder;
}

void hw_decoder_free(HwDecoder* decoder) { delete decoder; }

int32_t hw_decoder_step(HwDecoder* decoder, const int64_t* token_ids, const HwRows* rows,
                        const HwPool* pool, const int64_t* logit_rows, int32_t num_logit_rows,
                        float* logits) {
  const HwModel& m = decoder->model;
  const AttentionShape shape = {m.num_heads, m.num_kv_heads, m.head_dim, 0, m.scale};
  const std::vector<Tile> tiles = tiles_of(*rows, shape);
  Step s = {};
  s.model = &m, s.token_ids = token_ids, s.rows = rows, s.pool = pool;
  s.logit_rows = logit_rows, s.num_logit_rows = num_logit_rows, s.logits = logits;
  s.needs_q8 = decoder->needs_q8;
  s.tiles = tiles.data(), s.num_tiles = (int)tiles.size();
  int32_t* positions = nullptr;
  int32_t* pages = nullptr;
  Arena sizes(nullptr);
  take_memory(sizes, *decoder, s, &positions, &pages);
  uint8_t* base = decoder->memory.at_least(sizes.used());
  if (!base) return -1;
  Arena arena(base);
  take_memory(arena, *decoder, s, &positions, &pages);
  s.positions = positions, s.pages = pages;
  place_tokens(*rows, pool->page_size, positions, pages);
  run_team(decoder->num_threads, 10 * m.num_layers + 3,
           [&](Team& team, int thread) { chosen->run_step(team, s, thread); });
  return 0;
}

}  // extern "C"
