"""The sampler on every implementation of its last step."""

from collections.abc import Callable, Sequence

import pytest
import torch

from headwater.kernels import Pick
from headwater.kernels.native import pick_tokens_natively
from headwater.worker.sampling.sampler import Sampler
from tests.kit.native import ISAS, native_library


@pytest.fixture(scope="session", params=["portable", *ISAS])
def make_sampler(request: pytest.FixtureRequest) -> Callable[[], Sampler]:
    """Makes samplers that use one implementation."""
    if request.param == "portable":
        return Sampler
    native_library(request.param)

    def pick(logits: torch.Tensor, picks: Sequence[Pick]) -> list[int | None]:
        library = native_library(request.param)
        return pick_tokens_natively(library, logits.contiguous().numpy(), picks, 2)

    return lambda: Sampler(pick)
