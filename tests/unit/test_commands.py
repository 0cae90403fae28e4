"""Commands as providers: what one asks for, written into its variant; how the queue has and the rules see them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.command import EXEC, Offers, Shape, called, is_kept_by_caller, provider_of, shape_of, token_of
from scheduler.model.outcome import Outcome
from scheduler.model.provider import Provider
from scheduler.rules import never, retry

GIB = st.floats(0, 2.0**30, allow_nan=False)
SHAPES = st.builds(
    Shape, GIB, GIB, st.integers(0, 4096), st.integers(1, 4096), st.booleans(), st.sampled_from("fdl"),
    st.binary(min_size=5, max_size=5).map(token_of),
)  # fmt: skip


@given(SHAPES)
def test_a_variant_says_all_that_was_asked_for_exactly(shape: Shape) -> None:
    found = shape_of(shape.variant())
    assert found is not None
    assert [getattr(found, name) for name in Shape.__slots__] == [getattr(shape, name) for name in Shape.__slots__]


@given(SHAPES)
def test_a_variant_is_one_word_of_an_argv_and_a_file_name(shape: Shape) -> None:
    variant = shape.variant()
    assert variant.isascii() and variant.isprintable() and not {" ", "/", "=", ":"} & set(variant)
    assert len(variant) < 100


def test_a_command_is_a_oneshot_that_is_tried_once_and_is_as_patient_as_it_likes() -> None:
    found = provider_of(Shape(28.0, 2.0, 1, 4, False, "f", "abc").variant())
    assert found is not None and (found.slug, found.mode, found.policy) == (EXEC, "oneshot", "required")
    assert (found.vram_gib, found.ram_gib, found.count, found.threads) == (28.0, 2.0, 1, 4)
    assert (found.max_attempts, found.request_timeout_s, found.max_workers) == (1, 0.0, 1)
    without = provider_of(Shape(0.0, 2.0, 0, 1, False, "d", "abc").variant())
    assert without is not None and without.policy == "none"


@pytest.mark.parametrize("variant", ["", "t33_650M", "v28", "v28r2n1t1", "v28r2n1t1-z9", "vxr2n1t1-f9", "v--r2n1t1-f9"])
def test_what_is_no_commands_variant_is_none(variant: str) -> None:
    assert shape_of(variant) is None and provider_of(variant) is None
    assert not is_kept_by_caller(EXEC, variant)


def test_every_command_is_among_the_offers_and_nothing_else_is_invented() -> None:
    offers = Offers({("echo", ""): Provider("echo")})
    variant = Shape(0.0, 1.0, 0, 1, False, "f", "a").variant()
    assert offers[EXEC, variant].ram_gib == 1.0 and offers.get((EXEC, variant)) == provider_of(variant)
    assert offers.get(("boltz", "")) is None and offers.get((EXEC, "other")) is None
    assert offers == {("echo", ""): Provider("echo")}
    with pytest.raises(KeyError):
        offers["boltz", ""]


def test_a_command_is_called_by_its_slug_alone() -> None:
    variant = Shape(0.0, 1.0, 0, 1, False, "f", "a").variant()
    assert called(EXEC, variant) == "exec" and called("esm2", "t33") == "esm2:t33" and called("esm2", "") == "esm2"


def test_only_what_the_scheduler_keeps_has_no_caller() -> None:
    kinds = {kind: Shape(0.0, 1.0, 0, 1, False, kind, "a").variant() for kind in "fdl"}
    assert {kind: is_kept_by_caller(EXEC, variant) for kind, variant in kinds.items()} == {
        "f": True, "d": False, "l": True,
    }  # fmt: skip
    assert not is_kept_by_caller("echo", kinds["f"])


def test_what_can_never_fit_is_told_in_numbers() -> None:
    facts = {"accelerators": 0, "pools": [{"id": "host", "kind": "host", "capacity_gib": 8.0, "reserve_gib": 1.0}]}
    assert never.ruling(Shape(0.0, 7.0, 0, 1, False, "f", "a").spec(), facts) == ("", "")
    ruling, text = never.ruling(Shape(0.0, 7.5, 0, 1, False, "f", "a").spec(), facts)
    assert ruling == "too_big" and text.startswith("exec needs 7.5 GiB (host)")
    assert never.ruling(Shape(1.0, 0.0, 1, 1, False, "f", "a").spec(), facts)[0] == "no_device"


@pytest.mark.parametrize("kind", ["interrupted", "lost", "crashed", "over_budget", "no_reply", "timed_out"])
def test_a_command_is_never_run_twice_unless_its_job_says_so(kind: str) -> None:
    provider = provider_of(Shape(0.0, 1.0, 0, 1, False, "d", "a").variant())
    assert provider is not None
    again = retry.decide(
        Outcome(kind, "why"), provider=provider, tries=1, max_attempts=1, on_lost="fail", retry_on=("",)
    )
    assert again.event in ("fail", "time_out"), again


@pytest.mark.parametrize("on_lost", ["fail", "hold"])
def test_a_command_that_is_known_not_to_have_begun_waits_for_its_turn_again(on_lost: str) -> None:
    provider = provider_of(Shape(0.0, 1.0, 0, 1, False, "f", "a").variant())
    assert provider is not None
    unsent = Outcome("interrupted", "why", unsent=True)
    again = retry.decide(unsent, provider=provider, tries=1, max_attempts=1, on_lost=on_lost, retry_on=("",))
    assert again.event == "give_back", again


@pytest.mark.parametrize(("kind", "event"), [("lost", "retry"), ("interrupted", "give_back"), ("crashed", "fail")])
def test_a_command_that_may_be_run_again_is_when_it_was_lost(kind: str, event: str) -> None:
    provider = provider_of(Shape(0.0, 1.0, 0, 1, False, "d", "a").variant())
    assert provider is not None
    again = retry.decide(
        Outcome(kind, "why"), provider=provider, tries=1, max_attempts=2, on_lost="requeue", retry_on=("lost",)
    )
    assert again.event == event, again
