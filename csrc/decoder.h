// The steps of a pre-norm decoder, run by a team of threads that walk through the same stages.
// Who computes a piece does not change its bits.
#pragma once
#include "attention.h"
#include "headwater.h"
#include "linear.h"
#include "steps.h"
#include "team.h"

namespace {

constexpr int ROW_CHUNK = 256;  // rows of activations that a block of weights meets in one piece

inline void rms_norm_row(const float* x, const float* weight, float eps, int size, float* out) {
  vf squares = v_set(0.0f);
  int i = 0;
  for (; i + LANES <= size; i += LANES) {
    vf v = v_load(x + i);
    squares = v_fma(v, v, squares);
  }
  float total = v_sum(squares);
  for (; i < size; i++) total += x[i] * x[i];
  float factor = 1.0f / sqrtf(total / (float)size + eps);
  for (i = 0; i + LANES <= size; i += LANES)
    v_store(out + i, v_mul(v_mul(v_load(x + i), v_set(factor)), v_load(weight + i)));
  for (; i < size; i++) out[i] = x[i] * factor * weight[i];
}

inline vf silu_mul(vf gate, vf up) {
  vf one = v_set(1.0f);
  return v_mul(v_div(gate, v_add(one, v_exp(v_sub(v_set(0.0f), gate)))), up);
}

inline void silu_mul_row(const float* gate_up, int size, float* out) {
  int i = 0;
  for (; i + LANES <= size; i += LANES)
    v_store(out + i, silu_mul(v_load(gate_up + i), v_load(gate_up + size + i)));
  if (i < size) {
    float gate[LANES] = {}, up[LANES] = {}, rest[LANES];
    memcpy(gate, gate_up + i, (size - i) * sizeof(float));
    memcpy(up, gate_up + size + i, (size - i) * sizeof(float));
    v_store(rest, silu_mul(v_load(gate), v_load(up)));
    memcpy(out + i, rest, (size - i) * sizeof(float));
  }
}

// Number i of the first half with number i of the second half (arXiv:2104.09864).
inline void rope_head(float* x, const float* cos, const float* sin, int half) {
  for (int i = 0; i < half; i++) {
    float a = x[i], b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
}

// A stage that works row by row.
template <typename Work>
inline void each_row(Team& team, Walk& walk, int num_rows, Work work) {
  share(team, walk, num_rows, num_rows / (team.size * 4) + 1, work);
}

inline int outputs_of(const HwLinear& linear) {
  int total = 0;
  for (int i = 0; i < linear.num_parts; i++) total += linear.parts[i].rows;
  return total;
}

inline void linear_stage(Team& team, Walk& walk, const HwLinear& linear, const Acts& acts, int num_rows,
                         float* out, bool adds) {
  const int width = outputs_of(linear);
  int blocks = 0;
  for (int i = 0; i < linear.num_parts; i++) blocks += (int)num_blocks(linear.parts[i].rows);
  const int row_chunks = (num_rows + ROW_CHUNK - 1) / ROW_CHUNK;
  const int items = blocks * row_chunks;
  share(team, walk, items, items / (team.size * 4) + 1, [&](int i) {
    const int row = i / blocks * ROW_CHUNK;
    int block = i % blocks, part = 0, first = 0;
    while (block >= (int)num_blocks(linear.parts[part].rows)) {
      block -= (int)num_blocks(linear.parts[part].rows);
      first += linear.parts[part++].rows;
    }
    first += block * BLOCK;
    const Target target = {out + first, width, linear.bias ? linear.bias + first : nullptr, adds};
    const int end = row + ROW_CHUNK < num_rows ? row + ROW_CHUNK : num_rows;
    matrix_block(linear.parts[part], block, acts, row, end, target);
  });
}

inline void attention_stage(Team& team, Walk& walk, const HwRows& rows, const HwPool& pool,
                            int64_t layer, const AttentionShape& shape, const float* q,
                            float* out, const Tile* tiles, int num_tiles, float* scratch) {
  const int items = num_tiles * shape.num_kv_heads;
  const int64_t width = (int64_t)shape.num_heads * shape.head_dim;
  // The last tiles of a prompt see the most keys, so they go first.
  share(team, walk, items, 1, [&](int item) {
    const Tile& t = tiles[num_tiles - 1 - item / shape.num_kv_heads];
    attend(q + t.token * width, t.start, t.end, rows.pages + rows.page_offsets[t.row], pool, layer,
           item % shape.num_kv_heads, shape, out + t.token * width, scratch);
  });
}

// Query, key and value of one token out of the fused product: normed, rotated, stored.
inline void place_token(const HwModel& model, const HwLayer& layer, const HwPool& pool, int64_t index,
                        int64_t page, int position, float* qkv, float* q) {
  const int D = model.head_dim, half = model.rotary_dim / 2;
  const float* cos = model.cos + (int64_t)position * half;
  const float* sin = model.sin + (int64_t)position * half;
  float* k = qkv + (int64_t)model.num_heads * D;
  const float* v = k + (int64_t)model.num_kv_heads * D;
  for (int h = 0; h < model.num_heads + model.num_kv_heads; h++) {
    float* head = qkv + (int64_t)h * D;
    const float* norm = h < model.num_heads ? layer.q_norm : layer.k_norm;
    if (norm) rms_norm_row(head, norm, model.rms_norm_eps, D, head);
    rope_head(head, cos, sin, half);
  }
  memcpy(q, qkv, sizeof(float) * model.num_heads * D);
  for (int h = 0; h < model.num_kv_heads; h++)
    store_head(pool, page_start(pool, index, page, model.num_kv_heads, h, D),
               position % pool.page_size, D, k + (int64_t)h * D, v + (int64_t)h * D);
}

inline void unpack_row(const HwMatrix& m, int row, float* out) {
  const uint8_t* block = (const uint8_t*)m.data + row / BLOCK * block_bytes(m.format, m.cols);
  const int r = row % BLOCK, groups = m.cols / GROUP;
  float lanes[LANES];
  auto number = [&](const void* base, int kind, int64_t i) {
    const int64_t start = i / LANES * LANES;
    if (kind == HW_F32) return ((const float*)base)[i];
    v_store(lanes, kind == HW_F16 ? v_load_half((const uint16_t*)base + start)
                                  : v_load_brain((const uint16_t*)base + start));
    return lanes[i - start];
  };
  if (!is_quantized(m.format)) {
    for (int k = 0; k < m.cols; k++) out[k] = number(block, m.format, (int64_t)k * BLOCK + r);
    return;
  }
  const bool is_q8 = m.format == HW_Q8;
  const int unit = is_q8 ? Q8_UNITS : Q4_UNITS, kind = m.format == HW_Q4_WIDE ? HW_F32 : HW_F16;
  const uint8_t* scales = block + (int64_t)groups * unit;
  const uint8_t* minima = scales + (int64_t)groups * BLOCK * (kind == HW_F32 ? 4 : 2);
  for (int g = 0; g < groups; g++) {
    const float scale = number(scales, kind, (int64_t)g * BLOCK + r);
    const float minimum = is_q8 ? 0.0f : number(minima, kind, (int64_t)g * BLOCK + r);
    const uint8_t* units = block + (int64_t)g * unit + 4 * r;
    for (int c = 0; c < GROUP; c++) {
      const int half = is_q8 ? c : c % 16;
      const uint8_t byte = units[64 * (half / 4) + half % 4];
      const int q = is_q8 ? (int8_t)byte : c < 16 ? byte & 15 : byte >> 4;
      out[g * GROUP + c] = scale * (float)q + minimum;
    }
  }
}

inline void norm_stage(Team& team, Walk& walk, const Step& s, const float* weight) {
  const HwModel& m = *s.model;
  const int size = m.hidden_size;
  each_row(team, walk, s.rows->num_tokens, [&](int i) {
    float* x = s.acts.x + (int64_t)i * size;
    rms_norm_row(s.hidden + (int64_t)i * size, weight, m.rms_norm_eps, size, x);
    if (s.needs_q8) quantize_row(x, size, i, s.acts);
  });
}

inline void layer_stages(Team& team, Walk& walk, const Step& s, int index, float* scratch) {
  const HwModel& m = *s.model;
  const HwLayer& layer = m.layers[index];
  const int T = s.rows->num_tokens, width = m.num_heads * m.head_dim;
  const int qkv_width = width + 2 * m.num_kv_heads * m.head_dim;
  norm_stage(team, walk, s, layer.input_norm);
  linear_stage(team, walk, layer.qkv, acts_of(s.acts, m.hidden_size), T, s.wide, false);
  each_row(team, walk, T, [&](int i) {
    place_token(m, layer, *s.pool, index, s.pages[i], s.positions[i], s.wide + (int64_t)i * qkv_width,
                s.q + (int64_t)i * width);
  });
  const AttentionShape shape = {m.num_heads, m.num_kv_heads, m.head_dim, layer.window, m.scale};
  attention_stage(team, walk, *s.rows, *s.pool, index, shape, s.q, s.attended, s.tiles, s.num_tiles,
                  scratch);
  if (s.needs_q8)
    each_row(team, walk, T, [&](int i) {
      quantize_row(s.attended + (int64_t)i * width, width, i, s.acts);
    });
  Acts attended = acts_of(s.acts, width);
  attended.x = s.attended;
  linear_stage(team, walk, layer.output, attended, T, s.hidden, true);
  norm_stage(team, walk, s, layer.post_norm);
  linear_stage(team, walk, layer.gate_up, acts_of(s.acts, m.hidden_size), T, s.wide, false);
  const int inner = m.intermediate_size;
  each_row(team, walk, T, [&](int i) {
    float* x = s.acts.x + (int64_t)i * inner;
    silu_mul_row(s.wide + (int64_t)i * 2 * inner, inner, x);
    if (s.needs_q8) quantize_row(x, inner, i, s.acts);
  });
  linear_stage(team, walk, layer.down, acts_of(s.acts, inner), T, s.hidden, true);
}

// What each thread of the team does.
void run_step(Team& team, const Step& s, int thread) {
  const HwModel& m = *s.model;
  const int size = m.hidden_size;
  Walk walk = {0};
  float* scratch = s.scratch + thread * s.scratch_size;
  each_row(team, walk, s.rows->num_tokens, [&](int i) {
    unpack_row(m.embedding, (int)s.token_ids[i], s.hidden + (int64_t)i * size);
  });
  for (int i = 0; i < m.num_layers; i++) layer_stages(team, walk, s, i, scratch);
  each_row(team, walk, s.num_logit_rows, [&](int i) {
    float* x = s.acts.x + (int64_t)i * size;
    rms_norm_row(s.hidden + s.logit_rows[i] * size, m.norm, m.rms_norm_eps, size, x);
    if (s.needs_q8) quantize_row(x, size, i, s.acts);
  });
  HwLinear head = {};
  head.parts[0] = m.lm_head;
  head.num_parts = 1;
  linear_stage(team, walk, head, acts_of(s.acts, size), s.num_logit_rows, s.logits, false);
}

void run_product(Team& team, const Product& p, int thread) {
  (void)thread;
  Walk walk = {0};
  const int cols = p.linear->parts[0].cols;
  if (p.needs_q8)
    each_row(team, walk, p.num_rows,
             [&](int i) { quantize_row(p.x + (int64_t)i * cols, cols, i, p.acts); });
  Acts acts = acts_of(p.acts, cols);
  acts.x = p.x;
  linear_stage(team, walk, *p.linear, acts, p.num_rows, p.out, false);
}

void run_attention(Team& team, const AttentionStep& a, int thread) {
  Walk walk = {0};
  attention_stage(team, walk, *a.rows, *a.pool, 0, a.shape, a.q, a.out, a.tiles, a.num_tiles,
                  a.scratch + thread * a.scratch_size);
}

}  // namespace
