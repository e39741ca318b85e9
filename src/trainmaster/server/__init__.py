"""The server: an api process that answers requests and a control process that schedules and acts.

Decisions are in `trainmaster.control`, stores in `trainmaster.store`. Only `trainmaster.compose` names the adapters.
"""
