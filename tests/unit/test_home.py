"""A home that cannot be written: every cache goes to one temporary folder, and nobody else's folder is trusted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spec_viz.models import weights
from spec_viz.models.home import settle

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="caches follow XDG_CACHE_HOME on Linux")


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home that is a file, which nobody can write into, root neither; and a folder for temporary things."""
    home = tmp_path / "home"
    home.touch()
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    for name in ("XDG_CACHE_HOME", "SPECVIZ_CACHE"):
        # Set first, so that what `settle` sets is taken back as well.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return temporary / f"specviz-{os.getuid()}"


def test_a_home_that_can_be_written_or_made_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for home in (tmp_path, tmp_path / "not" / "yet"):
        monkeypatch.setenv("HOME", str(home))
        assert settle() is None
    assert "XDG_CACHE_HOME" not in os.environ
    assert not (tmp_path / "not").exists()


def test_without_a_home_weights_and_the_hub_s_files_lie_in_one_folder_that_only_we_can_read(place: Path) -> None:
    assert settle() == place
    assert weights.cache_folder() == place / "specviz"
    assert place.stat().st_mode & 0o777 == 0o700
    code = "from huggingface_hub import constants; print(constants.HF_HUB_CACHE)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert Path(told.strip()).is_relative_to(place)


def test_a_home_that_only_seems_writable_is_none(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may write everywhere, it says, but here nobody can.
    monkeypatch.setenv("HOME", "/proc/nohome")
    assert settle() == place


def test_a_folder_that_somebody_else_made_is_not_used(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    place.rename(place.with_name("specviz-4000000000"))
    with pytest.raises(PermissionError):
        settle()
    assert "XDG_CACHE_HOME" not in os.environ


def test_a_link_in_its_place_is_not_followed(place: Path, tmp_path: Path) -> None:
    place.symlink_to(tmp_path)
    with pytest.raises(PermissionError):
        settle()


def test_the_command_line_settles_too(place: Path) -> None:
    command = [sys.executable, "-m", "spec_viz", "models", "path"]
    told = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "500"})
    assert (told.returncode, told.stdout) == (2, ""), told.stderr
    assert told.stderr.count(str(place)) >= 2, told.stderr
