"""Pure decisions about ended attempts: what went wrong, whether to restart, when, and who pays."""
