"""What every test runs under: no telemetry, no hub, one Hypothesis profile, and markers that skip with a reason."""

from __future__ import annotations

import os
import shutil

# Set before anything imports Gradio or the hub client, which read them at import.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["GRADIO_ANALYTICS_CACHE_FREQUENCY"] = "1000000000"
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
from hypothesis import settings

# Time limits per example would measure the machine, and a failure must come back on the next run.
settings.register_profile("specviz", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("specviz")

REDIS, NGINX = shutil.which("redis-server"), shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu") and not _cuda():
            item.add_marker(pytest.mark.skip(reason="no CUDA device on this machine"))
        if item.get_closest_marker("browser") and CHROMIUM is None:
            item.add_marker(pytest.mark.skip(reason="no Chromium on this machine: apt-get install chromium"))
        if item.get_closest_marker("redis") and REDIS is None:
            item.add_marker(pytest.mark.skip(reason="no Redis on this machine: apt-get install redis-server"))
        if item.get_closest_marker("nginx") and NGINX is None:
            item.add_marker(pytest.mark.skip(reason="no nginx on this machine: apt-get install nginx-light"))


@pytest.fixture(scope="session")
def nginx() -> str:
    """Path of the system's nginx."""
    assert NGINX is not None
    return NGINX


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the system's Chromium, for Playwright's `executable_path`."""
    assert CHROMIUM is not None
    return CHROMIUM


def _cuda() -> bool:
    # Imported only when a GPU test was collected: torch costs seconds.
    import torch

    return torch.cuda.is_available()
