"""The user's functions by name: a graph records where they are, never what they are."""

import functools
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import xxhash

import flowgraph
from flowgraph.dsl.location import refuse, shown
from flowgraph.dsl.plain import plain_parameters
from flowgraph.ir.graph import FunctionRef

AnyFunction = Callable[..., Any]

_INSTALLED = tuple(
    os.path.realpath(sysconfig.get_path(name)) + os.sep
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


def refer(function: AnyFunction, params: Mapping[str, Any], *, role: str) -> FunctionRef:
    """Name a function and its parameters.

    `path` of the result is absolute: `relocate` makes it relative when the graph's root is known.
    It is empty for functions of installed packages and of ours. role: what the function is to the
    graph, for messages. Raises GraphError at the user's line for what no worker could import.
    """
    _check_importable(function, role)
    file = _file(function, role)
    module = function.__module__
    if module == "__main__":
        module = Path(file).stem
    return FunctionRef(
        module=module,
        qualname=function.__qualname__,
        path="" if installed(file, module) else os.path.abspath(file),
        digest=digest(file),
        params=plain_parameters(params, role),
    )


def resolve(name: str, *, role: str) -> AnyFunction:
    """The function named "module:qualname". Raises GraphError at the user's line."""
    module, colon, qualname = name.partition(":")
    if not colon or not module or not qualname:
        raise refuse(f"{role}: expects 'module:function', got {name!r}")
    try:
        found: Any = __import__(module, fromlist=["_"])
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise refuse(f"{role}: cannot find {name!r} ({error})") from error
    if not callable(found):
        raise refuse(f"{role}: {name!r} is not a function but a {type(found).__name__}")
    function: AnyFunction = found
    return function


def digest(file: str) -> str:
    """Content hash of a file: xxh3-128, hex."""
    return xxhash.xxh3_128(Path(file).read_bytes()).hexdigest()


def origin(function: AnyFunction) -> str:
    """` (file:line)` of the user's function, ` (module)` of an installed one; for messages."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or installed(code.co_filename, function.__module__):
        return f" ({function.__module__})"
    return f" ({shown(code.co_filename)}:{code.co_firstlineno})"


def import_base(path: str, module: str) -> str:
    """The folder that must be importable for the file to be the module of that dotted name."""
    parts = module.split(".")
    file = Path(path)
    names = file.parent.parts if file.stem == "__init__" else (*file.parent.parts, file.stem)
    if tuple(names[-len(parts) :]) == tuple(parts):
        return str(Path(*names[: -len(parts)]))
    return str(file.parent)


def _check_importable(function: AnyFunction, role: str) -> None:
    if isinstance(function, functools.partial):
        raise refuse(
            f"{role}: a functools.partial has no name that a worker could import",
            hint="pass the function itself, and its parameters as keywords of the stage",
        )
    name = getattr(function, "__qualname__", None)
    if name is None or getattr(function, "__module__", None) is None:
        kind = type(function).__name__
        raise refuse(
            f"{role}: expects a function, got {'an instance of ' if callable(function) else ''}"
            f"{kind}",
            hint="pass a function that is defined at the top level of a file",
        )
    if name.endswith("<lambda>"):
        raise refuse(
            f"{role}: a lambda has no name that a worker could import",
            hint="write it as a function at the top level of the file",
        )
    if "<locals>" in name:
        outer, _, inner = name.rpartition(".<locals>.")
        raise refuse(
            f"{role}: '{inner}' is defined inside '{outer}', where no worker could import it",
            hint="move it to the top level of the file and hand it what it closes over as "
            "keyword parameters of the stage",
        )
    if inspect.ismethod(function) and not inspect.isclass(function.__self__):
        raise refuse(
            f"{role}: '{name}' is bound to an object, which a worker would not have",
            hint="pass a plain function, and what it needs as keyword parameters",
        )
    if not _found_by_name(function):
        raise refuse(
            f"{role}: importing '{function.__module__}:{name}' gives something else",
            hint="pass the function under the name that it was defined with; "
            "decorators need functools.wraps",
        )


def _found_by_name(function: AnyFunction) -> bool:
    found: Any = sys.modules.get(function.__module__)
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is function or found == function


def _file(function: AnyFunction, role: str) -> str:
    file = getattr(sys.modules.get(function.__module__), "__file__", None)
    if file is None or not os.path.isfile(file):
        raise refuse(
            f"{role}: '{function.__module__}:{function.__qualname__}' is in no file",
            hint="put the function in a .py file that workers can import",
        )
    return str(file)


def installed(file: str, module: str) -> bool:
    """Whether workers find the module without the user's folders: a package's, Python's, ours."""
    if module.partition(".")[0] == flowgraph.__name__:
        return True
    real = os.path.realpath(file)
    return real.startswith(_INSTALLED)
