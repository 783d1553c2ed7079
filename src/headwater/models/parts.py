"""The weights of a pre-norm decoder, whatever form its matrices have."""

from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

__all__ = ["Layer", "MatrixT", "Parts"]

MatrixT = TypeVar("MatrixT")


@dataclass(slots=True)
class Layer(Generic[MatrixT]):
    """Weights of one layer; matrices are [out, in].

    Attributes:
        input_norm: [hidden].
        qkv: [(num_heads + 2 * num_kv_heads) * head_dim, hidden]: queries, keys, values.
        qkv_bias: Or None.
        q_norm: [head_dim], or None.
        k_norm: [head_dim], or None.
        output: [hidden, num_heads * head_dim].
        output_bias: Or None.
        post_norm: [hidden].
        gate_up: [2 * intermediate, hidden]: gate, then up.
        gate_up_bias: Or None.
        down: [hidden, intermediate].
        down_bias: Or None.
    """

    input_norm: torch.Tensor
    qkv: MatrixT
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    output: MatrixT
    output_bias: torch.Tensor | None
    post_norm: torch.Tensor
    gate_up: MatrixT
    gate_up_bias: torch.Tensor | None
    down: MatrixT
    down_bias: torch.Tensor | None


@dataclass(slots=True)
class Parts(Generic[MatrixT]):
    """All of them.

    Attributes:
        embedding: [vocab, hidden].
        layers: One after the other.
        norm: [hidden], before the output layer.
        lm_head: [vocab, hidden]; the embedding itself when they are tied.
    """

    embedding: MatrixT
    layers: list[Layer[MatrixT]]
    norm: torch.Tensor
    lm_head: MatrixT
