"""What may be sent to those of Gradio's addresses that are open, looked at before Gradio sees it.

Gradio answers what it does not expect with a failure of its own, says back all that was sent, or logs it. The page
makes four kinds of calls, of known shape, to functions and components that are there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from gradio.blocks import Blocks
from pydantic import BaseModel, ConfigDict, Field, ValidationError

GRADIO = "/gradio_api/"
# A page makes its session's name up, of a dozen letters; Gradio keeps what it is told.
_Name = Annotated[str, Field(min_length=1, max_length=64)]


class _Call(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class Joining(_Call):
    """A run joins the queue: what Gradio's own model of it takes, and nothing that it would refuse."""

    session_hash: _Name
    fn_index: int
    data: list[Any]
    event_data: Any = None
    trigger_id: int | None = None
    event_id: _Name | None = None
    oauth_token: str | None = None
    simple_format: bool = False
    batched: bool | None = False


class Asking(_Call):
    """A question beside the queue."""

    session_hash: _Name
    component_id: int
    fn_name: _Name
    data: Any


class Cancelling(_Call):
    """A run is not wanted any more."""

    session_hash: _Name
    fn_index: int
    event_id: _Name


class Resetting(_Call):
    """What Gradio's script sends beside it."""

    event_id: _Name


JOIN = f"{GRADIO}queue/join"
SHAPES: Mapping[str, type[_Call]] = {
    JOIN: Joining,
    f"{GRADIO}component_server": Asking,
    f"{GRADIO}cancel": Cancelling,
    f"{GRADIO}reset": Resetting,
}


def misfit(path: str, body: bytes, page: Blocks) -> tuple[int, str] | None:
    """Why what was sent to an address of `SHAPES` is none of the page's calls, as status and sentence; or None."""
    try:
        # The parser that Gradio uses: another one might read something else there.
        call = SHAPES[path].model_validate(json.loads(body))
    except ValidationError:
        return 422, "Unprocessable Content"
    except (ValueError, RecursionError):
        return 400, "Invalid JSON body."
    if isinstance(call, Asking) and call.component_id not in page.blocks:
        return 404, "Not Found"
    if isinstance(call, Joining):
        function = page.fns.get(call.fn_index)
        # One that only the browser runs has nothing to call here.
        if function is None or function.fn is None:
            return 404, "Not Found"
    return None
