"""The trees beside the library use what users can use: no private module, no private attribute."""

import ast
from pathlib import Path

import pytest

import cocd

ROOT = Path(__file__).parents[1]
TREES = ("paper/src", "benchmarks", "examples")
PROGRAMS = sorted(
    path for tree in TREES for path in (ROOT / tree).rglob("*.py") if "__pycache__" not in str(path)
)
# Modules below `cocd` that are documented; all else is reached through a name of these. The second
# is imported by those who need it alone.
PUBLIC = {"cocd", "cocd.integrations"} | {
    f"cocd.{name}" for name in cocd.__all__ if type(getattr(cocd, name)) is type(cocd)
}


def private(name):
    return name.startswith("_") and not name.endswith("__")


def offences(tree):
    """Where a syntax tree imports from a private module of cocd, or reaches into an object."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            named = [str(node.module)]
            if node.module in PUBLIC and any(private(alias.name) for alias in node.names):
                yield node.lineno, f"a private name of {node.module}"
        elif isinstance(node, ast.Attribute) and private(node.attr):
            # What a class calls its own it may use; named tuples have methods that begin so.
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not own and node.attr not in ("_replace", "_asdict", "_fields", "_make"):
                yield node.lineno, f"the attribute {node.attr}"
            continue
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("getattr", "setattr", "hasattr", "delattr")
            and len(node.args) > 1
            and isinstance(node.args[1], ast.Constant)
            and private(str(node.args[1].value))
        ):
            yield node.lineno, f"{node.func.id} of {node.args[1].value}"
            continue
        else:
            continue
        for name in named:
            if name.partition(".")[0] == "cocd" and name not in PUBLIC:
                yield node.lineno, f"the module {name}"


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_programs_use_the_public_interface_alone(path):
    found = [f"line {line}: {what}" for line, what in offences(ast.parse(path.read_text("utf-8")))]
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        "import cocd.parts.probe",
        "from cocd.optim.cocd import CoCD",
        "from cocd import _private",
        "optimizer._schedule",
        "getattr(objective, '_records')",
    ],
)
def test_private_things_are_found(text):
    assert list(offences(ast.parse(text)))


def test_the_public_interface_may_be_used():
    text = "import cocd\nfrom cocd.theory import error_bound\nself._x = cocd.CoCD\nrow._asdict()"
    assert not list(offences(ast.parse(text)))
