"""The server: one process that answers requests (api) and one that decides and acts (control), and their rooms.

Decisions are in `trainmaster.control`, stores in `trainmaster.store`; only `trainmaster.compose` names the adapters.
"""
