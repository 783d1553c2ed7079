// The operations for: generic. Compiled with the flags that `hatch_build.py` gives this file.
#include "decoder.h"
#include "isa.h"
#include "sample.h"

extern const Isa isa_generic = {"generic",     attention_scratch, run_step,     run_product,
                             run_attention, rms_norm_row,      silu_mul_row, row_most,
                             weigh_row,     unpack_row};
