"""Ports: the protocols between the control plane and its adapters (stores, engines, blobs, clocks, trackers)."""
