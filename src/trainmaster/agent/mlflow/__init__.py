"""The part of MLflow's REST API that a training script uses, answered on this node.

Mirroring runs to a tracking server is in `trainmaster.tracking`, which runs beside the server.
"""
