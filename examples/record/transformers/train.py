"""A Transformers script that reports to MLflow with Trainer's own integration, resumed by its own `--resume`."""

import argparse
import os
import time

os.environ["HF_HUB_OFFLINE"] = "1"  # the model is made from its configuration

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


class Counting(torch.utils.data.Dataset):
    """Sequences like 7, 10, 13, … modulo 61."""

    def __len__(self) -> int:
        return 120

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        time.sleep(0.0125)  # stands for work
        numbers = (index + torch.arange(16) * (1 + index % 5)) % 61
        return {"input_ids": numbers, "labels": numbers}


def main() -> None:
    """Train for sixty steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", help="a checkpoint to go on from")
    resume = parser.parse_args().resume
    set_seed(7)
    config = GPT2Config(vocab_size=61, n_positions=16, n_embd=32, n_layer=2, n_head=2)
    arguments = TrainingArguments(
        output_dir="out", max_steps=60, per_device_train_batch_size=8, learning_rate=3e-3, logging_steps=1,
        save_steps=10, report_to=["mlflow"], disable_tqdm=True, seed=7, dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Counting())
    trainer.train(resume_from_checkpoint=resume)


if __name__ == "__main__":
    main()
