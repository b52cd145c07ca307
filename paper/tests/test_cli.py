"""The command line: what it lists, what it refuses, how it ends."""

import importlib

import pytest
from cocd_paper import cli as _cli

import cocd


@pytest.mark.parametrize("words", [["--version"], ["version"]])
def test_version(words, capsys):
    with pytest.raises(SystemExit) as stop:
        _cli.main(words)
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"cocd-paper {cocd.__version__}\n"


def test_without_a_command_the_commands_are_listed(capsys):
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
def test_bad_arguments(words, sentence, capsys):
    with pytest.raises(SystemExit) as stop:
        _cli.main(words)
    assert stop.value.code == 2
    assert sentence in capsys.readouterr().err


def test_other_import_errors_are_not_hidden(monkeypatch):
    def broken(name):
        raise ModuleNotFoundError("No module named 'typo'", name="typo")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="typo"):
        _cli.main(["list"])


def test_ctrl_c_is_one_line(capsys, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("cocd_paper.listing.run", interrupted)
    assert _cli.main(["list"]) == 130
    assert capsys.readouterr().err == "cocd-paper: interrupted\n"
