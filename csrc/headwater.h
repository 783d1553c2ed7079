// The C interface of headwater's CPU operations. Python calls it through ctypes: no Python header, no
// PyTorch header. All pointers are to memory that the caller keeps alive; nothing here allocates but
// `hw_decoder_new` and `hw_decoder_step`.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

// Raised with every change to a struct or function; Python refuses another number.
#define HW_ABI_VERSION 1

// How a matrix of weights is packed. Rows (outputs) stand in blocks of 16, the last one padded with
// zeros; columns (inputs) of quantized formats in groups of 32.
//
//   F32, F16, BF16   block: [column][16 rows] numbers.
//   Q8               block: [group][8 units][16 rows][4 columns] int8, then [group][16 rows] fp16 scales.
//                    weight = scale * q
//   Q4               block: [group][4 units][16 rows][4 columns] bytes, then [group][16] fp16 scales,
//                    then [group][16] fp16 minima. A byte of unit u, column c holds the weights of
//                    columns 4 * u + c (low nibble) and 16 + 4 * u + c (high nibble) of the group.
//                    weight = scale * q + minimum
//   Q4_WIDE          the same with fp32 scales and minima, for formats whose scales fp16 cannot hold.
//
// A block's size is rounded up to 64 bytes.
enum { HW_F32 = 0, HW_F16 = 1, HW_BF16 = 2, HW_Q8 = 3, HW_Q4 = 4, HW_Q4_WIDE = 5 };

// Kinds of blocks that `hw_pack` reads.
enum {
  HW_FROM_F32 = 0,
  HW_FROM_F16 = 1,
  HW_FROM_BF16 = 2,
  HW_FROM_GGUF_Q4_0 = 3,
  HW_FROM_GGUF_Q4_1 = 4,
  HW_FROM_GGUF_Q4_K = 5,
  HW_FROM_GGUF_Q8_0 = 6,
};

typedef struct {
  const void* data;  // packed, 64-byte aligned
  int32_t format;
  int32_t rows;  // outputs
  int32_t cols;  // inputs
  int32_t unused;
} HwMatrix;

// Matrices that share their input; their outputs stand one after the other.
typedef struct {
  HwMatrix parts[3];
  int32_t num_parts;
  int32_t unused;
  const float* bias;  // over all outputs, or null
} HwLinear;

typedef struct {
  const float* input_norm;
  const float* post_norm;
  const float* q_norm;  // [head_dim], or null
  const float* k_norm;
  HwLinear qkv;
  HwLinear output;
  HwLinear gate_up;
  HwLinear down;
  int32_t window;  // positions that are seen; 0 for all
  int32_t unused;
} HwLayer;

typedef struct {
  int32_t hidden_size;
  int32_t intermediate_size;
  int32_t num_layers;
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t rotary_dim;  // the first numbers of a head that are rotated
  int32_t vocab_size;
  float rms_norm_eps;
  float scale;  // of the scores
  const HwLayer* layers;
  const float* norm;
  const float* cos;  // [context, rotary_dim / 2]
  const float* sin;
  HwMatrix embedding;
  HwMatrix lm_head;
} HwModel;

// Keys [num_layers][num_pages][num_kv_heads][head_dim][page_size] and
// values [num_layers][num_pages][num_kv_heads][page_size][head_dim], of fp32 or fp16.
typedef struct {
  void* k;
  void* v;
  int64_t num_pages;
  int32_t is_half;
  int32_t page_size;
} HwPool;

// The rows of a step: row i computes positions [starts[i], ends[i]) of one request, whose pages are
// pages[page_offsets[i]] and following. Tokens stand one row after the other.
typedef struct {
  int32_t num_rows;
  int32_t num_tokens;
  const int32_t* starts;
  const int32_t* ends;
  const int64_t* page_offsets;
  const int32_t* pages;
} HwRows;

// How a row's token is picked. Without filters top_k is 0, top_p 1 and min_p 0.
typedef struct {
  double temperature;
  double top_p;
  double min_p;
  double share;  // uniform number in [0, 1)
  int32_t top_k;
  int32_t is_greedy;
  int32_t may_be_masked;  // minus infinity is no fault of the model
  int32_t unused;
} HwPick;

typedef struct HwDecoder HwDecoder;

int32_t hw_abi_version(void);
// "avx512", "avx2" or "generic": what the calls below use.
const char* hw_isa(void);
// Use another one; for tests. Returns 0, or -1 when this processor lacks it.
int32_t hw_set_isa(const char* name);
// 1 when threads are really used (built with OpenMP).
int32_t hw_has_threads(void);

// Bytes of a packed matrix.
int64_t hw_packed_bytes(int32_t format, int32_t rows, int32_t cols);
// Pack `num_rows` rows of a checkpoint, from row `first_row` of the matrix on. `first_row` is a multiple
// of 16; so is `num_rows`, or they reach the matrix's end. Returns 0, or -1 for a pair of formats that is
// not there.
int32_t hw_pack(void* packed, int32_t format, int32_t rows, int32_t cols, int32_t first_row,
                int32_t num_rows, const void* source, int32_t source_kind);
// float32 values of one row of a packed matrix.
void hw_unpack_row(const HwMatrix* matrix, int32_t row, float* out);

// out [num_rows, outputs] = x [num_rows, cols] times the matrices, plus bias.
// Returns 0, or -1 when there is no memory.
int32_t hw_linear(const float* x, int32_t num_rows, const HwLinear* linear, float* out,
                  int32_t num_threads);
// Attention of q [num_tokens, num_heads, head_dim] over one layer's pool.
int32_t hw_attention(const float* q, const HwRows* rows, const HwPool* pool, int32_t num_heads,
                     int32_t num_kv_heads, int32_t head_dim, float scale, int32_t window, float* out,
                     int32_t num_threads);
void hw_rms_norm(const float* x, const float* weight, float eps, int32_t num_rows, int32_t size,
                 float* out);
void hw_silu_mul(const float* gate_up, int32_t num_rows, int32_t size, float* out);

// tokens[i] = the token of row i of logits [num_rows, vocab]; -1 where they are not numbers, or every token
// is masked.
void hw_pick(const float* logits, int32_t num_rows, int32_t vocab_size, const HwPick* picks,
             int64_t* tokens, int32_t num_threads);

// A decoder over a model that the caller keeps alive; null when there is no memory.
HwDecoder* hw_decoder_new(const HwModel* model, int32_t num_threads);
void hw_decoder_free(HwDecoder* decoder);
// Compute a step: write the tokens' keys and values, and logits [num_logit_rows, vocab] of the tokens
// in `logit_rows`. Returns 0, or -1 when there is no memory.
int32_t hw_decoder_step(HwDecoder* decoder, const int64_t* token_ids, const HwRows* rows,
                        const HwPool* pool, const int64_t* logit_rows, int32_t num_logit_rows,
                        float* logits);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
