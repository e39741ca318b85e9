"""Lightning with the callback, saved in the middle of an epoch: the data loader's `state_dict` contains the next batch."""

import lightning.pytorch as pl
import torch
from torch import nn

from trainmaster.sdk.lightning import Callback, resume_path

EPOCHS, BATCHES, BATCH = 4, 15, 32


class Batches:
    """New random batches in each epoch. Lightning needs `state_dict` to resume inside an epoch."""

    def __init__(self) -> None:
        self.drawn = 0
        self.truth = torch.randn(8, 1, generator=torch.Generator().manual_seed(7))

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self):
        for _ in range(BATCHES - self.drawn % BATCHES):
            self.drawn += 1
            inputs = torch.randn(BATCH, 8, generator=torch.Generator().manual_seed(self.drawn))
            yield inputs, inputs @ self.truth

    def state_dict(self) -> dict[str, int]:
        return {"drawn": self.drawn}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.drawn = state["drawn"]


class Model(pl.LightningModule):
    """A small network with dropout, whose draws come from torch's own generator."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))

    def training_step(self, batch, batch_index):
        loss = nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


if __name__ == "__main__":
    pl.seed_everything(7, verbose=False)
    trainer = pl.Trainer(
        max_epochs=EPOCHS, accelerator="auto", devices=1, logger=False, enable_checkpointing=False, log_every_n_steps=1,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[Callback(every=10)],
    )  # fmt: skip
    trainer.fit(Model(), Batches(), ckpt_path=resume_path())
