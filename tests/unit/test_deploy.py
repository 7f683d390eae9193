"""DEPLOY.md and the README's first lines against what the code does."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml
from huggingface_hub.cli import hf, upload
from huggingface_hub.utils._paths import filter_repo_objects

from spec_viz.ui.door import MOST_BYTES
from tests.space import builder

ROOT = Path(__file__).parents[2]
READ = re.compile(r"\bSPECVIZ_[A-Z_]*[A-Z]\b")
BLOCK = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What a command of the README writes or reads beside itself; capitals stand for any name.
WRITTEN = re.compile(r"--(?:out|csv|json|trace|questions) ([a-z][\w./]*)")
ROW = re.compile(r"^\| ((?:`[A-Z_]+`(?:, )?)+) \|", re.MULTILINE)


def requirements() -> dict[str, str]:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))


def front() -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load((ROOT / "README.md").read_text(encoding="utf-8").split("---\n")[1])
    return found


def test_every_setting_that_the_program_reads_stands_in_the_operators_table_and_no_other() -> None:
    read: set[str] = set()
    for path in [ROOT / "app.py", *(ROOT / "spec_viz").rglob("*.py")]:
        read |= set(READ.findall(path.read_text(encoding="utf-8")))
    rows = [
        name for names in ROW.findall((ROOT / "DEPLOY.md").read_text(encoding="utf-8")) for name in names.split(", ")
    ]
    told = [name.strip("`") for name in rows]
    assert len(told) == len(set(told)), "a setting stands there twice"
    assert {name for name in told if name.startswith("SPECVIZ_")} == read


def test_the_readme_names_no_setting_that_does_not_exist() -> None:
    table = set(READ.findall((ROOT / "DEPLOY.md").read_text(encoding="utf-8")))
    assert set(READ.findall((ROOT / "README.md").read_text(encoding="utf-8"))) <= table


def test_a_space_is_built_with_the_gradio_that_is_pinned_and_a_python_that_zerogpu_takes() -> None:
    said = front()
    assert said["sdk"] == "gradio"
    assert said["sdk_version"] == requirements()["gradio"]
    assert said["python_version"] == "3.12"
    assert (ROOT / str(said["app_file"])).is_file()
    assert len(str(said["short_description"])) <= 60
    assert "preload_from_hub" not in said


def uploads() -> list[str]:
    """The commands of DEPLOY.md that upload, each in one line."""
    blocks = BLOCK.findall((ROOT / "DEPLOY.md").read_text(encoding="utf-8"))
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if " upload " in line]


@pytest.mark.parametrize("command", uploads())
def test_the_client_takes_the_command_and_offers_what_is_to_be_uploaded_alone(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = MagicMock()
    monkeypatch.setattr(upload, "get_hf_api", lambda **_: hub)
    program, *words = shlex.split(command, comments=True)
    assert program == ".venv/bin/hf"
    hf.app(words, standalone_mode=False)
    asked: dict[str, Any] = hub.upload_folder.call_args.kwargs
    assert (asked["folder_path"], asked["path_in_repo"], asked["repo_type"]) == (".", ".", "space")
    wanted = sorted(path.as_posix() for path in builder.uploaded())
    beside = [
        *[".venv/bin/python", ".venv/lib/python3.12/site-packages/torch/version.py", ".env", ".env.local"],
        *[".mypy_cache/3.11/a.json", ".pytest_cache/v/b", ".hypothesis/c", "spec_viz/__pycache__/d.cpython-312.pyc"],
        *[".ci/run", "tests/conftest.py", "tests/unit/e.py"],
    ]
    assert sorted(filter_repo_objects([*wanted, *beside], ignore_patterns=asked["ignore_patterns"])) == wanted


def test_there_is_a_command_for_the_first_upload_and_one_that_deletes_what_is_gone() -> None:
    first, again = uploads()
    assert again == first.rstrip() + ' --delete "*"'


def test_what_a_command_of_the_readme_writes_here_is_not_uploaded() -> None:
    blocks = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    written = {name for block in blocks for name in WRITTEN.findall(block)}
    assert {"run.json", "questions.jsonl", "mine/bigram"} <= written
    names = sorted({*written, ".env", ".env.production", "result.csv", "run.ndjson", "specviz.log"})
    told = subprocess.run(
        ["git", "check-ignore", "--no-index", *names], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert told.stdout.split() == names


def test_the_proxy_of_the_recipe_takes_all_that_the_door_takes() -> None:
    text = (ROOT / "DEPLOY.md").read_text(encoding="utf-8")
    (megabytes,) = re.findall(r"client_max_body_size (\d+)m;", text)
    assert int(megabytes) << 20 >= MOST_BYTES


def test_the_readme_leads_there() -> None:
    assert "(DEPLOY.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
