"""What a Space's builder makes: a Python with our requirements and its own beside them, and a copy of what is uploaded.

A venv takes minutes and gigabytes, so it is kept in the cache folder until something that it was made from changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

ROOT = Path(__file__).parents[2]
FRONT = re.compile(r"^(\w+): *\"?(.*?)\"?$", re.MULTILINE)
# Raised whenever the environment is made in another way.
RECIPE = 1
# The builder installs these beside our requirements, in one command (read in its build logs); the bound on torch only
# where a Space has ZeroGPU.
SPACES = "spaces==0.51.3"
TORCH = "torch<=2.13.0"
# As the command in DEPLOY.md says.
LEFT_OUT = ("tests", ".ci")
# The hub wants larger files elsewhere.
MOST_BYTES = 10_000_000


def front() -> dict[str, str]:
    """What the README tells the builder, one flat key a line."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("---\n")[1]
    return dict(FRONT.findall(text))


def beside() -> list[str]:
    """What the builder adds to our requirements."""
    sdk = front()["sdk_version"]
    return [f"gradio[oauth,mcp]=={sdk}", "uvicorn>=0.14.0", "websockets>=10.4", SPACES, TORCH]


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter: where it is and which it is, as (3, 12, 1)."""

    path: Path
    version: tuple[int, ...]

    @property
    def name(self) -> str:
        """Its version as people write it."""
        return ".".join(map(str, self.version))

    def is_wanted(self) -> bool:
        """Whether it is the Python that the README asks for."""
        return self.name.startswith(front()["python_version"] + ".")


def look(path: Path) -> Python | None:
    """The interpreter at this path, None where none answers."""
    code = "import sys; print(*sys.version_info[:3])"
    try:
        told = subprocess.run([path, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return Python(path, tuple(map(int, told.split())))


def find_python(given: Path | None) -> Python:
    """The one that was given; else one of the version that the README asks for; else this very one."""
    if given is not None:
        if (found := look(given)) is None:
            raise SystemExit(f"{given} is no Python.")
        return found
    wanted = front()["python_version"]
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{wanted}.*/bin/python"), reverse=True)
    named = shutil.which(f"python{wanted}")
    for path in (*([Path(named)] if named else []), *pyenv):
        if (found := look(path)) and found.is_wanted():
            return found
    return Python(Path(sys.executable), sys.version_info[:3])


def build(python: Python) -> tuple[Path, bool]:
    """The interpreter of an environment as the builder makes it, and whether it had to be made."""
    recipe = json.dumps(
        [RECIPE, python.name, beside(), (ROOT / "requirements.txt").read_text(encoding="utf-8")], sort_keys=True
    )
    shelf = user_cache_path("specviz-rehearsal", appauthor=False)
    place = shelf / hashlib.sha256(recipe.encode()).hexdigest()[:16]
    mark, inside = place / "whole", place / "bin" / "python"
    if mark.is_file():
        return inside, False
    # Of another recipe, or left half-made.
    shutil.rmtree(shelf, ignore_errors=True)
    subprocess.run([python.path, "-m", "venv", place], check=True)
    pip(inside, "install", "--quiet", "--upgrade", "pip")
    pip(inside, "install", "--quiet", "-r", str(ROOT / "requirements.txt"), *beside())
    mark.touch()
    return inside, True


def pip(python: Path, *words: str) -> str:
    """What pip says; CalledProcessError, with its last words, where it fails."""
    done = subprocess.run([python, "-m", "pip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()][-6:]
        raise subprocess.CalledProcessError(done.returncode, ["pip", *words[:1]], stderr="\n".join(said))
    return done.stdout


def plan(python: Path) -> dict[str, str]:
    """What would be installed on the Python that the README asks for, by name; nothing is installed."""
    with tempfile.TemporaryDirectory() as nowhere:
        report = Path(nowhere) / "report.json"
        more = ["--python-version", front()["python_version"], "--only-binary", ":all:", "--target", nowhere]
        pip(
            python,
            *["install", "--dry-run", "--quiet", "--ignore-installed", "--report", str(report), *more],
            *["-r", str(ROOT / "requirements.txt"), *beside()],
        )
        told = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {each["metadata"]["name"].lower(): each["metadata"]["version"] for each in told}


def uploaded() -> Sequence[Path]:
    """The files that an upload takes, from the root: all but the tests and what git ignores."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    files = (Path(name) for name in told.decode().split("\0") if name)
    return [path for path in files if path.parts[0] not in LEFT_OUT and (ROOT / path).is_file()]


def upload(to: Path) -> tuple[int, int]:
    """Copy them; how many files and bytes."""
    size = 0
    files = uploaded()
    for path in files:
        target = to / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target)
        size += target.stat().st_size
    return len(files), size


def variables(home: Path, scratch: Path, port: int) -> dict[str, str]:
    """The environment of a Space's process. Only loopback is listened at, where a Space listens everywhere.

    Of this machine's own nothing is kept but how pip reaches an index.
    """
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or "CERT" in name}
    return kept | {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": str(home),
        "TMPDIR": str(scratch),
        "PYTHONUNBUFFERED": "1",
        "SYSTEM": "spaces",
        "SPACE_ID": "somebody/specviz",
        "SPACE_HOST": "somebody-specviz.hf.space",
        "SPACE_AUTHOR_NAME": "somebody",
        "SPACE_REPO_NAME": "specviz",
        "SPACE_TITLE": front()["title"],
        "ACCELERATOR": "none",
        "CPU_CORES": "2",
        "MEMORY": "16Gi",
        "GRADIO_SERVER_NAME": "127.0.0.1",
        "GRADIO_SERVER_PORT": str(port),
        "GRADIO_NUM_PORTS": "1",
        "GRADIO_SSR_MODE": "True",
        "GRADIO_ALLOW_FLAGGING": "never",
        "GRADIO_THEME": "huggingface",
        "TQDM_POSITION": "-1",
        "TQDM_MININTERVAL": "1",
    }
