"""The control loop: observe, record, decide, commit, act. It alone writes events, and reaches the outside through ports."""
