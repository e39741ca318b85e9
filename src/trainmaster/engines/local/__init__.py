"""The local engine: agents as processes of this machine.

What runs beside the ranks is `trainmaster.agent`; which job starts is decided by `trainmaster.scheduling`.
"""
