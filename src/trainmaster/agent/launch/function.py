"""Runs `package.module:function` with the job's parameters: the program of a rank if the spec has `python:`.

It is started by its path, with the job's interpreter, in which this package may not be installed. So it imports only the
standard library and spells out the environment variables that it reads. A wrong name or parameter gives one clear last
line; an exception of the function itself gives its own traceback.
"""

import importlib
import inspect
import json
import os
import sys
from typing import Any, Callable, Dict, List, NoReturn


def main(argv: List[str]) -> None:
    """`argv` is `[this file, "package.module:function"]`."""
    sys.path[0] = os.getcwd()  # the work directory, as with `python -m`, instead of the directory of this file
    target = argv[1]
    sys.argv = [target, *argv[2:]]
    function = find(target)
    params = json.loads(os.environ.get("TRAINMASTER_PARAMS") or "{}")
    check(target, function, params)
    result = function(**params)
    if inspect.iscoroutine(result):
        import asyncio  # noqa: PLC0415 - start-up time

        asyncio.run(result)


def find(target: str) -> Callable[..., Any]:
    """Import and return the function. Ends the process if there is none."""
    name, _, attribute = target.partition(":")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise  # a module that the named module imports is missing
        where = f"in {os.getcwd()} or among the packages of {sys.executable}"
        refuse("ModuleNotFoundError", f"No module named {error.name!r} {where}")
    function: Any = getattr(module, attribute, None)
    if function is None:
        names = [key for key, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == name]
        refuse("FunctionError", f"{name} has no function {attribute!r}{known(attribute, names, 'it has')}")
    if not callable(function):
        refuse("FunctionError", f"{target} is of the type {type(function).__name__}, not a function")
    found: Callable[..., Any] = function
    return found


def check(target: str, function: Callable[..., Any], params: Dict[str, Any]) -> None:
    """End the process if the parameters do not fit the function."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a C function without a signature
        return
    kinds = inspect.Parameter
    takes = signature.parameters.values()
    named = [p.name for p in takes if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)]
    if not any(p.kind is kinds.VAR_KEYWORD for p in takes):
        for name in params:
            if name not in named:
                refuse("ParameterError", f"{target} takes no parameter {name!r}{known(name, named, 'it takes')}")
    fixed = [p.name for p in takes if p.kind is kinds.POSITIONAL_ONLY and p.default is kinds.empty]
    if fixed:
        refuse("ParameterError", f"{target} takes {fixed[0]!r} by position alone; parameters are given by name")
    lacking = [p.name for p in takes if p.name in named and p.default is kinds.empty and p.name not in params]
    if lacking:
        words = ", ".join(repr(name) for name in lacking)
        hint = f"add it to the spec, or --param {lacking[0]}=…"
        refuse("ParameterError", f"{target} needs {words}, which `params` does not give; {hint}")


def known(name: str, names: List[str], verb: str) -> str:
    """A hint about the existing names in place of `name`."""
    import difflib  # noqa: PLC0415 - start-up time

    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; {verb} {', '.join(names[:20])}" if names else f"; {verb} none"


def refuse(kind: str, message: str) -> NoReturn:
    """End the process with a last line in the form of an exception, so that it is reported as the cause."""
    sys.exit(f"{kind}: {message}")


if __name__ == "__main__":
    main(sys.argv)
