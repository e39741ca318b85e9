"""A Trainer that finds out by itself how many processes there are and who started them; `--ckpt_path` goes on from a checkpoint."""

import argparse
import time
import warnings

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")


class LitModel(pl.LightningModule):
    """A small regression."""

    def __init__(self) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch, batch_idx):
        loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("train_loss", loss, prog_bar=True, on_epoch=True, on_step=False, sync_dist=True)
        time.sleep(0.05)  # in place of a larger model
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class LitData(pl.LightningDataModule):
    """The same rows in every process: Lightning gives each its share."""

    def train_dataloader(self):
        inputs = torch.randn(256, 10, generator=torch.Generator().manual_seed(1))
        return DataLoader(TensorDataset(inputs, inputs.prod(1, keepdim=True)), batch_size=16, shuffle=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--num_nodes", type=int, default=1)
    parser.add_argument("--max_epochs", type=int, default=20)
    parser.add_argument("--ckpt_path", default=None)
    args = parser.parse_args()
    torch.set_num_threads(1)
    pl.seed_everything(7, workers=True)
    trainer = pl.Trainer(
        accelerator="cpu", devices=args.devices, num_nodes=args.num_nodes, strategy="ddp", max_epochs=args.max_epochs,
        logger=CSVLogger("."), log_every_n_steps=4, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(LitModel(), datamodule=LitData(), ckpt_path=args.ckpt_path)
    if trainer.is_global_zero:
        print(f"\nfinal loss {trainer.callback_metrics['train_loss'].item():.10f} of {trainer.world_size} processes")
