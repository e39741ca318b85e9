"""The stores on SQLite, through SQLAlchemy Core: events with their projections, the inbox, and metric points.

Three files, because each has one writing process (`docs/decisions/0002-three-stores.md`). Import from the modules.
"""
