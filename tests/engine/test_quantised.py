"""The cache of codes: what is stored, what it costs, and that an entry hangs on its own token alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.cache_utils import Cache

from spec_viz.drafters.none import NoDrafter
from spec_viz.engine.cache import crop, gather
from spec_viz.engine.decode import Settings, decode
from spec_viz.engine.proposal import Drafter, Proposal
from spec_viz.engine.quantised import (
    SCALE_BYTES,
    WIDTHS,
    Form,
    QuantisedLayer,
    Width,
    _pack,
    _unpack,
    new_quantised_cache,
)
from spec_viz.engine.quantised import rotation as rotation_of
from spec_viz.engine.target import CachedModel
from spec_viz.engine.warp import Warp
from tests.engine.tiny import Copyist, collect, early_exit, generate, lookup, model, never, prompts, run, spoiled

FORMS = [Form(bits, rotated) for bits in WIDTHS for rotated in (False, True)]
TOKENS = prompts(1, 40)[0]


def vectors(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def error(form: Form, given: Tensor) -> float:
    return float((form.read(form.write(given), given.dtype) - given).norm() / given.norm())


@pytest.mark.parametrize("bits", WIDTHS)
def test_every_code_comes_back_from_as_few_bytes_as_there_are_bits(bits: Width) -> None:
    codes = torch.arange(2**bits).repeat(16).view(2, -1)[:, : 8 * 2 ** max(bits - 3, 0)].to(torch.uint8)
    codes = torch.cat([codes, codes.flip(-1)])
    packed = _pack(codes, bits)
    assert packed.dtype == torch.uint8
    assert packed.shape[-1] * 8 == codes.shape[-1] * bits
    assert torch.equal(_unpack(packed, bits).long(), codes.long())


@pytest.mark.parametrize("form", FORMS)
def test_no_number_is_further_off_than_half_a_step(form: Form) -> None:
    given = vectors(5, 3, 64)
    stored = form.write(given)
    assert stored.shape[-1] == form.bytes_of(64) == 8 * form.bits + SCALE_BYTES
    turned = given @ rotation_of(64, given.dtype, given.device) if form.rotated else given
    got = form.read(stored, given.dtype)
    off = got @ rotation_of(64, given.dtype, given.device) - turned if form.rotated else got - turned
    step = (turned.amax(-1, keepdim=True) - turned.amin(-1, keepdim=True)) / (2**form.bits - 1)
    # Where the steps begin and how wide they are is kept in half precision.
    spare = (turned.abs().amax(-1, keepdim=True) + (2**form.bits - 1) * step) * 2**-11
    assert (off.abs() <= step / 2 + spare).all()


def test_equal_numbers_have_no_steps_and_come_back_all_the_same() -> None:
    for value in (0.0, 0.5, -3.0):
        assert torch.equal(
            Form(3).read(Form(3).write(torch.full((2, 8), value)), torch.float32), torch.full((2, 8), value)
        )


def test_a_further_bit_halves_the_error() -> None:
    given = vectors(200, 64)
    errors = [error(Form(bits), given) for bits in WIDTHS[:3]]
    assert errors[0] / errors[1] == pytest.approx(7 / 3, rel=0.1)
    assert errors[1] / errors[2] == pytest.approx(15 / 7, rel=0.1)


def test_the_rotation_is_orthogonal_and_the_same_every_time() -> None:
    matrix = rotation_of(64, torch.float64, torch.device("cpu"))
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(64, dtype=torch.float64))
    assert torch.equal(matrix, rotation_of.__wrapped__(64, torch.float64, torch.device("cpu")))
    assert torch.allclose(matrix.abs(), torch.full((64, 64), 0.125, dtype=torch.float64))


def test_turning_spreads_a_loud_channel_and_saves_most_of_the_error() -> None:
    given = vectors(200, 64)
    assert error(Form(4, True), given) == pytest.approx(error(Form(4), given), rel=0.1)
    given[:, 7] *= 50
    quiet = torch.arange(64) != 7

    def lost(form: Form) -> float:
        off = form.read(form.write(given), given.dtype) - given
        return float(off[:, quiet].norm() / given[:, quiet].norm())

    # In front of one number fifty times as large, the others fall on one step of four bits.
    assert lost(Form(4)) > 0.9
    assert lost(Form(4, True)) < lost(Form(4)) / 2


@pytest.mark.parametrize("form", FORMS)
def test_an_entry_hangs_on_its_own_token_alone(form: Form) -> None:
    keys, values = vectors(1, 2, 12, 8), vectors(1, 2, 12, 8, seed=1)
    whole, alone = QuantisedLayer(form), QuantisedLayer(form)
    read = whole.update(keys, values)
    for place in range(12):
        alone.update(100 * keys[:, :, :3], values[:, :, :3])
        alone.crop(-3)
        again = alone.update(keys[:, :, place : place + 1], values[:, :, place : place + 1])
    assert torch.equal(read[0], again[0])
    assert torch.equal(read[1], again[1])
    assert torch.equal(whole.keys[:, :, :12], alone.keys[:, :, :12])


def test_a_path_through_a_tree_is_gathered_as_it_was_stored() -> None:
    caches = [new_quantised_cache(Form(3, True)) for _ in range(2)]
    keys, values = vectors(1, 2, 9, 8), vectors(1, 2, 9, 8, seed=1)
    caches[0].update(keys, values, 0)
    gather(caches[0], 4, [0, 2, 4])
    crop(caches[0], 7)
    kept = [0, 1, 2, 3, 4, 6, 8]
    caches[1].update(keys[:, :, kept], values[:, :, kept], 0)
    new = vectors(1, 2, 1, 8, seed=2)
    for got, expected in zip(caches[0].update(new, new, 0), caches[1].update(new, new, 0), strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize(("numbers", "form"), [(12, Form(4)), (24, Form(4, True))])
def test_a_vector_that_cannot_be_packed_or_turned_is_refused(numbers: int, form: Form) -> None:
    with pytest.raises(ValueError, match=f"{numbers} numbers cannot be"):
        form.write(torch.ones(1, numbers))


def test_an_unknown_width_is_refused() -> None:
    with pytest.raises(ValueError, match="bits must be one of"):
        Form(5)  # type: ignore[arg-type]


# ---------------------------------------------------------------- a target with this cache


def cached(form: Form) -> Callable[[], Cache]:
    return partial(new_quantised_cache, form)


def written(form: Form, prompt: list[int], drafter: Drafter, **settings: Any) -> list[int]:
    target = CachedModel(model(), cached(form))
    chosen = Settings(**{"gamma": 4, "max_new_tokens": 24, **settings})
    return collect(prompt, decode(target, drafter, prompt, chosen, never)).output


def test_one_pass_over_many_tokens_has_the_logits_of_many_over_one() -> None:
    whole, alone = (CachedModel(model(), cached(Form(3))) for _ in range(2))
    together = whole.feed(TOKENS, keep=len(TOKENS))
    singly = torch.cat([alone.feed([token], keep=1) for token in TOKENS])
    torch.testing.assert_close(together, singly)
    # And they are not the full model's: the pass itself has read what was stored.
    assert (CachedModel(model()).feed(TOKENS, keep=len(TOKENS)) - together).abs().max() > 0.1


def test_what_was_rolled_back_leaves_no_trace() -> None:
    used, fresh = (CachedModel(model(), cached(Form(4, True))) for _ in range(2))
    used.prefill(TOKENS[:10])
    used.verify(TOKENS[10], Proposal(tuple(TOKENS[11:16])))
    used.roll_back(10, (0, 1))
    fresh.prefill(TOKENS[:12])
    torch.testing.assert_close(used.verify(3, Proposal((4, 5)))[0], fresh.verify(3, Proposal((4, 5)))[0])
    used.close()
    torch.testing.assert_close(used.prefill(TOKENS)[0], CachedModel(model(), cached(Form(4, True))).prefill(TOKENS)[0])


@pytest.mark.parametrize("form", FORMS)
def test_speculation_writes_the_quantised_target_s_own_text(form: Form) -> None:
    for prompt in prompts(3):
        plain = written(form, prompt, NoDrafter())
        assert written(form, prompt, lookup(prompt)) == plain
        assert written(form, prompt, early_exit(2), rule="token") == plain
        assert written(form, prompt, early_exit(2, width=2), rule="specinfer") == plain
        assert written(form, prompt, Copyist(len(prompt), spoiled(plain, 3))) == plain


def test_it_is_not_the_full_target_s_text() -> None:
    pairs = [(written(Form(2), prompt, NoDrafter()), generate(prompt, 24)) for prompt in prompts(6)]
    assert any(mine != full for mine, full in pairs)


def test_a_seed_gives_the_quantised_target_s_own_text_at_a_temperature_too() -> None:
    warm: dict[str, Any] = {"warp": Warp(1.0), "rule": "match", "seed": 5}
    for prompt in prompts(3):
        mine = written(Form(3), prompt, NoDrafter(), **warm)
        assert written(Form(3), prompt, lookup(prompt), **warm) == mine
    assert any(
        written(Form(2), prompt, NoDrafter(), **warm) != run(prompt, NoDrafter(), **warm).output
        for prompt in prompts(3)
    )


@pytest.mark.parametrize("form", [Form(4), Form(3, rotated=True)])
def test_who_looks_into_the_cache_sees_what_a_pass_attends_to(form: Form) -> None:
    layer = QuantisedLayer(form)
    vectors = torch.randn(2, 1, 2, 5, 16, generator=torch.Generator().manual_seed(3))
    attended = layer.update(vectors[0], vectors[1])
    for seen, told in zip(layer.entries(), attended, strict=True):
        assert torch.equal(seen, told)
    layer.crop(-2)
    for seen, told in zip(layer.entries(), attended, strict=True):
        assert torch.equal(seen, told[:, :, :3])
