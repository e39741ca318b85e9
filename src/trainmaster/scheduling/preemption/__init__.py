"""Which jobs may be preempted for which, and the handover of their nodes."""
