"""A costs file, as `flowgraph profile` writes it."""

import json
from pathlib import Path
from typing import Any

from flowgraph.ir.errors import ConfigurationError


def load_costs(file: str | None) -> dict[str, Any] | None:
    """The file's plain data, checked by the compiler; None for no file.

    Raises ConfigurationError for a file that cannot be read or is no JSON map.
    """
    if file is None:
        return None
    try:
        found = json.loads(Path(file).read_text())
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"{file} is no costs file: {error}", hint="flowgraph profile GRAPH.py makes one"
        ) from error
    if not isinstance(found, dict):
        raise ConfigurationError(f"{file} is no costs file: it holds no map")
    return found
