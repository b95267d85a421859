"""The study file: strict reading with every problem at once, its JSON Schema, and what may change.

Each problem has its line and says what to do: ``file:line: dotted.path: rule (got …). what to do``.
One table (``keys``) says what each key may hold; the loader, the schema and the documentation come
from it, and what an absent key means from the fields of ``sweep.core.study``.
Numbers are YAML 1.2's; see ``tree``.
"""

from sweep.studyfile.compare import changes
from sweep.studyfile.reading import load, loads
from sweep.studyfile.schema import json_schema

__all__ = ["changes", "json_schema", "load", "loads"]
