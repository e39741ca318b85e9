"""The loop: observe, record, apply, decide, act. The one writer of events; all I/O through the ports."""
