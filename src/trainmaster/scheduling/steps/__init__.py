"""The steps of a decision, which share one record (`Decision`): order, fit, place, preempt, reserve, refuse."""
