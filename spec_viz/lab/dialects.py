"""One run in the field's other words: what each project would print under its own name (algorithms §11.2).

"The acceptance rate" has half a dozen meanings. Left out are those that no decoded run holds, because they are measured
on a given text instead (speculators' EAL, DeepSpec's training rates, EAGLE's n-α).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from spec_viz.engine.trace import Trace
from spec_viz.lab.metrics import Position, Summary, summarise

Unit = Literal["", "%"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """A number under the name its source gives it; `position` is set where there is one for every depth.

    `bonus` says whether the target's own token of each round is counted in. A count has no denominator.
    """

    key: str
    source: str
    name: str
    numerator: float
    denominator: float | None
    bonus: bool
    position: int | None = None
    unit: Unit = ""

    @property
    def value(self) -> float | None:
        """The number as its source prints it; None where nothing was counted below the line."""
        if self.denominator is None:
            return self.numerator
        if not self.denominator:
            return None
        return self.numerator / self.denominator * (100 if self.unit == "%" else 1)

    @property
    def definition(self) -> str:
        """The key of the sentence that defines it."""
        return f"dialect.{self.key}"


# Numerator and denominator, from the summary.
Fraction = Callable[[Summary], tuple[float, float | None]]


def _accepted_by_drafted(s: Summary) -> tuple[float, float | None]:
    return s.accepted, s.drafted


def _length_of_drafting(s: Summary) -> tuple[float, float | None]:
    return s.drafting_rounds + s.accepted, s.drafting_rounds


def _emitted_by_rounds(s: Summary) -> tuple[float, float | None]:
    return s.emitted, s.rounds


# key, source, name, bonus, whether it is defined for chains alone, unit, fraction
_RATES: tuple[tuple[str, str, str, bool, bool, Unit, Fraction], ...] = (
    ("vllm_rate", "vLLM", "draft acceptance rate", False, False, "", _accepted_by_drafted),
    ("vllm_length", "vLLM", "mean acceptance length", True, False, "", _length_of_drafting),
    ("llama_drafted", "llama.cpp", "n_drafted", False, False, "", lambda s: (s.drafted, None)),
    ("llama_accepted", "llama.cpp", "n_accept", False, False, "", lambda s: (s.accepted, None)),
    ("llama_accept", "llama.cpp", "accept", False, False, "%", _accepted_by_drafted),
    ("llama_length", "llama.cpp", "mean acceptance length", True, False, "", _length_of_drafting),
    ("eagle_tau", "EAGLE", "τ", True, False, "", _emitted_by_rounds),
    ("specbench_tokens", "Spec-Bench", "#Mean accepted tokens", True, False, "", _emitted_by_rounds),
    ("pard_acc", "PARD", "acc", False, True, "", lambda s: (s.accepted, s.judged)),
    ("pard_length", "PARD", "accept_length", True, False, "", _emitted_by_rounds),
    ("layerskip_rate", "LayerSkip", "acceptance rate", False, True, "", _accepted_by_drafted),
    ("dflash_length", "DFlash", "acceptance_length + 1", True, False, "", lambda s: (s.accepted + s.rounds, s.rounds)),
    ("jetspec_length", "JetSpec", "acceptance_length", False, False, "", lambda s: (s.accepted, s.rounds)),
)


def translate(trace: Trace) -> tuple[Dialect, ...]:
    """A run's numbers under every project's own name; what a tree leaves undefined is left out."""
    summary = summarise(trace)
    rates = [
        Dialect(key, source, name, *fraction(summary), bonus, unit=unit)
        for key, source, name, bonus, of_chains, unit, fraction in _RATES
        if not (of_chains and summary.is_tree)
    ]
    return (*_overlap(trace, summary), *rates, *_by_position(summary))


def _overlap(trace: Trace, summary: Summary) -> Iterable[Dialect]:
    """Leviathan's α, where the trace holds β = Σ min(p, q) of every judged draft."""
    judged = [node for round_ in trace.decoding for node in round_.nodes if node.status != "discarded"]
    betas = [node.beta for node in judged if node.beta is not None]
    if not summary.is_tree and len(betas) == len(judged):
        yield Dialect("leviathan_alpha", "Leviathan 2211.17192", "α", sum(betas), len(betas), False)


# key, source, name, whether it is defined for chains alone, what it divides by at a position
_BY_POSITION: tuple[tuple[str, str, str, bool, Callable[[Summary, Position], int]], ...] = (
    ("vllm_position", "vLLM", "acceptance rate per position", False, lambda s, _: s.drafting_rounds),
    ("llama_position", "llama.cpp", "acceptance rate per position", False, lambda s, _: s.drafting_rounds),
    ("dspark_position", "DSpark", "position-wise acceptance", True, lambda _, position: position.judged),
    ("deepspec_position", "DeepSpec", "accept_rate@pos", True, lambda _, position: position.drafted),
)


def _by_position(summary: Summary) -> Iterable[Dialect]:
    for key, source, name, of_chains, below in _BY_POSITION:
        if not (of_chains and summary.is_tree):
            for at in summary.positions:
                yield Dialect(key, source, name, at.accepted, below(summary, at), False, at.depth)
