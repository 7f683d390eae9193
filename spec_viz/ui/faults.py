"""Where something failed, for the log, without the words of the failure: they may quote what a visitor sent."""

from __future__ import annotations

from traceback import walk_tb

# Of errors behind errors.
_MOST = 5


def where(problem: BaseException) -> str:
    """The kinds of an error and of those behind it, each with the places it came through, the last one last."""
    told: list[str] = []
    each: BaseException | None = problem
    while each is not None and len(told) < _MOST:
        places = [f"{frame.f_code.co_filename}:{line}" for frame, line in walk_tb(each.__traceback__)]
        told.append("\n  ".join([type(each).__name__, *places]))
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return "\nafter ".join(told)
