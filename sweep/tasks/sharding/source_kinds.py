"""Which kind of source a path is."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from sweep.core.errors import InputError
from sweep.provenance.data import list_files
from sweep.tasks.sharding.examples import DataSource, read_folder


def read_source(
    source: Path,
    *,
    labels: Path | None = None,
    seed: int = 0,
    ignore: Sequence[str] = (),
    label_column: str | None = None,
    leave_out: Sequence[str] = (),
) -> DataSource:
    """Return what lies in a source: a folder of files, a .npz file, or Parquet.

    Raises:
        InputError: It is none of these, or has options of another kind of source.
    """
    is_parquet = any(f.path.suffix == ".parquet" for f in list_files(source))
    is_folder = source.is_dir() and not is_parquet
    for name, is_given, fits in (
        ("--labels", labels is not None, is_folder),
        ("--ignore", bool(ignore), is_folder),
        ("--label-column", label_column is not None, is_parquet),
        ("--leave-out", bool(leave_out), is_parquet),
    ):
        if is_given and not fits:
            kind = "Parquet" if name in ("--label-column", "--leave-out") else "a folder of files"
            raise InputError(f"{name} is for {kind}, and {source} is none.", f"Leave {name} out.")
    if is_folder:
        return read_folder(source, labels, seed, ignore)
    if is_parquet:
        if find_spec("pyarrow") is None:
            raise InputError(
                "Parquet is read with pyarrow, which is not installed.",
                "Install it: pip install 'sweep-hpo[data]'.",
            )
        from sweep.tasks.sharding.table_rows import read_parquet

        return read_parquet(source, label_column, leave_out)
    if source.suffix == ".npz":
        from sweep.tasks.sharding.array_rows import read_arrays

        return read_arrays(source)
    raise InputError(
        f"{source} is of no kind that is understood.",
        "Give a folder of pictures or .npy files, a .npz file, or Parquet.",
    )
