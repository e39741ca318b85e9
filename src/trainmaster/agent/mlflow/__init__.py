"""The part of MLflow's REST interface that a training script uses, answered on this node.

Mirroring runs to a tracking server is not here: `trainmaster.tracking` does it, beside the server.
"""
