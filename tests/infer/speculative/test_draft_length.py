"""How many tokens to guess: laws of the choice, and of the costs that it rests on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.errors import ConfigError
from mlxgpt.infer.speculative import DraftCosts, DraftLength, StepTimes

CHEAP = DraftCosts(checked=0.05)
costs = st.builds(DraftCosts, checked=st.floats(0, 1.5), drafted=st.floats(0, 1.5))
most = st.integers(0, 40)


def length_with(most: int, rate: float) -> DraftLength:
    length = DraftLength(most)
    length._rate = rate
    return length


def best_of_all(rate: float, most: int, cost: float) -> float:
    """The best gain over every length, from the closed form of the sum."""
    tokens = [k + 1 if rate == 1 else (1 - rate ** (k + 1)) / (1 - rate) for k in range(most + 1)]
    return max(t / (1 + k * cost) for k, t in enumerate(tokens))


@given(most, costs)
def test_guesses_that_are_always_right_give_the_longest_draft(most: int, costs: DraftCosts) -> None:
    cheap = costs.checked + costs.drafted < 1
    assert length_with(most, 1.0).choose(costs) == (most if cheap else 0)


@given(most, costs)
def test_guesses_that_are_always_wrong_give_none(most: int, costs: DraftCosts) -> None:
    assert length_with(most, 0.0).choose(costs) == 0


@given(most, st.floats(0, 1), st.floats(0, 1), costs, costs)
def test_better_or_cheaper_guesses_never_give_a_shorter_draft(
    most: int, a: float, b: float, one: DraftCosts, other: DraftCosts
) -> None:
    worse, better = sorted([a, b])
    assert length_with(most, worse).choose(one) <= length_with(most, better).choose(one)
    cheap, dear = sorted([one, other], key=lambda c: c.step(1))
    assert length_with(most, a).choose(dear) <= length_with(most, a).choose(cheap)


@given(most, st.floats(0, 1), costs)
def test_few_lengths_occur_and_little_is_lost_by_it(
    most: int, rate: float, costs: DraftCosts
) -> None:
    chosen = length_with(most, rate).choose(costs)
    assert chosen in {0, 1, 2, 4, 8, 16, 32, most}
    assert chosen <= most
    cost = costs.checked + costs.drafted
    gain = sum(rate**i for i in range(chosen + 1)) / (1 + chosen * cost)
    best = best_of_all(rate, most, cost)
    assert 0.85 * best <= gain <= best * (1 + 1e-9)


def test_a_history_moves_the_length_and_a_probe_brings_it_back() -> None:
    length = DraftLength(8)
    drafted = []
    for _ in range(100):  # all wrong
        drafted.append(length.choose(CHEAP))
        length.update(drafted[-1], 0)
    assert drafted[0] > 1
    tail = drafted[-68:]
    assert set(tail) == {0, 1}
    assert tail.count(1) == 4  # one in 17 steps
    assert tail.index(1) < 17
    for _ in range(150):  # all right
        count = length.choose(CHEAP)
        length.update(count, count)
    assert length.choose(CHEAP) == 8
    assert length.rate > 0.99


def test_only_guesses_that_were_tested_count() -> None:
    one, other = DraftLength(8), DraftLength(8)
    one.update(8, 2)  # two right, one wrong, five unknown
    other.update(3, 2)
    assert one.rate == other.rate == pytest.approx(((0.7 * 0.9 + 0.1) * 0.9 + 0.1) * 0.9)
    before = one.rate
    one.update(0, 0)
    assert one.rate == before


def test_a_probe_waits_until_the_proposer_has_a_guess() -> None:
    length = length_with(4, 0.0)
    for _ in range(30):
        length.update(0, 0)  # it was asked for one at last, and had none
    assert length.choose(CHEAP) == 1
    length.update(1, 0)
    assert length.choose(CHEAP) == 0


def test_no_probe_where_even_right_guesses_cost_more_than_they_save() -> None:
    length = length_with(4, 0.0)
    for _ in range(30):
        length.update(0, 0)
    assert length.choose(DraftCosts(checked=0.4, drafted=0.7)) == 0


@given(most, st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=30))
def test_the_choice_is_a_function_of_the_history(most: int, history: list[tuple[int, int]]) -> None:
    one, other = DraftLength(most), DraftLength(most)
    for drafted, accepted in history:
        for length in (one, other):
            length.update(drafted, min(drafted, accepted))
        one.choose(CHEAP)  # to ask does not change it
        assert one.choose() == one.choose() == other.choose() == other.choose(DraftCosts())


def test_a_fixed_length_stays() -> None:
    length = DraftLength(6, adapt=False)
    for _ in range(40):
        assert length.choose() == length.choose(DraftCosts(checked=5)) == 6
        length.update(6, 0)


def test_the_costs_of_measured_steps() -> None:
    times = StepTimes()
    start = times.costs(4)
    assert start == DraftCosts()
    for i in range(40):
        tokens = 1 + i % 9
        times.add_step(tokens, 0.060 + 0.005 * tokens)
        times.add_drafting(4, 4 * 0.013)
    for texts in (1, 8):
        plain = 0.060 + 0.005 * texts
        got = times.costs(texts)
        assert got.checked == pytest.approx(0.005 * texts / plain)
        assert got.drafted == pytest.approx(0.013 / plain)
        # a step of 1 + k tokens each, as the time law says
        assert 1 + 5 * got.checked == pytest.approx((0.060 + 0.005 * texts * 6) / plain)
    for _ in range(300):  # the machine is throttled: what was before is forgotten
        for tokens in (1, 5, 9):
            times.add_step(tokens, 0.02 * tokens)
    assert times.costs(1).checked == pytest.approx(1, rel=1e-3)


def test_too_little_or_odd_evidence_leaves_sound_costs() -> None:
    start = DraftCosts(checked=0.3, drafted=0.2)
    alike = StepTimes(start)
    for _ in range(50):
        alike.add_step(4, 0.1)
    assert alike.costs(4) == start  # one size tells no slope
    few = StepTimes(start)
    few.add_step(1, 1.0)
    few.add_step(2, 2.0)
    assert few.costs(1) == start
    times = StepTimes(start)
    for _ in range(50):
        times.add_step(1, 0.3)  # larger ones are quicker: noise
        times.add_step(9, 0.2)
    assert times.costs(2) == DraftCosts(checked=0.0, drafted=0.2)
    times = StepTimes(start)
    for _ in range(50):
        times.add_step(1, 0.01)
        times.add_step(9, 0.9)  # the line would begin below zero
    assert times.costs(3).checked == pytest.approx(1)


@given(
    st.lists(st.tuples(st.integers(1, 5000), st.floats(0, 1e4)), max_size=60), st.integers(0, 64)
)
def test_whatever_was_measured_the_costs_are_numbers(
    steps: list[tuple[int, float]], texts: int
) -> None:
    times = StepTimes()
    for tokens, seconds in steps:
        times.add_step(tokens, seconds)
        times.add_drafting(tokens % 5, seconds / 7)
        got = times.costs(texts)
        assert 0 <= got.checked <= 1 + 1e-9
        assert got.drafted >= 0


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_costs_out_of_range_are_refused(value: float) -> None:
    with pytest.raises(ConfigError, match="'checked'"):
        DraftCosts(checked=value)
    with pytest.raises(ConfigError, match="'drafted'"):
        DraftCosts(drafted=value)


def test_costs_by_size() -> None:
    """A draft model a tenth as large as the model: its guesses are worth fewer than free ones."""
    costs = DraftCosts.for_sizes(10, 100)
    assert costs.step(1) == pytest.approx(1.2)
    assert length_with(8, 0.8).choose(costs) == 4
    assert length_with(8, 0.8).choose(DraftCosts()) == 8


def test_a_draft_of_less_than_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="0 or above; got -1"):
        DraftLength(-1)
