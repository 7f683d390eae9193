"""app.py under the real package `spaces`, without its GPU: run by the rehearsal, in the builder's environment.

The service that lends is the rehearsal's. In the forked process CUDA is not begun and no tensor is moved there; with
SPECVIZ_DEVICE=cpu the model computes on the processor. All else is the package's own: fork, queues, flags, errors.
"""

import runpy
from typing import Any

import torch

if torch.version.cuda is None:
    # A build without CUDA, which the package does not expect.
    torch.version.cuda = "13.0"

from spaces.zero import torch as lent


def _nothing(*_: Any, **__: Any) -> None:
    """In the place of what needs the GPU."""


lent.init = lent.move = _nothing
runpy.run_path("app.py", run_name="__main__")
