"""Data parallel gradient descent over MPI; rank 0 saves `state.npz`, and every start goes on from it."""

import os
import time

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
truth = np.random.default_rng(17)
inputs = truth.normal(size=(240, 6))
targets = inputs @ truth.normal(size=6)
mine = slice(rank * len(inputs) // size, (rank + 1) * len(inputs) // size)

state = None
if rank == 0:
    state = (0, np.zeros(6))
    if os.path.exists("state.npz"):
        with np.load("state.npz") as saved:
            state = int(saved["iteration"]), saved["weights"]
        print(f"restarting at iteration {state[0]}", flush=True)
iteration, weights = comm.bcast(state, root=0)

while iteration < 100:
    iteration += 1
    error = inputs[mine] @ weights - targets[mine]
    gradient = comm.allreduce(inputs[mine].T @ error, op=MPI.SUM) / len(inputs)
    loss = comm.allreduce(float(error @ error), op=MPI.SUM) / len(inputs)
    weights = weights - 0.05 * gradient
    time.sleep(0.04)  # in place of a larger model
    if rank == 0:
        print(f"iteration {iteration} loss {loss:.10f}", flush=True)
        if iteration % 10 == 0:
            np.savez("state.npz", iteration=iteration, weights=weights)
if rank == 0:
    print(f"final loss {float(np.mean((inputs @ weights - targets) ** 2)):.12e} of {size} processes")
