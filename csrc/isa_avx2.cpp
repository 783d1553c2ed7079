// The operations for: avx2. Compiled with the flags that `hatch_build.py` gives this file.
#if defined(__x86_64__)
#define HW_AVX2
#include "decoder.h"
#include "isa.h"
#include "sample.h"

extern const Isa isa_avx2 = {"avx2",     attention_scratch, run_step,     run_product,
                             run_attention, rms_norm_row,      silu_mul_row, row_most,
                             weigh_row,     unpack_row};
#endif
