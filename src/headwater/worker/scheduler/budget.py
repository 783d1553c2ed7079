"""How many tokens of a request a step computes, and the row that says so; it knows no cache."""

from headwater.worker.scheduler.plan import Row
from headwater.worker.scheduler.request import Request

__all__ = ["make_row", "prompt_budget"]


def prompt_budget(step_size: int, num_decodes: int) -> int:
    """Tokens of a step that prompts may use.

    Decodes always run, and prompts get the rest of the step; at least a quarter of it, so that
    many decodes cannot keep a prompt from being computed.
    """
    return max(step_size - num_decodes, step_size // 4, 1)


def make_row(request: Request, num_tokens: int) -> Row:
    """The next `num_tokens` uncomputed tokens of a request as a row."""
    start = request.num_computed
    end = start + num_tokens
    wants_input = request.next_input < request.prompt_len and request.next_input <= end
    return Row(
        request.uid,
        request.token_ids,
        start,
        end,
        request.pages,
        request.prompt_len,
        request.params,
        request.seed,
        end == len(request.token_ids) and request.max_new_tokens > 0,
        request.stop_ids,
        request.generate.logprobs,
        request.next_input if wants_input else None,
    )
