"""When an answer ends, and what is told of it; it knows one request at a time."""

from headwater.errors import HeadwaterError
from headwater.messages.requests import Generate
from headwater.messages.tokens import Finish, InputLogprobs, Opening, TokenOutput
from headwater.worker.scheduler.request import Request

__all__ = ["CONTEXT_LEN", "confirm_stop", "finish_reason", "make_output", "refuse"]

# Prompt ids that the detokenizer gets as left context of the answer.
CONTEXT_LEN = 64


def finish_reason(request: Request) -> Finish | None:
    """Why the answer ends after its last token, or None if it goes on.

    A stop token counts only where the sampler would have let it pass: after `min_new_tokens`.
    """
    num_output = request.num_output
    if num_output > request.params.min_new_tokens:
        last = request.token_ids[-1]
        if last in request.stop_ids:
            return Finish("stop", matched=last)
    if num_output >= request.max_new_tokens and request.next_input == request.prompt_len:
        return Finish("length", length=num_output)
    return None


def make_output(request: Request, finish: Finish | None) -> TokenOutput:
    """Everything that was not sent yet; it counts as sent from now on."""
    ids = request.token_ids[request.prompt_len + request.num_sent :]
    request.num_sent = request.num_output
    logprobs = request.output_logprobs
    if logprobs is not None:
        request.output_logprobs = []
    opening = inputs = None
    if not request.is_opened:
        request.is_opened = True
        opening = _opening(request.generate)
        # An answer that was aborted in its prefill has only some of them: better none.
        if request.input_logprobs is not None and request.next_input == request.prompt_len:
            inputs = InputLogprobs(request.input_logprobs)
    return TokenOutput(
        request.uid,
        ids,
        finish,
        request.cached_tokens or 0,
        request.num_retractions,
        opening,
        inputs,
        logprobs,
        0 if finish is None else _num_trimmed(request, finish),
    )


def confirm_stop(request: Request) -> TokenOutput:
    """The last output of an answer whose text ended earlier; it has no ids."""
    return TokenOutput(
        request.uid,
        [],
        Finish("stop"),
        request.cached_tokens or 0,
        request.num_retractions,
        opening=None if request.is_opened else _opening(request.generate),
    )


def refuse(generate: Generate, error: HeadwaterError) -> TokenOutput:
    """The only output of a request that is not accepted."""
    finish = Finish("error", message=error.message, code=error.code)
    return TokenOutput(generate.uid, [], finish, opening=_opening(generate))


def _num_trimmed(request: Request, finish: Finish) -> int:
    by_token = finish.type == "stop" and finish.matched is not None
    return int(by_token and not request.params.no_stop_trim)


def _opening(generate: Generate) -> Opening:
    params = generate.params
    logprobs = generate.logprobs
    return Opening(
        context_ids=generate.prompt_ids[-CONTEXT_LEN:],
        skip_special_tokens=params.skip_special_tokens,
        spaces_between_special_tokens=params.spaces_between_special_tokens,
        stop=params.stop,
        stop_regex=params.stop_regex,
        no_stop_trim=params.no_stop_trim,
        min_new_tokens=params.min_new_tokens,
        logprob_text=logprobs is not None and logprobs.with_text,
        stream=generate.stream,
        prompt_tokens=len(generate.prompt_ids),
    )
