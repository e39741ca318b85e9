"""The local engine: agents as processes of this machine.

The code beside the ranks is `trainmaster.agent`; `trainmaster.scheduling` decides which job starts.
"""
