"""The stubs of the native half say what it has, no more and no less; and every public function says what types it takes."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import zheng17
from zheng17 import _zheng17, pp

STUB = Path(zheng17.__file__).with_name("_zheng17.pyi")


def own_signature(of) -> list[tuple[str, bool, bool]]:
    """Name, whether by keyword only, whether it may be left out, of each parameter."""
    parameters = inspect.signature(of).parameters.values()
    return [
        (one.name, one.kind is one.KEYWORD_ONLY, one.default is not one.empty)
        for one in parameters
        if one.name != "self"
    ]


def stub_signature(function: ast.FunctionDef) -> list[tuple[str, bool, bool]]:
    """The same from a stub."""
    arguments = function.args
    n_without = len(arguments.args) - len(arguments.defaults)
    found = [(one.arg, False, at >= n_without) for at, one in enumerate(arguments.args)]
    found += [
        (one.arg, True, default is not None)
        for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    return [one for one in found if one[0] not in ("self", "cls")]


def stubs(body) -> dict[str, ast.AST]:
    return {one.name: one for one in body if isinstance(one, ast.FunctionDef | ast.ClassDef)}


def public(names) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def test_the_stubs_are_those_of_the_native_half():
    found = stubs(ast.parse(STUB.read_text()).body)
    assert public(found) == public(vars(_zheng17))
    for name, stub in found.items():
        own = getattr(_zheng17, name)
        if isinstance(stub, ast.FunctionDef):
            assert stub_signature(stub) == own_signature(own), name
            continue
        assert isinstance(own, type), name
        members = stubs(stub.body)
        assert public(members) == public(vars(own)), name
        if "__new__" in members:
            assert stub_signature(members["__new__"]) == own_signature(own), name
        else:
            with pytest.raises(TypeError):
                own()
        for member in public(members):
            kinds = [decorator.id for decorator in members[member].decorator_list]
            attribute = inspect.getattr_static(own, member)
            if kinds == ["property"]:
                assert inspect.isgetsetdescriptor(attribute), (name, member)
                continue
            assert isinstance(attribute, staticmethod) == (kinds == ["staticmethod"]), (name, member)
            assert stub_signature(members[member]) == own_signature(getattr(own, member)), (name, member)


def test_everything_native_has_a_word_on_it():
    for name in public(vars(_zheng17)):
        assert inspect.getdoc(getattr(_zheng17, name)), name


def test_mypy_agrees_with_the_stubs(tmp_path):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("needs mypy")
    command = [sys.executable, "-m", "mypy.stubtest", "zheng17._zheng17", "--ignore-disjoint-bases"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_public_functions_have_types_and_docstrings():
    functions = [getattr(zheng17, name) for name in zheng17.__all__] + [getattr(pp, name) for name in pp.__all__]
    functions = [function for function in functions if inspect.isfunction(function)]
    assert len(functions) > 10
    for function in functions:
        assert len(inspect.getdoc(function) or "") > 60, function.__name__
        for name, parameter in inspect.signature(function).parameters.items():
            untyped = ("adata", "data", "x", "X", "mask_obs", "parts", "part", "chunk")
            assert parameter.annotation is not parameter.empty or name in untyped, (function.__name__, name)


def test_types_come_with_the_package():
    assert STUB.with_name("py.typed").exists()
