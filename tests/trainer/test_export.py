"""Exported networks: read by torch and onnxruntime alone, with the network's own outputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs torch (extra: trainer)")

from sweep.report import Reporter  # noqa: E402
from trainer import export, loop  # noqa: E402
from trainer.config import InputError, Options  # noqa: E402
from trainer.evaluate import load_state  # noqa: E402

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    options = Options(
        data="digits", model="cnn", width=8, epochs=1, dropout=0.1, device="cpu", output=str(folder)
    )
    loop.train(options, Reporter({}), lambda line: None)
    return folder


def test_weights_carry_what_a_reader_needs(trained: Path, tmp_path: Path) -> None:
    """Loaded with weights_only; input, output, options and metrics are named."""
    assert export.main([str(trained), "--output", str(tmp_path), "--formats", "pt"]) == 0
    read = torch.load(tmp_path / "model.pt", weights_only=True)
    about = read["about"]
    assert about["input"] == {"type": "uint8", "shape": ["n", 1, 8, 8]}
    assert about["output"] == {"type": "float32", "shape": ["n", 10], "meaning": "logits"}
    assert (about["options"]["width"], about["epoch"]) == (8, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]


def test_the_exported_program_takes_any_batch(trained: Path, tmp_path: Path) -> None:
    """torch.export.load gives the same logits for 1 and for 7 images."""
    state, source = load_state(trained)
    export.export(state, source, tmp_path, ["pt2"], lambda line: None)
    extra = {"about.json": ""}
    program = torch.export.load(tmp_path / "model.pt2", extra_files=extra).module()
    network, _ = export.rebuild(state)
    pixels = torch.randint(17, (7, 1, 8, 8)).to(torch.uint8)
    assert torch.allclose(program(pixels), network(pixels), atol=1e-5)
    assert torch.allclose(program(pixels[:1]), network(pixels[:1]), atol=1e-5)
    assert json.loads(extra["about.json"])["checkpoint"] == source.name


def test_onnx_gives_the_same_logits_in_onnxruntime(trained: Path, tmp_path: Path) -> None:
    """The file alone, in another runtime, within 1e-4."""
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    state, source = load_state(trained)
    export.export(state, source, tmp_path, ["onnx"], lambda line: None)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    pixels = torch.randint(17, (7, 1, 8, 8)).to(torch.uint8)
    (got,) = session.run(["logits"], {"pixels": pixels.numpy()})
    network, _ = export.rebuild(state)
    assert torch.allclose(torch.from_numpy(got), network(pixels), atol=export.TOLERANCE)
    about = session.get_modelmeta().custom_metadata_map["about"]
    assert json.loads(about)["options"]["model"] == "cnn"


def test_a_missing_package_is_named(
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The other formats can be had without it."""
    monkeypatch.setattr(
        export.importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else True
    )
    assert export.main([str(trained), "--output", str(tmp_path), "--formats", "onnx"]) == 2
    assert "ONNX needs onnxruntime. Install with `pip install onnxruntime`" in (
        capsys.readouterr().err
    )


def test_a_file_that_computes_something_else_is_not_kept(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison decides, not the exporter."""

    def wrong(network: object, about: object, pixels: object, path: Path) -> object:
        path.write_bytes(b"x")
        return torch.zeros(5, 10)

    monkeypatch.setitem(export._WRITERS, "pt", wrong)
    state, source = load_state(trained)
    with pytest.raises(InputError, match="its outputs differ from the network's by"):
        export.export(state, source, tmp_path, ["pt"], lambda line: None)
    assert list(tmp_path.iterdir()) == []
