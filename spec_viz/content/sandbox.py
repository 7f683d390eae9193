"""Where expressions of lessons and presets are computed: Jinja that can count and compare, and cannot do harm.

Jinja's own sandbox keeps an expression from attributes that begin with an underscore and from changing what it sees.
It lets a short one ask for any amount of memory or time, so here values cannot be multiplied, loops do not nest, and
whatever goes through items spends a budget.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from types import FunctionType, SimpleNamespace
from typing import Any, cast

from jinja2 import StrictUndefined, TemplateError, Undefined, nodes
from jinja2.exceptions import TemplateAssertionError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from spec_viz.lab import theory

# Letters of a template, items that one of them may go through, what a name may be given, and γ in a formula.
MOST_LETTERS, MOST_ITEMS, MOST_KEPT, MOST_GAMMA = 100_000, 200_000, 1_000, 10_000
# Nobody reads a power with more bits, or more digits behind a comma.
_MOST_BITS, _MOST_DIGITS = 1024, 20

_KNOWN = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.For, nodes.If, nodes.Assign, nodes.Name, nodes.Const,
    nodes.Tuple, nodes.List, nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Call, nodes.Keyword, nodes.Filter,
    nodes.Test, nodes.Compare, nodes.Operand, nodes.CondExpr, nodes.BinExpr, nodes.UnaryExpr, nodes.Concat,
)  # fmt: skip
# The second kind goes through its items.
_FILTERS = ("length", "trim", "abs", "int", "float", "lower", "upper")
_OVER_ITEMS = (
    "map", "select", "selectattr", "reject", "rejectattr", "list", "sum", "join", "max", "min", "first", "last",
    "sort", "unique", "reverse",
)  # fmt: skip
# What a template or its compiler may raise: a number like 1e999 ends in NameError, deep brackets in the last three.
_FAULTS = (
    TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError, NameError,
    RecursionError, MemoryError, SyntaxError,
)  # fmt: skip


class ClaimError(ValueError):
    """An expression that cannot be evaluated."""


class _Budget(threading.local):
    left = 0

    def spend(self, items: int) -> None:
        self.left -= items
        if self.left < 0:
            raise ValueError(f"goes through more than {MOST_ITEMS} items")


_budget = _Budget()


@contextmanager
def _budgeted() -> Iterator[None]:
    # A trace that an expression speaks of may be summarised inside it, but no expression is inside another.
    _budget.left = MOST_ITEMS
    yield


def counted(items: Iterable[Any], weight: int = 1) -> Iterator[Any]:
    """The items, each at its price."""
    for item in items:
        _budget.spend(weight)
        yield item


def _counting(do: Callable[..., Any], place: int) -> Callable[..., Any]:
    """A function that pays for the items of its argument at `place`; a filter may have its context before that."""

    @wraps(do)
    def paid(*args: Any, **named: Any) -> Any:
        given = list(args)
        if len(given) > place and isinstance(given[place], Iterable) and not isinstance(given[place], Undefined):
            given[place] = list(counted(given[place]))
        return do(*given, **named)

    return paid


def _bounded(formula: Callable[..., Any]) -> Callable[..., Any]:
    """A formula of `theory`, some of which count up to their γ."""
    shape = signature(formula)
    whole = {name for name, each in shape.parameters.items() if each.annotation in (int, "int")}

    @wraps(formula)
    def bounded(*args: Any, **named: Any) -> Any:
        for name, value in shape.bind(*args, **named).arguments.items():
            if name in whole and not 0 <= value <= MOST_GAMMA:
                raise ValueError(f"{formula.__name__} takes {name} from 0 to {MOST_GAMMA}")
        return formula(*args, **named)

    return bounded


def rounded(value: Any, digits: int | None = None) -> Any:
    """The number with so many digits behind the comma."""
    return round(value) if digits is None else round(value, few(digits))


def few(digits: int) -> int:
    """A number of digits that somebody may read; ValueError for others."""
    if not 0 <= digits <= _MOST_DIGITS:
        raise ValueError(f"digits are 0 to {_MOST_DIGITS}")
    return digits


def _kept(value: Any) -> Any:
    """What a name is given: were it long, names of names would double it again and again."""
    if _weight(value) > MOST_KEPT:
        raise ValueError(f"a name is given more than {MOST_KEPT} letters or items")
    return value


def _weight(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if not isinstance(value, list | tuple | dict):
        return 1
    total = 1
    for item in value.values() if isinstance(value, dict) else value:
        total += _weight(item)
        if total > MOST_KEPT:
            break
    return total


class Sandbox(ImmutableSandboxedEnvironment):
    """Expressions over what a scope holds, the formulas of `theory`, and a few functions and filters."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self, finalize: Callable[[Any], Any] | None = None) -> None:
        super().__init__(undefined=StrictUndefined, autoescape=False, finalize=finalize, keep_trailing_newline=True)
        known = self.filters
        self.filters = {name: known[name] for name in _FILTERS} | {
            # `map` and its like are handed the context first.
            name: _counting(known[name], 1 if hasattr(known[name], "jinja_pass_arg") else 0)
            for name in _OVER_ITEMS
        }
        self.filters |= {"counted": counted, "kept": _kept}
        formulas = {
            name: _bounded(value)
            for name, value in vars(theory).items()
            if isinstance(value, FunctionType) and value.__module__ == theory.__name__
        }
        self.globals = {
            "theory": SimpleNamespace(**formulas), "abs": abs, "len": len, "round": rounded,
            **{do.__name__: _counting(do, 0) for do in (max, min, sum)},
            "zip": lambda *many: zip(*map(counted, many), strict=False),
        }  # fmt: skip

    def evaluate(self, expression: str, scope: Mapping[str, Any]) -> Any:
        """The value of an expression; ClaimError when it cannot be computed."""
        try:
            _short(expression)
            with _budgeted():
                value = self.compile_expression(expression, undefined_to_none=False)(**scope)
                if isinstance(value, Undefined):
                    str(value)  # raises, and names what is missing or forbidden
        except _FAULTS as error:
            raise ClaimError(f"cannot evaluate {_shortly(expression)!r}: {_said(error)}") from None
        return value

    def fill_in(self, source: str, scope: Mapping[str, Any]) -> str:
        """The source with the values of its expressions; ClaimError when one cannot be computed."""
        try:
            _short(source)
            with _budgeted():
                return self.from_string(source).render(**scope)
        except _FAULTS as error:
            raise ClaimError(f"cannot evaluate the words {_shortly(source)!r}…: {_said(error)}") from None

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Not the methods of texts and numbers either: `ljust` and `to_bytes` make as much as one likes."""
        return not isinstance(obj, str | bytes | int | float | complex) and super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """No `format` either: Jinja would hand out a safe one before it asks whether the attribute is."""

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Of numbers only; of texts and lists these would make any number of copies."""
        if not all(isinstance(value, int | float) for value in (left, right)):
            raise TypeError(f"{operator} is for numbers")
        whole = isinstance(left, int) and isinstance(right, int)
        if operator == "**" and whole and left.bit_length() * abs(right) > _MOST_BITS:
            raise ValueError("so great a power")
        return super().call_binop(context, operator, left, right)

    def _generate(self, source: nodes.Template, *args: Any, **named: Any) -> str:
        for node in source.find_all(nodes.Node):
            if not isinstance(node, _KNOWN):
                raise TemplateAssertionError(f"there is no {type(node).__name__.lower()} in an expression", node.lineno)
        for loop in source.find_all(nodes.For):
            if loop.recursive or any(True for _ in nodes.Template([*loop.body, *loop.else_]).find_all(nodes.For)):
                raise TemplateAssertionError("a loop stands in no other loop", loop.lineno)
            price = nodes.Const(1 + sum(len(words.data) for words in loop.find_all(nodes.TemplateData)))
            loop.iter = self._through(loop.iter, "counted", price)
        for given in source.find_all(nodes.Assign):
            given.node = self._through(given.node, "kept")
        return super()._generate(source, *args, **named)

    def _through(self, node: nodes.Node, name: str, *args: nodes.Expr) -> nodes.Node:
        return nodes.Filter(
            cast("nodes.Expr", node), name, list(args), [], None, None, lineno=node.lineno
        ).set_environment(self)


def spend(items: int) -> None:
    """Pay for so many letters or items; ValueError where the budget of the evaluation is used up."""
    _budget.spend(items)


def _short(source: str) -> None:
    if len(source) > MOST_LETTERS:
        raise ValueError(f"longer than {MOST_LETTERS} letters")


def _shortly(text: str) -> str:
    return " ".join(text.split())[:60]


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__
