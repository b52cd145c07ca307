"""The trees beside the library use what users can use: no private module, no private attribute."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import cocd

ROOT = Path(__file__).parents[1]
TREES = ("paper/src", "benchmarks", "examples", "docs")
PROGRAMS = {
    tree: [p for p in sorted((ROOT / tree).rglob("*.py")) if "__pycache__" not in p.parts]
    for tree in TREES
}
# Modules below `cocd` that are documented; all else is reached through a name of these. The second
# is imported by those who need it alone.
PUBLIC = {"cocd", "cocd.integrations"} | {
    f"cocd.{name}" for name in cocd.__all__ if type(getattr(cocd, name)) is type(cocd)
}
NAMED_TUPLE = ("_replace", "_asdict", "_fields", "_make")
BY_NAME = ("getattr", "setattr", "hasattr", "delattr", "attrgetter", "methodcaller")
MODULE = re.compile(r"cocd(\.\w+)+")


def private(name):
    return name.startswith("_") and not name.endswith("__")


def is_public(module, name):
    """Is `name` of the public `module` part of its interface?"""
    try:
        exported = importlib.import_module(module).__all__
    except (ImportError, AttributeError):  # an integration that is not installed, or no list
        return not private(name)
    return name in exported or f"{module}.{name}" in PUBLIC


def own_names(tree):
    """Private names that the classes of a file define or assign themselves."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for inner in ast.walk(node):
                if isinstance(inner, ast.FunctionDef):
                    yield inner.name
                elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    yield inner.id
                elif isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
                    yield inner.attr


def dotted(node):
    """`a.b.c` as text, or nothing."""
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return before and f"{before}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def imports(node):
    """What an import statement asks for that is not public."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
        names = [node.module]
        if node.module in PUBLIC:
            names += [
                f"{node.module}.{alias.name}"
                for alias in node.names
                if not is_public(node.module, alias.name)
            ]
            names.remove(node.module)
    else:
        return
    yield from (n for n in names if n.partition(".")[0] == "cocd" and n not in PUBLIC)


def offences(tree):
    """Where a syntax tree imports from a private module of cocd, or reaches into an object."""
    own = set(own_names(tree))
    aliases = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name in PUBLIC
    }
    for node in ast.walk(tree):
        for name in imports(node):
            yield node.lineno, f"{name} is imported"
        if isinstance(node, ast.Attribute):
            root = dotted(node.value)
            first, _, rest = root.partition(".")
            module = aliases.get(root) or ".".join(filter(None, [aliases.get(first), rest]))
            if module in PUBLIC and first in aliases and not is_public(module, node.attr):
                if not (node.attr.startswith("__") or f"{module}.{node.attr}" in PUBLIC):
                    yield node.lineno, f"{module}.{node.attr} is used"
            elif private(node.attr) and not (
                # What a class has made itself it may use, not what it has inherited.
                node.attr in NAMED_TUPLE or (root in ("self", "cls") and node.attr in own)
            ):
                yield node.lineno, f"the attribute {node.attr} is used"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if MODULE.fullmatch(node.value) and importable(node.value) and node.value not in PUBLIC:
                yield node.lineno, f"the module {node.value} is named"
        elif isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in BY_NAME:
            for given in node.args:
                if isinstance(given, ast.Constant) and private(str(given.value)):
                    yield node.lineno, f"{given.value} is reached by name"
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            of = node.value
            called = isinstance(of, ast.Call) and dotted(of.func) == "vars"
            attributes = called or (isinstance(of, ast.Attribute) and of.attr == "__dict__")
            if attributes and private(str(node.slice.value)):
                yield node.lineno, f"{node.slice.value} is reached by name"


def importable(name):
    """Is this text the name of a module of the library?"""
    path = ROOT.joinpath("src", *name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


@pytest.mark.parametrize("tree", TREES)
def test_programs_use_the_public_interface_alone(tree):
    assert PROGRAMS[tree]
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in PROGRAMS[tree]
        for line, what in offences(ast.parse(path.read_text("utf-8")))
    ]
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        "import cocd.parts.probe",
        "import cocd.parts.probe as p",
        "from cocd.optim.cocd import CoCD",
        "from cocd.theory.rates import rate",
        "from cocd import _private",
        "from cocd import parts",
        "from cocd.schedules import schedule",
        "import cocd\ncocd.parts.probe",
        "import cocd as c\nc.optim.cocd.CoCD",
        "import cocd.theory as t\nt.rates",
        "optimizer._schedule",
        "getattr(objective, '_records')",
        "operator.attrgetter('_records')(objective)",
        "vars(optimizer)['_memory']",
        "optimizer.__dict__['_memory']",
        "importlib.import_module('cocd.parts.memory')",
        "__import__('cocd.parts')",
        "class Mine(cocd.CoCD):\n    def look(self):\n        return self._memory",
    ],
)
def test_private_things_are_found(text):
    assert list(offences(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "import cocd\ncocd.CoCD",
        "import cocd\ncocd.schedules.Cyclic\ncocd.__version__",
        "from cocd.theory import error_bound",
        "from cocd import schedules\nfrom cocd.schedules import Cyclic",
        "row._asdict()",
        "class Mine:\n    def __init__(self):\n        self._x = 1\n        print(self._x)",
    ],
)
def test_the_public_interface_may_be_used(text):
    assert not list(offences(ast.parse(text)))
