"""The losslessness tests: does a drafter with a rule keep the target's law?

Three kinds, each able to fail (a planted wrong rule does): the law a rule emits, enumerated exactly on a tiny
vocabulary; chi-square on what the real loop samples, on a toy pair and on the real model; identity with plain decoding,
greedy and with keyed draws.
"""

from __future__ import annotations

import itertools
import math
import operator
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction

import torch
from scipy.stats import chi2
from torch import Tensor

from spec_viz.drafters.none import NoDrafter, Stateless
from spec_viz.engine.decode import Settings, decode
from spec_viz.engine.draws import Draws, pick
from spec_viz.engine.proposal import NOTHING, ROOT, Drafter, Drawn, Needs, Proposal, Seen, chain, depths
from spec_viz.engine.rules import RULES, Judge, Verdict
from spec_viz.engine.trace import Round
from spec_viz.engine.warp import Warp

FAMILY_WISE_ERROR = 0.001
FEWEST_EXPECTED = 5.0
# Fewer leave the real model with hardly a cell that is expected five times, and a test with no power.
FEWEST_ROUNDS = 2000
EXACT_TOLERANCE = 1e-9

Law = Mapping[tuple[int, ...], float]


@dataclass(frozen=True, slots=True)
class LawTest:
    """One row of the table: what was tested, over how many rounds, the statistic and its p-value (None when exact)."""

    name: str
    rounds: int
    statistic: float
    p_value: float | None
    passed: bool


# ---------------------------------------------------------------- exact enumeration


class _DrawsSpentError(Exception):
    """The rule asked for a draw that the script does not hold yet."""


class ListedDraws(Draws):
    """Draws that come from a list in the order they are asked for; asking past its end raises."""

    def __init__(self, values: Sequence[float]) -> None:
        super().__init__(0, 0, 0)
        object.__setattr__(self, "_rest", iter(values))

    def _next(self) -> float:
        for value in self._rest:  # type: ignore[attr-defined]
            return float(value)
        raise _DrawsSpentError

    def own(self, law: Tensor, offset: int) -> int:
        return pick(law, self._next())

    def by_round(self, purpose: str, offset: int) -> float:
        return self._next()


@dataclass(frozen=True, slots=True)
class TinyPair:
    """Two laws over a tiny vocabulary that depend on the last token: rows of p and q are exact fractions.

    `start` is the row of the place that is decoded first.
    """

    p: tuple[tuple[Fraction, ...], ...]
    q: tuple[tuple[Fraction, ...], ...]
    start: int

    def target_law(self, length: int) -> dict[tuple[int, ...], float]:
        """The target's own joint law of the next `length` tokens."""
        return {
            tokens: float(self.probability(tokens)) for tokens in itertools.product(range(len(self.p)), repeat=length)
        }

    def probability(self, tokens: Sequence[int], after: int | None = None) -> Fraction:
        """p of these tokens in a row, after the given last token."""
        last, product = self.start if after is None else after, Fraction(1)
        for token in tokens:
            product *= self.p[last][token]
            last = token
        return product


def emitted_law(
    pair: TinyPair, rule: Judge, gamma: int, propose: Callable[[Sequence[int]], Proposal], chosen: bool, grid: int
) -> dict[tuple[int, ...], float]:
    """The exact joint law of the next gamma + 1 tokens when one round runs by `rule` and the target goes on alone.

    `propose` makes the proposal of a drafted chain. `chosen` means the drafter drafts argmax q, otherwise every chain
    counts with its probability under q. `grid` is a number such that every threshold the rule compares a draw with is a
    multiple of 1/grid: midpoints of the grid then integrate over the draws without error.
    """
    law: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for drafts in itertools.product(range(len(pair.p)), repeat=gamma):
        weight = _chosen_weight(pair, drafts) if chosen else _drawn_weight(pair, drafts)
        if weight == 0:
            continue
        places = (pair.start, *drafts)
        p = torch.tensor([[float(x) for x in pair.p[last]] for last in places], dtype=torch.float64)
        for draws, emitted in _outcomes(rule, p, propose(drafts), grid, ()):
            share = weight * Fraction(1, grid**draws)
            rest = gamma + 1 - len(emitted)
            for tail in itertools.product(range(len(pair.p)), repeat=rest):
                law[emitted + tail] += float(share * pair.probability(tail, after=emitted[-1]))
    return dict(law)


def _drawn_weight(pair: TinyPair, drafts: Sequence[int]) -> Fraction:
    chain = zip((pair.start, *drafts), drafts, strict=False)
    return math.prod((pair.q[last][draft] for last, draft in chain), start=Fraction(1))


def _chosen_weight(pair: TinyPair, drafts: Sequence[int]) -> Fraction:
    chain = zip((pair.start, *drafts), drafts, strict=False)
    return Fraction(all(draft == max(range(len(pair.q)), key=pair.q[last].__getitem__) for last, draft in chain))


def _outcomes(
    rule: Judge, p: Tensor, proposal: Proposal, grid: int, values: tuple[float, ...]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Every (number of draws, emitted tokens) over the midpoints of the grid."""
    try:
        verdict = rule(p, proposal, ListedDraws(values))
    except _DrawsSpentError:
        for step in range(grid):
            yield from _outcomes(rule, p, proposal, grid, (*values, (step + 0.5) / grid))
    else:
        yield len(values), (*proposal.tokens[: verdict.accepted], verdict.token)


def soft_rows(pair: TinyPair) -> Callable[[Sequence[int]], Proposal]:
    """Proposals that carry the q rows of the chain."""

    def propose(drafts: Sequence[int]) -> Proposal:
        rows = [[float(x) for x in pair.q[last]] for last in (pair.start, *drafts[:-1])]
        return Proposal(tuple(drafts), "sampled", torch.tensor(rows, dtype=torch.float64))

    return propose


def one_hot(drafts: Sequence[int]) -> Proposal:
    """A chosen chain: q is one on each draft."""
    return Proposal(tuple(drafts))


def compare_exact(name: str, emitted: Law, target: Law) -> LawTest:
    """Largest difference between two laws; passes below rounding."""
    worst = max(abs(emitted.get(tokens, 0.0) - target.get(tokens, 0.0)) for tokens in {*emitted, *target})
    return LawTest(name, 0, worst, None, worst < EXACT_TOLERANCE)


def _fractions(rows: Sequence[str]) -> tuple[tuple[Fraction, ...], ...]:
    return tuple(tuple(Fraction(x) for x in row.split()) for row in rows)


# The worked example of algorithms §13.1, the same laws after every token.
WORKED = TinyPair(_fractions([".5 .3 .2"] * 3), _fractions([".2 .5 .3"] * 3), 0)
# A residual with two tokens: with one alone, a second child is kept for certain, and what became of q does not matter.
UNEVEN = TinyPair(_fractions([".5 .3 .2"] * 3), _fractions([".2 .1 .7"] * 3), 0)
# Laws that depend on the last token, so that a rule that looks at the wrong row is seen.
CHAIN = TinyPair(
    _fractions(["1/2 1/4 1/4", "1/4 1/2 1/4", "1/4 1/4 1/2"]),
    _fractions(["1/4 1/2 1/4", "1/4 1/4 1/2", "1/2 1/4 1/4"]),
    0,
)

# DSpark's two tokens (algorithms §13.7).
SCHEDULED = TinyPair(_fractions([".7 .3"] * 2), _fractions([".5 .5"] * 2), 0)


def enumerate_rules() -> list[LawTest]:
    """Every rule on both tiny pairs, with soft q where drafts are drawn and one-hot q where they are chosen."""
    tests = []
    # Grids: thresholds of the worked pair are thirtieths (soft q) and seventieths (one-hot), of the chain twelfths.
    for label, pair, gamma, soft, chosen in (("§13.1", WORKED, 1, 30, 70), ("chain", CHAIN, 2, 4, 12)):
        target = pair.target_law(gamma + 1)
        for name, rule, q, propose, argmax, grid in (
            ("token", RULES["token"].judge, "soft q", soft_rows(pair), False, soft),
            ("token", RULES["token"].judge, "one-hot q", one_hot, True, chosen),
            ("match", RULES["match"].judge, "one-hot q", one_hot, True, chosen),
        ):
            emitted = emitted_law(pair, rule, gamma, propose, argmax, grid)
            tests.append(compare_exact(f"exact · {name} · {q} · {label}", emitted, target))
    return tests


# ---------------------------------------------------------------- exact enumeration on trees


class _ForcedDraws(Draws):
    """Accept draws are 0 (kept if at all possible) or just below 1 (kept only if certain), in the order asked for."""

    def __init__(self, keeps: Sequence[bool]) -> None:
        super().__init__(0, 0, 0)
        object.__setattr__(self, "_keeps", keeps)
        object.__setattr__(self, "asked", [])

    def by_round(self, purpose: str, offset: int) -> float:
        if purpose != "accept":
            return 0.5
        asked: list[int] = self.asked  # type: ignore[attr-defined]
        asked.append(offset)
        keeps: Sequence[bool] = self._keeps  # type: ignore[attr-defined]
        if len(asked) > len(keeps):
            raise _DrawsSpentError
        return 0.0 if keeps[len(asked) - 1] else 1 - 2.0**-53


def emitted_tree_law(pair: TinyPair, rule: Judge, parents: Sequence[int], drawn: Drawn) -> dict[tuple[int, ...], float]:
    """The exact joint law of the next depth + 1 tokens when one round runs by `rule` on a tree of this shape.

    Every tree counts with its probability under q; every outcome of an accept draw with the chance that the verdict
    states (that the draw is really compared with it is tested elsewhere); the own token with the law it is drawn from.
    """
    law: defaultdict[tuple[int, ...], float] = defaultdict(float)
    depth = max(depths(parents), default=0)
    for tokens in itertools.product(range(len(pair.p)), repeat=len(parents)):
        tree = Proposal(tokens, parents=tuple(parents))
        last = [pair.start if parent == ROOT else tokens[parent] for parent in parents]
        weight = _tree_weight(pair, tree, last, drawn)
        if weight == 0:
            continue
        rows = torch.tensor([[float(x) for x in pair.q[token]] for token in last], dtype=torch.float64)
        proposal = Proposal(tokens, drawn, rows, parents=tuple(parents))
        p = torch.tensor([[float(x) for x in pair.p[token]] for token in (pair.start, *tokens)], dtype=torch.float64)
        sure = [fate.accept or 0.0 for fate in rule(p, proposal, _ForcedDraws([True] * len(parents))).judged]
        for verdict, asked, keeps in _tree_outcomes(rule, p, proposal, ()):
            chances = [verdict.judged[node].accept for node in asked]
            share = weight * math.prod(
                (chance if keep else 1 - chance)
                for keep, chance in zip(
                    keeps,
                    (sure[node] if known is None else known for node, known in zip(asked, chances, strict=True)),
                    strict=True,
                )
            )
            if share == 0:
                continue
            kept = tuple(tokens[node] for node in verdict.path)
            end = verdict.path[-1] + 1 if verdict.path else 0
            refused = [fate.residual for fate in verdict.judged if fate.residual is not None]
            own = p[end] if verdict.kind == "bonus" else refused[0]
            for token, chance in enumerate(own.tolist()):
                for tail in itertools.product(range(len(pair.p)), repeat=depth - len(kept)):
                    law[(*kept, token, *tail)] += share * chance * float(pair.probability(tail, after=token))
    return dict(law)


def _tree_weight(pair: TinyPair, tree: Proposal, last: Sequence[int], drawn: Drawn) -> float:
    weight = 1.0
    for node, token in enumerate(tree.tokens):
        elder = [tree.tokens[child] for child in tree.children(tree.parents[node]) if child < node]
        law = pair.q[last[node]]
        left = 1 - sum(law[other] for other in {*elder}) if drawn == "without_replacement" else Fraction(1)
        if drawn == "without_replacement" and token in elder:
            return 0.0
        weight *= float(law[token] / left) if left else 0.0
    return weight


def _tree_outcomes(
    rule: Judge, p: Tensor, proposal: Proposal, keeps: tuple[bool, ...]
) -> Iterator[tuple[Verdict, list[int], tuple[bool, ...]]]:
    draws = _ForcedDraws(keeps)
    try:
        verdict = rule(p, proposal, draws)
    except _DrawsSpentError:
        for keep in (True, False):
            yield from _tree_outcomes(rule, p, proposal, (*keeps, keep))
    else:
        yield verdict, draws.asked, keeps  # type: ignore[attr-defined]


# Two children and a grandchild under each; one node with three children; a chain for the rule that judges it whole.
SHAPES: dict[str, tuple[int, ...]] = {"two and two": (-1, -1, 0, 1), "three": (-1, -1, -1), "chain": (-1, 0, 1)}


def enumerate_trees() -> list[LawTest]:
    """Every rule for drawn trees on both tiny pairs, and block verification of a chain."""
    tests = []
    for label, pair in (("§13.1", WORKED), ("uneven", UNEVEN), ("chain", CHAIN)):
        for name in ("specinfer", "without_replacement", "kseq", "block"):
            rule = RULES[name]
            for shape, parents in SHAPES.items():
                if rule.trees or shape == "chain":
                    emitted = emitted_tree_law(pair, rule.judge, parents, rule.drawn[0])
                    target = pair.target_law(max(depths(parents)) + 1)
                    tests.append(compare_exact(f"exact · {name} · {shape} · {label}", emitted, target))
    return tests


def dropped(pair: TinyPair, threshold: Fraction) -> Callable[[Sequence[int]], Proposal]:
    """A fault: the draft ends before a token that its own drafter found less likely than `threshold`."""
    whole = soft_rows(pair)

    def propose(drafts: Sequence[int]) -> Proposal:
        chances = [pair.q[last][draft] for last, draft in zip((pair.start, *drafts), drafts, strict=False)]
        sure = itertools.takewhile(lambda chance: chance >= threshold, chances)
        return whole(drafts).only(range(len(list(sure))))

    return propose


def scheduled(looks_back: bool) -> Callable[[Sequence[int]], Proposal]:
    """DSpark's counterexample: how much of a draft on `SCHEDULED` is verified, by Θ = expected tokens × passes a time.

    A scheduler that looks back takes the best of all lengths, and so drops a token for what came behind it; one that
    stops at the first drop of Θ keeps the law (2607.05147, appendix A; algorithms §1.7).
    """
    whole = soft_rows(SCHEDULED)

    def propose(drafts: Sequence[int]) -> Proposal:
        # The confidence in the second draft depends on the value of the first.
        confidence = (0.8, 0.9 if drafts[0] == 0 else 0.0)
        tokens = itertools.accumulate(itertools.accumulate((1.0, *confidence), operator.mul))
        goodput = [emitted * passes for emitted, passes in zip(tokens, (1.0, 0.5, 0.45), strict=True)]
        rises = list(itertools.takewhile(lambda k: goodput[k + 1] > goodput[k], range(2)))
        best = max(range(3), key=goodput.__getitem__) if looks_back else len(rises)
        return whole(drafts).only(range(best))

    return propose


def planted(rounds: int) -> list[LawTest]:
    """Every planted fault, enumerated and on the real loop: each of them must fail."""
    target = WORKED.target_law(2)
    own = emitted_law(WORKED, RULES["token"].judge, 1, dropped(WORKED, Fraction(1, 4)), False, 30)
    back = emitted_law(SCHEDULED, RULES["token"].judge, 2, scheduled(looks_back=True), False, 10)
    return [
        enumerate_planted(),
        compare_exact("planted · a draft dropped for its own low q", own, target),
        compare_exact("planted · a length chosen in hindsight", back, SCHEDULED.target_law(3)),
        compare_exact("planted · a tree's q left as it was", _unrenewed(), UNEVEN.target_law(2)),
        sample_planted(rounds),
        sample_dropped(rounds),
    ]


def _unrenewed() -> dict[tuple[int, ...], float]:
    """Siblings drawn without replacement, judged as if they had been drawn independently (algorithms §9.3)."""
    return emitted_tree_law(UNEVEN, RULES["specinfer"].judge, (-1, -1), "without_replacement")


def enumerate_planted() -> LawTest:
    """The planted fault, argmax drafts judged with a soft q: this one must fail (algorithms §13.2)."""
    emitted = emitted_law(WORKED, RULES["token"].judge, 1, soft_rows(WORKED), True, 30)
    return compare_exact("planted · argmax drafts with soft q", emitted, WORKED.target_law(2))


# ---------------------------------------------------------------- chi-square on the real loop


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread: on rows of a few numbers, waking a second one costs more than all the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class StandIn(ABC):
    """Stands in for a `CachedModel` in the loop: what it was fed is a list, and a subclass says what follows a text.

    A text is a list and a length, because copying every prefix would cost a long run its square.
    """

    context_limit = 2**31
    # Nothing computes apart from the program, so there is nothing to capture or to wait for.
    asynchronous = False
    capture = None

    def __init__(self) -> None:
        self._fed: list[int] = []

    @abstractmethod
    def rows(self, texts: Sequence[tuple[list[int], int]], needs: Needs) -> tuple[Tensor, Seen]:
        """Logits (n, V) of what follows each text, and what a drafter asked to see of them."""

    @property
    def length(self) -> int:
        return len(self._fed)

    def feed(self, tokens: Sequence[int], keep: int) -> Tensor:
        return self.feed_tree(tokens, chain(len(tokens)), keep)[0]

    def feed_tree(
        self, tokens: Sequence[int], parents: Sequence[int], keep: int, needs: Needs = NOTHING
    ) -> tuple[Tensor, Seen]:
        before = len(self._fed) + len(tokens) - len(parents)
        self._fed += tokens
        ends = range(len(self._fed) - keep + 1, len(self._fed) + 1)
        if tuple(parents) == chain(len(parents)):
            return self.rows([(self._fed, end) for end in ends], needs)
        tree = Proposal(tuple(self._fed[before:]), parents=tuple(parents))
        paths = [[tree.tokens[step] for step in tree.path(end - 1 - before)] for end in ends]
        return self.rows([([*self._fed[:before], *path], before + len(path)) for path in paths], needs)

    def prefill(self, prompt: Sequence[int], needs: Needs = NOTHING) -> tuple[Tensor, Seen]:
        logits, seen = self.feed_tree(prompt, chain(len(prompt)), len(prompt) if needs.layers else 1, needs)
        return logits[-1:], Seen(None if seen.logits is None else seen.logits[-1:], seen.hidden)

    def verify(self, last: int, proposal: Proposal, needs: Needs = NOTHING) -> tuple[Tensor, Seen]:
        tokens, parents = proposal.behind(last)
        logits, seen = self.feed_tree(tokens, parents, len(tokens), needs)
        return logits[: len(proposal) + 1], seen

    def roll_back(self, length: int, path: Sequence[int] = ()) -> None:
        kept = [self._fed[length + step] for step in path]
        del self._fed[length:]
        self._fed += kept

    def now(self) -> float:
        return 0.0

    def mark(self) -> float:
        return self.now()

    def close(self) -> None:
        self._fed = []


class TableModel(StandIn):
    """A model given by a function: `logits(fed, end)` are those (V,) after the first `end` tokens fed."""

    def __init__(self, logits: Callable[[Sequence[int], int], Tensor]) -> None:
        super().__init__()
        self._logits = logits

    def rows(self, texts: Sequence[tuple[list[int], int]], needs: Needs) -> tuple[Tensor, Seen]:
        return torch.stack([self._logits(fed, end) for fed, end in texts]), Seen()


class TableDrafter(Stateless):
    """Drafts from a table q (V, V) by last token: drawn with its soft q, or chosen (argmax) and one-hot.

    Two planted faults: `lie`, argmax drafts that claim the soft q, and `drop`, drafts that end before a token whose own
    q is below it.
    """

    def __init__(self, q: Tensor, drawn: bool, lie: bool = False, drop: float = 0.0) -> None:
        self._q = q
        self._drawn = drawn
        self._lie = lie
        self._drop = drop

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        tokens: list[int] = []
        for place in range(gamma):
            row = self._q[(tokens or context)[-1]]
            token = pick(row, draws.by_round("draft", place)) if self._drawn else int(row.argmax())
            if float(row[token]) < self._drop:
                break
            tokens.append(token)
        if not self._drawn and not self._lie:
            return Proposal(tuple(tokens))
        rows = torch.stack([self._q[last] for last in (context[-1], *tokens)])
        return Proposal(tuple(tokens), "sampled", rows[: len(tokens)])


def toy_tables(vocabulary: int = 6, seed: int = 7) -> tuple[Tensor, Tensor]:
    """Logits of a toy target (V, V) by last token, and a drafter's law (V, V) that resembles it."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randn(vocabulary, vocabulary, generator=generator, dtype=torch.float64)
    drafter = (target + torch.randn(vocabulary, vocabulary, generator=generator, dtype=torch.float64)).softmax(-1)
    return target, drafter


def sample_toy(label: str, drafter: Drafter, rule: str, rounds: int, seed: int = 1, gamma: int = 3) -> LawTest:
    """Run the real loop on the toy target for `rounds` rounds and test its transitions against the target's law.

    Given the last token, what follows is a fresh draw of the target's row if the law is kept: a chi-square with
    V(V − 1) degrees of freedom over the transition counts.
    """
    logits, _ = toy_tables()
    target = TableModel(lambda fed, end: logits[fed[end - 1]])
    asked = itertools.count()
    settings = Settings(gamma, 2**30, Warp(temperature=1.0), rule, seed)
    tokens: list[int] = [0]
    with one_thread():
        for part in decode(target, drafter, [0], settings, lambda: next(asked) > rounds):  # type: ignore[arg-type]
            if isinstance(part, Round):
                tokens += part.committed
    counts = torch.zeros_like(logits)
    for last, token in itertools.pairwise(tokens):
        counts[last, token] += 1
    expected = counts.sum(-1, keepdim=True) * logits.softmax(-1)
    statistic = float(((counts - expected) ** 2 / expected).sum())
    freedom = logits.shape[0] * (logits.shape[1] - 1)
    return chi_square(f"toy · {rule} · {label}", rounds, statistic, freedom)


def toy_tests(rounds: int, rules: Sequence[str] | None = None) -> Iterator[LawTest]:
    """Every exact test and every rule on the toy pair by chi-square, `rounds` rounds each."""
    _, q = toy_tables()
    for test in (*enumerate_rules(), *enumerate_trees()):
        if rules is None or any(rule in test.name.split(" · ") for rule in rules):
            yield test
    sampled: tuple[tuple[str, Drafter, str], ...] = (
        ("no drafter", NoDrafter(), "match"),
        ("argmax drafts", TableDrafter(q, drawn=False), "match"),
        ("argmax drafts", TableDrafter(q, drawn=False), "token"),
        ("drawn drafts", TableDrafter(q, drawn=True), "token"),
    )
    for label, drafter, rule in sampled:
        if rules is None or rule in rules:
            yield sample_toy(label, drafter, rule, rounds)


def sample_planted(rounds: int) -> LawTest:
    """The planted fault on the real loop: argmax drafts that claim a soft q must fail."""
    _, q = toy_tables()
    return sample_toy("planted · argmax drafts with soft q", TableDrafter(q, drawn=False, lie=True), "token", rounds)


def sample_dropped(rounds: int) -> LawTest:
    """The other planted fault on the real loop: drafts dropped for their own low q must fail."""
    _, q = toy_tables()
    return sample_toy(
        "planted · a draft dropped for its own low q", TableDrafter(q, drawn=True, drop=0.1), "token", rounds
    )


def compare_counts(name: str, rounds: int, counts: Mapping[tuple[int, ...], int], law: Law) -> LawTest:
    """Chi-square of observed sequences against their exact law; cells expected fewer than five times are pooled."""
    total = sum(counts.values())
    impossible = sum(count for tokens, count in counts.items() if law.get(tokens, 0.0) == 0.0)
    if impossible:
        return LawTest(name, rounds, math.inf, 0.0, False)
    statistic, cells, rare_seen, rare_expected = 0.0, 0, 0.0, 0.0
    for tokens, probability in law.items():
        expected, seen = probability * total, counts.get(tokens, 0)
        if expected < FEWEST_EXPECTED:
            rare_seen, rare_expected = rare_seen + seen, rare_expected + expected
        else:
            statistic, cells = statistic + (seen - expected) ** 2 / expected, cells + 1
    if rare_expected > 0:
        statistic, cells = statistic + (rare_seen - rare_expected) ** 2 / rare_expected, cells + 1
    return chi_square(name, rounds, statistic, cells - 1)


def chi_square(name: str, rounds: int, statistic: float, freedom: int) -> LawTest:
    """A test's row from its statistic and degrees of freedom, judged alone; `family_wise` judges a table."""
    # With all cells pooled into one there is nothing to hold against it.
    p_value = float(chi2.sf(statistic, freedom)) if freedom > 0 else 1.0
    return LawTest(name, rounds, statistic, p_value, p_value >= FAMILY_WISE_ERROR)


def family_wise(tests: Sequence[LawTest], error: float = FAMILY_WISE_ERROR) -> list[LawTest]:
    """Judge a table of tests together: Bonferroni keeps the chance that any true law fails below `error`."""
    sampled = sum(test.p_value is not None for test in tests)
    return [
        test
        if test.p_value is None
        else LawTest(test.name, test.rounds, test.statistic, test.p_value, test.p_value >= error / sampled)
        for test in tests
    ]
