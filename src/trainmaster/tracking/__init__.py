"""Mirrors: every job as one run in MLflow, TensorBoard or Weights & Biases, fed from our own stores asynchronously."""
