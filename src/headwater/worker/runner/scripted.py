"""A runner whose answers are written in the prompt, for tests and benchmarks; no torch.

The ids between the last `script_start_id` of the prompt and the next `script_end_id` (or the
prompt's end) are emitted one a step, then the end token for ever. A prompt without a start id is
answered by its own ids, over and over. Log-probabilities are made up but obey their rules.
"""

import itertools
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.errors import ModelLoadError
from headwater.messages.requests import LogprobSpec
from headwater.messages.tokens import PositionLogprobs
from headwater.worker.scheduler.plan import Row, RowResult, StepPlan, StepResult

__all__ = ["Script", "ScriptedRunner"]

CRASH_EXIT_CODE = 3


@dataclass(frozen=True, slots=True)
class Script:
    """What a scripted model's config.json says beside the usual.

    Attributes:
        vocab_size: Token ids lie in [0, vocab_size).
        eos_id: Emitted after the script.
        start_id: Begins the script in a prompt.
        end_id: Ends it.
        fault_id: In a script: this row fails at that step.
        crash_id: In a script: the process ends at that step.
        step_delay_s: Seconds that a step takes at least.
    """

    vocab_size: int
    eos_id: int
    start_id: int
    end_id: int
    fault_id: int | None = None
    crash_id: int | None = None
    step_delay_s: float = 0.0

    @staticmethod
    def from_config(config: Mapping[str, Any]) -> "Script":
        """Read the fields.

        Raises:
            ModelLoadError: A field is missing.
        """
        try:
            return Script(
                vocab_size=config["vocab_size"],
                eos_id=config["eos_token_id"],
                start_id=config["script_start_id"],
                end_id=config["script_end_id"],
                fault_id=config.get("fault_id"),
                crash_id=config.get("crash_id"),
                step_delay_s=config.get("step_delay_s", 0.0),
            )
        except KeyError as err:
            raise ModelLoadError(f"a scripted model's config.json needs {err}") from None


class ScriptedRunner:
    """Runs step plans without a model.

    Args:
        script: The model's config.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._lines: dict[int, tuple[Sequence[int], bool]] = {}

    def run(self, plan: StepPlan) -> StepResult:
        """The next scripted id of every row that samples."""
        if self._script.step_delay_s:
            time.sleep(self._script.step_delay_s)
        return StepResult([self._row(row) for row in plan.rows])

    def forget(self, uids: Sequence[int]) -> None:
        """These requests have ended."""
        for uid in uids:
            self._lines.pop(uid, None)

    def _row(self, row: Row) -> RowResult:
        inputs = None
        if row.input_from is not None and row.logprobs is not None:
            stop = min(row.end + 1, row.prompt_len)
            positions = range(row.input_from, stop)
            inputs = [self._position(row.token_ids[p], row.logprobs) for p in positions]
        if not row.samples:
            return RowResult(None, input_logprobs=inputs)
        token_id = self._emit(row)
        if token_id == self._script.fault_id:
            return RowResult(None, input_logprobs=inputs, error="the script says: fault")
        if token_id == self._script.crash_id:
            os._exit(CRASH_EXIT_CODE)
        position = None if row.logprobs is None else self._position(token_id, row.logprobs)
        return RowResult(token_id, logprobs=position, input_logprobs=inputs)

    def _emit(self, row: Row) -> int:
        line, is_echo = self._line(row)
        index = len(row.token_ids) - row.prompt_len
        if is_echo:
            token_id = line[index % len(line)]
        else:
            token_id = line[index] if index < len(line) else self._script.eos_id
        if index < row.params.min_new_tokens and token_id in row.eos_ids:
            # As if it were masked: the lowest id that is not, the pick of equal logits.
            return next(i for i in itertools.count() if i not in row.eos_ids)
        return token_id

    def _line(self, row: Row) -> tuple[Sequence[int], bool]:
        """The ids to emit, and whether they are the prompt itself; found once for a request."""
        if row.uid not in self._lines:
            prompt = list(row.token_ids[: row.prompt_len])
            line, is_echo = prompt, True
            if self._script.start_id in prompt:
                begin = len(prompt) - prompt[::-1].index(self._script.start_id)
                rest = prompt[begin:]
                end = rest.index(self._script.end_id) if self._script.end_id in rest else None
                line, is_echo = rest[:end], False
            self._lines[row.uid] = (line, is_echo)
        return self._lines[row.uid]

    def _position(self, token_id: int, spec: LogprobSpec) -> PositionLogprobs:
        # Token t at rank 0 has logprob -(t % 7) / 64, the ids after it follow in order: exact in
        # binary, different for different tokens, and best first.
        def logprob(rank: int) -> float:
            return -((token_id % 7) + rank) / 64.0

        size = self._script.vocab_size
        top = [(logprob(k), (token_id + k) % size) for k in range(min(spec.top_num, size))]
        picked = [(logprob((i - token_id) % size), i) for i in spec.token_ids]
        return PositionLogprobs((logprob(0), token_id), top or None, picked or None)
