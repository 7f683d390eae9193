"""Whole runs over captured passes, of every drafter; and how often a round waits for the device."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from spec_viz.drafters.registry import Opened, Setup, families
from spec_viz.engine import device, rules
from spec_viz.engine.decode import Settings, decode
from spec_viz.engine.draws import pick, pick_there
from spec_viz.engine.graphs import release
from spec_viz.engine.length import LENGTHS
from spec_viz.engine.target import CachedModel
from spec_viz.engine.warp import Warp
from tests.engine.heads import texts
from tests.engine.rehearsal import Rehearsal
from tests.engine.tiny import LAYERS, Result, collect, generate, model, never, prompts
from tests.unit.test_anatomy import LETTERS, OPTIONS, open_head

NEW = 24
WARM = Warp(temperature=0.8, top_p=0.9)
# Drafters whose chains stay on the device until they are judged.
AHEAD = ("draft_model", "early_exit", "layer_skip", "window", "eagle3", "eagle", "mtp")


@pytest.fixture(autouse=True)
def all_captured(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing is kept from one test to the next, and nothing refuses to be captured."""
    release()
    yield
    assert "cannot be captured" not in caplog.text


def run(
    name: str,
    prompt: list[int],
    capture: Rehearsal | None,
    warp: Warp = Warp(),  # noqa: B008 - frozen
    options: dict[str, Any] | None = None,
    length: str = "fixed",
    rule: str | None = None,
    made: Callable[[int], Any] = model,
    **more: Any,
) -> Result:
    """Decode with the tiny target; `made` gives it and models of fewer layers."""
    family = families()[name]
    checked = family.options({**OPTIONS.get(name, {}), **(options or {})})
    rule = rule or family.default_rule(checked)
    policy = LENGTHS[length]()
    target = CachedModel(made(LAYERS), capture=capture)
    setup = Setup(
        target,
        LETTERS,
        lambda _: [1, 2, 3],
        len(prompt),
        frozenset(),
        warp,
        rule,
        policy,
        open_model=lambda _: Opened(made(2), LETTERS, lambda _: [], 100),
        open_head=open_head,
    )
    settings = Settings(4, NEW, warp, rule, length=policy, **more)
    return collect(prompt, decode(target, family.build(setup, checked), prompt, settings, never))


def told(result: Result) -> list[Any]:
    """What a run says of its rounds, numbers to four digits and times left out."""
    return [
        (
            [(node.id, node.parent, node.status, _digits(node.p), _digits(node.q)) for node in round_.nodes],
            round_.committed,
            round_.kv,
        )
        for round_ in result.rounds
    ]


def _digits(chance: float | None) -> float | None:
    return None if chance is None else round(chance, 4)


@pytest.mark.parametrize("name", families())
def test_greedy_text_over_captured_passes_is_transformers_own(name: str) -> None:
    for prompt in prompts(2):
        release()
        capture = Rehearsal()
        assert run(name, prompt, capture).output == generate(prompt, NEW)
        assert capture.replayed


@pytest.mark.parametrize("name", families())
def test_every_round_is_that_of_plain_passes(name: str) -> None:
    for warp in (Warp(), WARM):
        prompt = list(texts()[0][:20])
        assert told(run(name, prompt, Rehearsal(), warp)) == told(run(name, prompt, None, warp))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("eagle3", {"tree": 6, "top_k": 2}),
        ("medusa", {"tree": 6}),
        ("draft_model", {"width": 3}),
        ("eagle", {"width": 2}),
    ],
    ids=str,
)
def test_every_round_of_a_tree_is_that_of_plain_passes(name: str, options: dict[str, Any]) -> None:
    rule = "match" if options.get("tree") else "specinfer"
    prompt = list(texts()[0][:20])
    for warp in (Warp(), WARM):
        found = [run(name, prompt, capture, warp, options, rule=rule) for capture in (Rehearsal(), None)]
        assert told(found[0]) == told(found[1])


@pytest.mark.parametrize("length", ["heuristic", "confident"])
@pytest.mark.parametrize("name", ["draft_model", "eagle3"])
def test_a_policy_that_looks_at_tokens_gets_to_see_them(name: str, length: str) -> None:
    prompt = prompts(1)[0]
    got, expected = (run(name, prompt, capture, WARM, length=length) for capture in (Rehearsal(), None))
    assert told(got) == told(expected)


@pytest.mark.parametrize("name", AHEAD)
def test_nothing_stands_behind_an_end_that_nobody_looked_at(name: str) -> None:
    prompt = prompts(1)[0]
    whole = generate(prompt, NEW)
    ends = frozenset(whole[5:8])
    got, expected = (run(name, prompt, capture, ends=ends) for capture in (Rehearsal(), None))
    assert got.output == expected.output
    assert got.finish == expected.finish == "eos"
    assert [[node.id for node in round_.nodes] for round_ in got.rounds] == [
        [node.id for node in round_.nodes] for round_ in expected.rounds
    ]


def test_a_penalty_is_applied_to_tokens_that_are_known() -> None:
    warp = Warp(temperature=0.8, repetition_penalty=1.3)
    prompt = prompts(1)[0]
    for name in ("draft_model", "eagle3"):
        assert told(run(name, prompt, Rehearsal(), warp)) == told(run(name, prompt, None, warp))


@pytest.mark.parametrize("seed", range(20))
def test_a_token_picked_on_the_device_is_the_one_picked_here(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    law = torch.rand(50, generator=generator) * (torch.rand(50, generator=generator) > 0.6)
    law[0] += 0.1
    law = law / law.sum()
    for u in (0.0, 0.25, float(torch.rand((), generator=generator)), 1 - 2.0**-53):
        assert pick_there(law, u).tolist() == [pick(law, u)]


# ---------------------------------------------------------------- waiting for the device


class OnDevice(Tensor):
    """A tensor that counts who looks at it, as if it lay on a device; what is computed from it lies there too."""

    looks: ClassVar[Counter[str]] = Counter()

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("item", "tolist", "numpy", "cpu", "nonzero", "__bool__", "__int__", "__float__", "__index__"):
            cls.looks[name] += 1
        # A list of numbers or a mask as an index: the one is copied there, the other decides a size.
        if name == "__getitem__" and _waits(args[1]):
            cls.looks["index"] += 1
        result = super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
        if name == "to" and "cpu" in args[1:]:
            return result.as_subclass(Tensor)
        return result


def _waits(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, list) or (isinstance(part, Tensor) and part.dtype == torch.bool) for part in parts)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Counts waits for the device and everything else that makes the program wait."""
    OnDevice.looks = Counter()
    monkeypatch.setattr(device, "wait", lambda _: OnDevice.looks.update(["wait"]))
    make = torch.tensor

    def counted(*args: Any, **kwargs: Any) -> Tensor:
        # Numbers of the program become a tensor on the device: sent out of ordinary memory they are waited for. What
        # the rules judge has been brought here, and other packages only teach the head at its first use.
        caller = sys._getframe(1).f_code
        ours = Path(caller.co_filename).is_relative_to(Path(device.__file__).parents[1])
        if ours and "device" in kwargs and caller is not device.send.__code__ and caller.co_filename != rules.__file__:
            OnDevice.looks["tensor"] += 1
        return make(*args, **kwargs)

    monkeypatch.setattr(torch, "tensor", counted)

    def away(_: Any, __: Any, out: Any) -> Any:
        out.logits = out.logits.as_subclass(OnDevice)
        if out.hidden_states is not None:
            states = out.hidden_states
            out.hidden_states = {layer: states[layer].as_subclass(OnDevice) for layer in _layers(states)}
        return out

    handles = [each.register_forward_hook(away) for each in (model(LAYERS), model(2))]
    yield OnDevice.looks
    for handle in handles:
        handle.remove()


def _layers(states: Any) -> list[int]:
    return list(states) if isinstance(states, dict) else [at for at, each in enumerate(states) if each is not None]


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize(
    "name", ["none", "prompt_lookup", "draft_model", "early_exit", "layer_skip", "eagle3", "eagle", "mtp"]
)
def test_a_round_waits_for_the_device_once(name: str, temperature: float, waits: Counter[str]) -> None:
    result = run(name, prompts(1)[0], Rehearsal(), Warp(temperature=temperature))
    assert waits["wait"] == len(result.rounds)
    assert waits == {"wait": len(result.rounds)}


def test_the_count_sees_a_drafter_that_looks(waits: Counter[str]) -> None:
    run("draft_model", prompts(1)[0], Rehearsal(), length="confident")
    assert {*waits} > {"wait"}
