"""The command line: what it lists, what it refuses, how it ends."""

from __future__ import annotations

import importlib

import pytest
from cocd_paper import cli as _cli

import cocd


@pytest.mark.parametrize("words", [["--version"], ["version"]])
def test_version(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        _cli.main(words)
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"cocd-paper {cocd.__version__}\n"


def test_without_a_command_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert _cli.main([]) == 2
    shown = capsys.readouterr().out
    for command in _cli.COMMANDS:
        assert f"{command.name}" in shown and command.help in " ".join(shown.split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["dmo"], "invalid choice: 'dmo'"),
        (["--quick"], "unrecognized arguments: --quick"),
        (["list", "runs"], "unrecognized arguments: runs"),
    ],
)
def test_bad_arguments(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        _cli.main(words)
    assert stop.value.code == 2
    assert sentence in capsys.readouterr().err


def test_other_import_errors_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise ModuleNotFoundError("No module named 'typo'", name="typo")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="typo"):
        _cli.main(["list"])


def test_ctrl_c_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cocd_paper.listing.run", interrupted)
    assert _cli.main(["list"]) == 130
    assert capsys.readouterr().err == "cocd-paper: interrupted\n"
