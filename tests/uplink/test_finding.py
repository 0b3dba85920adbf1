"""Many secrets are found all at once, wherever they stand, and a text costs the same however many there are."""

import base64
import random
import string
from functools import partial

import pytest

from costs import costs_at_most
from untildone.uplink.finding import FEW, GRAM, Finding, Hints
from untildone.uplink.masking import Masking
from uplink.secret_corpus import FROM_ENV_FILES, FROM_ENVIRONMENT, SPELLINGS

LETTERS = string.ascii_letters + string.digits


def drawn(count: int, *, shortest: int = 9, longest: int = 40, seed: int = 1) -> list[str]:
    dice = random.Random(seed)
    return ["".join(dice.choices(LETTERS, k=dice.randint(shortest, longest))) for _ in range(count)]


@pytest.mark.parametrize("count", [3, FEW, FEW + 1, 2000])
def test_a_hint_never_misses_wherever_it_stands(count: int) -> None:
    wanted = drawn(count, shortest=5)
    hints, in_bytes = Hints(wanted), Hints([one.encode() for one in wanted])
    for number, one in enumerate(wanted[:400]):
        text = "." * (number % 7) + one + "." * (number % 5)
        assert hints.may_be_in(text)
        assert in_bytes.may_be_in(text.encode())


def test_a_hint_says_no_to_what_is_something_else() -> None:
    assert not Hints(drawn(2000)).may_be_in("all is well, " * 1000)
    assert not Hints[str](()).may_be_in("x")


def test_many_short_ones_are_always_worth_a_look() -> None:
    assert Hints([f"a{n}" for n in range(FEW + 1)]).may_be_in("nothing of the kind")


def test_all_are_found_at_their_places() -> None:
    wanted = drawn(500, shortest=GRAM, longest=200)
    finding = Finding({one: f"<{one}>" for one in wanted})
    for one in wanted:
        assert (2, 2 + len(one), f"<{one}>") in set(finding.spans(f"x {one} y"))
        assert (0, len(one), f"<{one}>") in set(finding.spans(one))


def test_the_longest_counts_of_those_that_begin_alike() -> None:
    base = "abcdef" + "x" * 100
    wanted = {base[:6]: "6", base[:9]: "9", base[:64]: "64", base[:70]: "70", base: "all"}
    for shown, said in ((base[:8], "6"), (base[:63], "9"), (base[:69], "64"), (base[:99], "70"), (base, "all")):
        assert next(iter(Finding(wanted).spans(shown)))[2] == said


def test_of_too_many_that_begin_alike_nothing_is_shown() -> None:
    wanted = {"k" * 64 + f"-{n}-tail": "S" for n in range(50)}
    spans = list(Finding(wanted).spans("see " + "k" * 64 + "-7-tail there"))
    assert spans == [(4, 4 + 64 + 7, "S")]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_among_many_others_each_is_hidden_in_every_spelling(spelling: str) -> None:
    real = {value: name for name, value in (FROM_ENVIRONMENT | FROM_ENV_FILES).items() if "://" not in value}
    masking = Masking(real | dict.fromkeys(drawn(1500), "DECOY"))
    shown = []
    for value, name in real.items():
        spelled = SPELLINGS[spelling](value)
        told = masking.text(f"got {spelled} there")
        if "basic" in spelling and len(value.encode()) < 9:
            continue
        if "[secret: " not in told or (spelled in told and spelled == value):
            shown.append(name)
    assert shown == []


@pytest.mark.parametrize("count", [0, 2000])
def test_a_file_tells_a_secret_as_it_is_and_inside_base64(count: int) -> None:
    masking = Masking({"inDotEnv99xQ7": "A", "sch\u00f6n-Geheim-7": "B"} | dict.fromkeys(drawn(count), "DECOY"))
    for value in ("inDotEnv99xQ7", "sch\u00f6n-Geheim-7"):
        for content in (value.encode(), b"\xff\0" + value.encode() + b"\xff", base64.b64encode(f"k={value}".encode())):
            assert masking.tells(content)
    for content in (b"", b"inDotEnv99", b"inDotEnv99xQ8", bytes(range(256)), b"all is well " * 1000):
        assert not masking.tells(content)


def test_a_payload_costs_the_same_however_many_secrets_are_known() -> None:
    text = ('{"text": "' + "all is well here, and " * 4000 + '"}').encode()
    few, many = (Masking(dict.fromkeys(drawn(count), "K")) for count in (100, 5000))
    costs_at_most(4, lambda: many.payload(text), lambda: few.payload(text))


@pytest.mark.parametrize(
    "values",
    [
        [f"abcdefgh-{n}" for n in range(1000)],
        ["a" * n for n in range(GRAM, 1000)],
        ["a" * 64 + f"{n:04d}" for n in range(1000)],
        [f"zq{n:05d}Xy77" for n in range(1000)],
    ],
    ids=["one core", "one letter", "one head", "one beginning"],
)
def test_secrets_that_are_much_alike_take_no_longer_than_the_text_is_long(values: list[str]) -> None:
    masking = Masking(dict.fromkeys(values, "K"))

    def mask(times: int) -> None:
        masking.text(f"{values[0]} {'a' * 8} {'abcdefgh-'}{'zq0000'}" * times + "a" * 20 * times)

    costs_at_most(16, partial(mask, 400), partial(mask, 100))
