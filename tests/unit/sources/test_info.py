"""What a model's directory says beside its weights."""

import json
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import ModelLoadError
from headwater.sources.info import ModelInfo, read_model_info
from headwater.sources.resolve import ModelFiles

CONFIG = {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 64}


def read(folder: Path, **files: Any) -> ModelInfo:
    """Write `name=content` as name.json (a text as it is) and read the directory."""
    for name, content in {"config": CONFIG, "tokenizer": {}, **files}.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    return read_model_info(ModelFiles(folder, "hf", str(folder)))


def test_the_least_a_model_has(tmp_path: Path) -> None:
    """config.json and tokenizer.json are enough; everything else has a neutral default."""
    folder = tmp_path / "My-Model"
    folder.mkdir()
    info = read(folder)
    assert (info.name, info.architecture, info.context_length) == (
        "My-Model",
        "LlamaForCausalLM",
        64,
    )
    assert info.generation_defaults == {}
    assert info.eos_token_ids == []
    assert info.chat_templates == {}
    assert info.special_tokens == {}
    assert info.tokenizer_json == folder / "tokenizer.json"
    assert info.gguf_fields is None


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        ({"temperature": 0.6, "top_p": 0.9, "top_k": 20}, "as given"),
        ({"min_p": 0.1, "repetition_penalty": 1.1}, "as given"),
        ({"temperature": 0.6, "max_new_tokens": 9, "beams": 4}, {"temperature": 0.6}),
        ({"do_sample": True, "temperature": 1, "top_p": None}, {"temperature": 1}),
        ({"do_sample": False, "temperature": 0.6}, {"temperature": 0.0}),
        ({"top_k": 0}, {"top_k": -1}),
        ({}, {}),
    ],
)
def test_generation_defaults(
    generation: dict[str, Any], expected: dict[str, Any] | str, tmp_path: Path
) -> None:
    """Only sampling parameters count, in our spelling; do_sample false is greedy."""
    info = read(tmp_path, generation_config=generation)
    assert info.generation_defaults == (generation if expected == "as given" else expected)


def test_a_default_that_is_no_number_is_named(tmp_path: Path) -> None:
    """A broken file is the server's problem at its start, not that of each request."""
    with pytest.raises(ModelLoadError, match=r"generation_config\.json: top_p is '0\.9'"):
        read(tmp_path, generation_config={"top_p": "0.9"})


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        ({"eos_token_id": [2, 7]}, {"eos_token_id": 1}, [2, 7]),
        ({"eos_token_id": 2}, {"eos_token_id": 1}, [2]),
        ({}, {"eos_token_id": 1}, [1]),
        ({"eos_token_id": None}, {"eos_token_id": [1, 3]}, [1, 3]),
        ({}, {"text_config": {"eos_token_id": 5}}, [5]),
        ({}, {"eos_token_id": None}, []),
        ({"eos_token_id": 0}, {"eos_token_id": 1}, [0]),
    ],
)
def test_end_tokens(
    generation: dict[str, Any], config: dict[str, Any], expected: list[int], tmp_path: Path
) -> None:
    """The generation config comes before the config, which comes before its text part."""
    info = read(tmp_path, generation_config=generation, config=CONFIG | config)
    assert info.eos_token_ids == expected


def test_chat_templates(tmp_path: Path) -> None:
    """A jinja file comes before the tokenizer's settings, and those before chat_template.json."""
    own = {"chat_template": "own file"}
    assert read(tmp_path, chat_template=own).chat_templates == {"default": "own file"}
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    settings: dict[str, Any] = {"chat_template": named}
    both = {"tool_use": "tools", "default": "plain"}
    assert read(tmp_path, tokenizer_config=settings).chat_templates == both
    settings = {"chat_template": [{"name": 1}, 2, {"name": "x"}]}
    assert read(tmp_path, tokenizer_config=settings).chat_templates == {}
    settings = {"chat_template": "text"}
    assert read(tmp_path, tokenizer_config=settings).chat_templates == {"default": "text"}
    (tmp_path / "chat_template.jinja").write_text("jinja ä", encoding="utf-8")
    assert read(tmp_path).chat_templates == {"default": "jinja ä"}
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("texts")
    assert read(tmp_path).chat_templates == {"default": "jinja ä", "rag": "texts"}
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelLoadError, match=r"chat_template\.jinja"):
        read(tmp_path)


def test_special_tokens(tmp_path: Path) -> None:
    """As text or as an object with a content; null is none."""
    settings = {
        "bos_token": "<s>",
        "eos_token": {"content": "</s>", "lstrip": False},
        "unk_token": None,
        "pad_token": {"lstrip": True},
        "model_max_length": 3,
    }
    info = read(tmp_path, tokenizer_config=settings)
    assert info.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.mark.parametrize(
    "name", ["config", "generation_config", "tokenizer_config", "chat_template"]
)
@pytest.mark.parametrize("text", ['{"a": 1', "[]", "null", "", "NaN", "\x00"])
def test_broken_json_names_the_file(name: str, text: str, tmp_path: Path) -> None:
    """Cut off, of another type, or not JSON at all."""
    with pytest.raises(ModelLoadError, match=rf"/{name}\.json"):
        read(tmp_path, **{name: text})


def test_json_that_is_not_utf8_names_the_file(tmp_path: Path) -> None:
    """Bytes of another encoding are an error of that file."""
    read(tmp_path)
    (tmp_path / "config.json").write_bytes(b'{"a": "\xe4"}')
    with pytest.raises(ModelLoadError, match=r"config\.json is not valid JSON"):
        read_model_info(ModelFiles(tmp_path, "hf", ""))


def test_missing_files_are_named(tmp_path: Path) -> None:
    """No config, no tokenizer, or only one that must be converted first."""
    files = ModelFiles(tmp_path, "hf", "")
    with pytest.raises(ModelLoadError, match=r"cannot read .*config\.json"):
        read_model_info(files)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelLoadError, match=r"no tokenizer\.json"):
        read_model_info(files)
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(ModelLoadError, match=r"tokenizer\.model; make a tokenizer\.json"):
        read_model_info(files)


@pytest.mark.parametrize("config", [{}, {"architectures": []}, {"architectures": "Llama"}])
def test_a_config_without_architecture_or_context(config: dict[str, Any], tmp_path: Path) -> None:
    """They are `unknown` and None; who needs them says so."""
    info = read(tmp_path, config=config)
    assert (info.architecture, info.context_length) == ("unknown", None)
