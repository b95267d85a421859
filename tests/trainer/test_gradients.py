"""The mean of several ranks' gradients in one exchange."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs torch (extra: trainer)")

from trainer.gradients import Mean  # noqa: E402


def rank_of_two(rank: int, store: str) -> None:
    """Exchange gradients of several layouts with the other rank, and compare."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    for kind, tolerance in ((torch.float32, 0.0), (torch.bfloat16, 0.02)):
        network = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 4, 1), torch.nn.Linear(5, 2)
        ).to(memory_format=torch.channels_last)
        mean = Mean(network.parameters(), kind, 2)
        for time in range(2):
            made = []
            for each in network.parameters():
                source = torch.Generator().manual_seed(each.numel() + time)
                both = torch.randn(2, *each.shape, generator=source)
                each.grad = both[rank].clone()  # another layout than its parameter's
                made.append(both.mean(0))
            mean()
            for each, expected in zip(network.parameters(), made, strict=True):
                assert torch.allclose(each.grad, expected, rtol=tolerance, atol=tolerance or 1e-7)
    torch.distributed.destroy_process_group()


def test_gradients_become_their_mean_whatever_their_layout(tmp_path: Path) -> None:
    """In float32 exactly, in bfloat16 to its precision; twice, as the buffer is used again."""
    torch.multiprocessing.spawn(rank_of_two, (str(tmp_path / "store"),), nprocs=2)
