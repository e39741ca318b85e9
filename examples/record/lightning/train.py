"""A Lightning script with Lightning's own MLFlowLogger and ModelCheckpoint, resumed by its own `--resume`."""

import argparse
import time

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import MLFlowLogger
from torch import nn

STEPS, BATCH = 60, 32


class Batches(torch.utils.data.Dataset):
    """Batch `i` is always the same; an epoch is all of them."""

    def __len__(self) -> int:
        return 15

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = torch.randn(BATCH, 8, generator=torch.Generator().manual_seed(index))
        return inputs, inputs.sum(1, keepdim=True)


class Model(pl.LightningModule):
    """A small network."""

    def __init__(self) -> None:
        super().__init__()
        self.save_hyperparameters({"width": 32, "rate": 0.01})
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch, batch_index):
        loss = nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.log("loss", loss)
        time.sleep(0.1)  # stands for work
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def main() -> None:
    """Train for `STEPS` steps, saving at each epoch's last batch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", help="a checkpoint to go on from")
    resume = parser.parse_args().resume
    pl.seed_everything(7, verbose=False)
    trainer = pl.Trainer(
        max_steps=STEPS, accelerator="cpu", devices=1, log_every_n_steps=1, enable_progress_bar=False,
        logger=MLFlowLogger(experiment_name="sums"),
        callbacks=[ModelCheckpoint("out", filename="{step}", save_top_k=-1, every_n_train_steps=15)],
    )  # fmt: skip
    loader = torch.utils.data.DataLoader(Batches(), batch_size=None)
    trainer.fit(Model(), loader, ckpt_path=resume, weights_only=False)


if __name__ == "__main__":
    main()
