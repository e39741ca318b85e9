"""The steps of one decision, over one record of what it has come to: order, fit, place, make way, reserve, refuse."""
