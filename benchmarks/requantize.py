"""Another storage format of a GGUF model, to compare the speed of formats.

    python -m benchmarks.requantize --to Q8_0 model-Q8_0.gguf

Weights go from what the file has through float32 to the new format, so a model that is quantized
already does not gain by more bits: the copies are for measuring, not for use. Embedding and output
stay as they are, and so does everything that is not quantized.
"""

import argparse
from pathlib import Path

import gguf
import numpy as np

from headwater.config import default_cache_dir
from headwater.sources.pypi import DEFAULT_MODEL
from headwater.sources.resolve import resolve_model

FILE_TYPES = {
    "Q4_0": gguf.LlamaFileType.MOSTLY_Q4_0,
    "Q4_1": gguf.LlamaFileType.MOSTLY_Q4_1,
    "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
}
UNQUANTIZED = ("F32", "F16", "BF16")
KEPT = ("token_embd.weight", "output.weight")


def copy_metadata(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, to: str) -> None:
    """All keys, with the new file type."""
    for field in reader.fields.values():
        is_array = field.types[0] == gguf.GGUFValueType.ARRAY
        if field.name.startswith("GGUF.") or field.name == gguf.Keys.General.ARCHITECTURE:
            continue  # the writer makes them
        value = field.contents()
        if field.name == gguf.Keys.General.FILE_TYPE:
            value = int(FILE_TYPES[to])
        element = field.types[-1] if is_array else None
        writer.add_key_value(field.name, value, field.types[0], element)


def convert(tensor: gguf.ReaderTensor, to: gguf.GGMLQuantizationType) -> np.ndarray:
    """The tensor's bytes in the new format."""
    weights = gguf.dequantize(tensor.data, tensor.tensor_type)
    quantized: np.ndarray = gguf.quantize(weights, to)
    return quantized


def requantize(source: Path, target: Path, to: str) -> int:
    """Write the copy; return how many tensors have changed."""
    reader = gguf.GGUFReader(source)
    architecture = reader.fields[gguf.Keys.General.ARCHITECTURE].contents()
    writer = gguf.GGUFWriter(target, architecture)
    writer.data_alignment = reader.alignment
    copy_metadata(reader, writer, to)
    new_type, num_changed = gguf.GGMLQuantizationType[to], 0
    for tensor in reader.tensors:
        data, its_type = tensor.data, tensor.tensor_type
        if its_type.name not in (*UNQUANTIZED, to) and tensor.name not in KEPT:
            data, its_type, num_changed = convert(tensor, new_type), new_type, num_changed + 1
        writer.add_tensor(tensor.name, data, raw_dtype=its_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return num_changed


def main() -> None:
    """Convert one file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--to", choices=FILE_TYPES, required=True)
    parser.add_argument("--model", default=DEFAULT_MODEL, help="a .gguf file or pypi:...")
    args = parser.parse_args()
    source = resolve_model(args.model, Path(default_cache_dir())).path
    if args.output.exists():
        parser.error(f"{args.output} exists")
    num_changed = requantize(source, args.output, args.to)
    size = args.output.stat().st_size / 1e6
    print(f"{args.output}: {size:.1f} MB, {num_changed} tensors are now {args.to}")


if __name__ == "__main__":
    main()
