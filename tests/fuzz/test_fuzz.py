"""The short form of `make fuzz`: some inputs for each target, the same each time; and that a bad
reader would be noticed."""

import subprocess
import sys
from pathlib import Path

import pytest

from . import engine
from .engine import Tally, Target, once, run
from .mutator import Mutator
from .targets import TARGETS

INPUTS = 2000
SEED = "dovetail"
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_comes_is_read_or_refused_as_it_should_be(name: str) -> None:
    tally = run(TARGETS[name], SEED, INPUTS if TARGETS[name].share >= 40_000 else INPUTS // 4)
    assert tally.kept == [], tally.kept[0].trace
    assert 0 < tally.rejected < tally.inputs, (
        "the inputs are all alike: what is tested is one branch"
    )


@pytest.mark.parametrize("name", TARGETS)
def test_the_same_seed_makes_the_same_inputs_and_another_others(name: str) -> None:
    make = TARGETS[name].make
    first, again, other = ([make(rng) for _ in range(20)] for rng in map(Mutator, ("a", "a", "b")))
    assert first == again != other


def bad(check: object) -> Tally:
    return run(Target("bad", lambda rng: b"%d" % rng.randrange(10), check), "x", 40)  # type: ignore[arg-type]


def test_a_crash_is_counted_and_kept_with_its_input() -> None:
    tally = bad(lambda data: 1 // int(data) >= 0)
    assert tally.crashes > 1
    crash = tally.kept[0]
    assert (crash.input, crash.target) == (b"0", "bad") and "ZeroDivisionError" in crash.trace
    assert (
        once(Target("bad", lambda rng: b"", lambda data: 1 // int(data) >= 0), crash.input)
        is not None
    )


@pytest.mark.skipif(sys.platform == "win32", reason="there is no timer that counts work")
def test_an_input_that_takes_too_long_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(data: bytes) -> bool:
        while data == b"7":
            pass
        return True

    monkeypatch.setattr(engine, "SECONDS", 0.05)
    tally = bad(endless)
    assert (
        tally.crashes >= 1
        and {crash.input for crash in tally.kept} == {b"7"}
        and "TooSlow" in tally.kept[0].trace
    )


def test_memory_that_is_not_given_back_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bytes] = []
    monkeypatch.setattr(engine, "WARM", 10)
    monkeypatch.setattr(engine, "GROWTH", 500)

    def keeping(data: bytes) -> bool:
        kept.extend(b"%d" % number for number in range(1000))
        return True

    tally = bad(keeping)
    assert [crash.input for crash in tally.kept] == [b""] and "Grown" in tally.kept[0].trace


def test_the_command_prints_a_table_and_one_closing_line_and_a_kept_input_can_be_run_again(
    tmp_path: Path,
) -> None:
    def fuzz(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.fuzz", *options]
        return subprocess.run(
            command,
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    ran = fuzz("--seed", "7", "--inputs", "0.01", "--target", "cursors")
    lines = ran.stdout.splitlines()
    assert ran.returncode == 0 and lines[0] == "seed 7" and lines[-1] == "800 inputs, 0 crashes", (
        ran
    )
    assert lines[2].split()[:2] == ["target", "inputs"] and lines[3].split()[:2] == [
        "cursors",
        "800",
    ]
    (tmp_path / "cursors-7-0.input").write_bytes(b"x")
    assert fuzz("--replay", "cursors-7-0.input").stdout == "It is read as it should be.\n"
    assert fuzz("--target", "nothing").returncode == 2
