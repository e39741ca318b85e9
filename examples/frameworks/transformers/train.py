"""Transformers' Trainer on a tiny GPT-2 made from its configuration. Nothing is downloaded; the text counts modulo 61."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from trainmaster.sdk.transformers import Callback, resume_path


class Counting(torch.utils.data.Dataset):
    """Sequences like 7, 10, 13, … modulo 61."""

    def __len__(self) -> int:
        return 120

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        numbers = (index + torch.arange(16) * (1 + index % 5)) % 61
        return {"input_ids": numbers, "labels": numbers}


def main() -> None:
    """Train for four epochs of fifteen steps, in shuffled order; Trainer skips the batches that it has seen."""
    set_seed(7)
    config = GPT2Config(vocab_size=61, n_positions=16, n_embd=32, n_layer=2, n_head=2)
    arguments = TrainingArguments(
        output_dir="out", num_train_epochs=4, per_device_train_batch_size=8, learning_rate=3e-3, logging_steps=1,
        save_steps=10, save_total_limit=1, report_to=[], disable_tqdm=True, seed=7, dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Counting(), callbacks=[Callback()])
    trainer.train(resume_from_checkpoint=resume_path())


if __name__ == "__main__":
    main()
