"""The Lightning callback reports each value at the step that it was measured at, once."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

from trainmaster.sdk import channel
from trainmaster.sdk.lightning import Callback
from trainmaster.wire.names import ENV_SDK


class Module(pl.LightningModule):
    """Logs values that tell where they were logged. Four steps are an epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: Any, index: int) -> Any:
        self.log("step", float(self.current_epoch))  # what puts epochs on the axis of TensorBoard
        self.log("loss", float(self.global_step), on_step=True, on_epoch=True)
        if index == 1:
            self.log("seldom", float(self.global_step))
        return self.layer(batch[0]).sum() * 0

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("val_loss", (0.9, 0.5, 0.5, 7.0)[self.current_epoch])

    def on_train_epoch_end(self) -> None:
        self.log("summary", float(self.current_epoch))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


def test_each_value_is_reported_at_its_own_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_SDK, str(tmp_path / "rank0.sdk"))
    monkeypatch.setattr(channel.CHANNEL, "line", None)
    loader = DataLoader(TensorDataset(torch.zeros(4, 1)), batch_size=1)
    trainer = pl.Trainer(
        max_epochs=3, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        accelerator="cpu", callbacks=[Callback()],
    )  # fmt: skip
    module = Module()
    trainer.fit(module, loader, loader)
    trainer.validate(module, loader)  # of a model that may be another one
    told: dict[str, list[tuple[int, float]]] = {}
    for line in (tmp_path / "rank0.sdk").read_text().splitlines():
        message = json.loads(line)
        for name, value in message.get("values", {}).items():
            told.setdefault(name, []).append((message["step"], round(value, 4)))
    every = range(1, 13)
    assert told == {
        "step": [(step, float((step - 1) // 4)) for step in every],
        "loss": [(step, step - 1.0) for step in every],
        "loss_step": [(step, step - 1.0) for step in every],
        "loss_epoch": [(4, 1.5), (8, 5.5), (12, 9.5)],
        "seldom": [(2, 1.0), (6, 5.0), (10, 9.0)],
        "val_loss": [(4, 0.9), (8, 0.5), (12, 0.5)],
        "summary": [(4, 0.0), (8, 1.0), (12, 2.0)],
    }
