"""Recovery: pure decisions about ended attempts. What failed, whether and when to restart, and which budget pays."""
